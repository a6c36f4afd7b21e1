"""Jobs for clusters that queue themselves: handed over at once, queued until they run."""

from towline.core.decide import Core
from towline.core.step import Step
from towline.engine.views import view
from towline.model.events import (
    AttemptWaits,
    FindAttempt,
    ProcessEnded,
    ProcessStarted,
    Recovered,
    RetryAsked,
    StartAttempt,
    StopAsked,
    StopAttempt,
    Submitted,
)
from towline.model.grammar import parse_request
from towline.model.job import Ending, JobSpec, Queueing, State
from towline.model.machine import Slot


def submitted(core: Core, request: str = "[]", retries: int = 0) -> Step:
    spec = JobSpec(
        argv=("true",),
        cluster="cedar",
        owner="anna",
        request=request,
        retries=retries,
        queue=Queueing("slurm"),
    )
    return core.handle([Submitted(1, spec, parse_request(request))], now=1.0)


def test_job_is_handed_over_at_once_without_any_machine() -> None:
    core = Core()
    step = submitted(core, "2:[]")
    (order,) = step.orders
    assert isinstance(order, StartAttempt)
    assert order.job.attempt is not None
    assert order.job.attempt.placement == (Slot("cedar"), Slot("cedar"))
    assert core.scheduler.waiting_count == 0
    assert view(core.jobs[1])["state"] == "queued"


def test_reason_of_the_clusters_queue_is_the_jobs() -> None:
    core = Core()
    submitted(core)
    core.handle([AttemptWaits(1, 1, "others are before it")], now=2.0)
    shown = view(core.jobs[1])
    assert (shown["state"], shown["reason"]) == ("queued", "others are before it")


def test_job_runs_on_the_nodes_that_its_cluster_chose() -> None:
    core = Core()
    submitted(core, "2:[]")
    core.handle([ProcessStarted(1, 1, 1, 3.0, "h3")], now=3.0)
    assert view(core.jobs[1])["state"] == "queued"
    core.handle([ProcessStarted(1, 1, 0, 3.0, "h2")], now=3.0)
    shown = view(core.jobs[1])
    assert (shown["state"], shown["machines"], shown["reason"]) == ("running", ["h2", "h3"], "")


def test_job_that_its_queue_took_back_is_queued_and_runs_again() -> None:
    core = Core()
    submitted(core)
    core.handle([ProcessStarted(1, 1, 0, 3.0, "h2")], now=3.0)
    core.handle([AttemptWaits(1, 1, "connecting")], now=4.0)
    assert core.jobs[1].state is State.RUNNING
    core.handle([AttemptWaits(1, 1, "in the queue again", again=True)], now=5.0)
    assert view(core.jobs[1])["state"] == "queued"
    core.handle([ProcessStarted(1, 1, 0, 6.0, "h3")], now=6.0)
    shown = view(core.jobs[1])
    assert (shown["state"], shown["machines"], shown["attempt"]) == ("running", ["h3"], 1)


def test_stop_is_an_order_to_the_cluster() -> None:
    core = Core()
    submitted(core)
    step = core.handle([StopAsked((1,))], now=2.0)
    assert isinstance(step.orders[0], StopAttempt)
    step = core.handle([ProcessEnded(1, 1, 0, Ending(cause="void"))], now=3.0)
    assert step.changed[1].state is State.STOPPED


def test_failed_job_is_handed_over_again_while_it_has_tries() -> None:
    core = Core()
    submitted(core, retries=1)
    step = core.handle([ProcessEnded(1, 1, 0, Ending(code=3))], now=3.0)
    start = step.orders[-1]
    assert isinstance(start, StartAttempt)
    assert start.job.attempt is not None
    assert start.job.attempt.number == 2
    step = core.handle([ProcessEnded(1, 2, 0, Ending(code=3))], now=4.0)
    assert step.changed[1].state is State.FAILED
    again = core.handle([RetryAsked(((step.changed[1], parse_request("[]")),))], now=5.0)
    assert isinstance(again.orders[0], StartAttempt)


def test_new_engine_looks_for_what_was_handed_over() -> None:
    before = Core()
    submitted(before)
    core = Core()
    step = core.handle([Recovered(((before.jobs[1], parse_request("[]")),))], now=9.0)
    assert [type(order) for order in step.orders] == [FindAttempt]
    core.scheduler.check_invariants()
