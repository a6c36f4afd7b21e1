"""Chains within one queue: who is handed over before what it waits for has ended, and what then."""

from msgspec.structs import replace

from core.test_chains import World, after, started
from towline.core.step import Step
from towline.model.events import (
    BatchHeld,
    Fed,
    FindAttempt,
    Follow,
    FollowAttempt,
    Order,
    ProcessEnded,
    ProcessStarted,
    Recovered,
    StopAsked,
    StopAttempt,
    Submitted,
)
from towline.model.grammar import parse_request
from towline.model.job import Awaited, Ending, Job, JobSpec, Queueing, State, standing
from towline.model.names import ANY, OK
from towline.model.reason import because_of

REQUEST = parse_request("[]")
SLURM = Queueing("slurm")


class Site(World):
    """The same with clusters that have queues of their own."""

    def submit(self, job: int, *after: Awaited, cluster: str = "cedar", retries: int = 0) -> Step:
        return self.handle(Submitted(job, spec(cluster, after, retries), REQUEST))

    def fail(self, job: int, attempt: int = 1) -> Step:
        ending = Ending(code=3, started=1.0, ended=2.0)
        return self.handle(ProcessEnded(job, attempt, 0, ending))


def spec(cluster: str, after: tuple[Awaited, ...], retries: int = 0, batch: str = "") -> JobSpec:
    queue = None if cluster == "lab" else SLURM
    return JobSpec(
        ("true",), cluster, "anna", after=after, retries=retries, queue=queue, batch=batch
    )


def followed(step: Step) -> list[tuple[int, tuple[Follow, ...] | None]]:
    return [(one.job.id, one.follows) for one in step.orders if isinstance(one, FollowAttempt)]


def keys(step: Step) -> list[tuple[int, list[tuple[int, int, bool]]]]:
    """Who follows which attempts, and whether each is the last."""
    return [
        (job, [(a.job, a.attempt.number, a.last) for one in follows or () for a in one.attempts])
        for job, follows in followed(step)
    ]


def orders_of(step: Step, kind: type[Order]) -> list[int]:
    return [one.job.id for one in step.orders if isinstance(one, kind)]


def test_what_follows_others_of_the_same_queue_is_handed_over_at_once() -> None:
    site = Site()
    site.submit(1)
    step = site.submit(2, *after(1))
    assert (keys(step), started(step)) == ([(2, [(1, 1, True)])], [2])
    assert isinstance(step.orders[0], FollowAttempt), "what it follows is said before it starts"
    assert standing(site.rows[2]) == "waiting"
    assert keys(site.submit(3, *after(1, 2))) == [(3, [(1, 1, True), (2, 1, True)])]
    step = site.end(1)
    assert (followed(step)[0], keys(step)[1]) == ((2, ()), (3, [(2, 1, True)]))
    assert standing(site.rows[2]) == "queued"
    assert not started(step)


def test_what_is_elsewhere_is_waited_for_here_until_the_rest_is_in_one_queue() -> None:
    site = Site()
    site.submit(1, cluster="lab"), site.submit(2), site.submit(3, cluster="msc")
    assert not started(site.submit(4, *after(1, 2)))
    assert site.states()[4] == "waiting"
    assert not started(site.submit(5, *after(3)))
    step = site.end(1)
    assert (keys(step), started(step)) == ([(4, [(2, 1, True)])], [4])
    assert started(site.end(3)) == [5]


def test_what_never_can_come_true_is_taken_out_of_the_queue_and_skipped() -> None:
    site = Site()
    site.submit(1), site.submit(2, *after(1)), site.submit(3, *after(2))
    step = site.fail(1)
    assert orders_of(step, StopAttempt) == [2]
    never_began = Ending(cause="cancelled", text="cancelled in Slurm")
    site.handle(ProcessEnded(2, 1, 0, never_began))
    assert site.rows[2].reason == because_of(1, "failed")
    site.handle(ProcessEnded(3, 1, 0, never_began))
    assert [site.states()[job] for job in (2, 3)] == ["skipped", "skipped"]
    assert site.rows[3].reason == because_of(2, "skipped")


def test_what_its_node_skipped_is_skipped_whoever_hears_of_it_first() -> None:
    site = Site()
    site.submit(1), site.submit(2, *after(1))
    skipped = Ending(cause="skipped", because=because_of(1, "failed"))
    site.handle(ProcessEnded(2, 1, 0, skipped))
    assert (site.states()[2], site.rows[2].reason) == ("skipped", because_of(1, "failed"))
    site.fail(1)
    assert not site.core.chains and not site.core.jobs


def test_what_began_there_goes_on_though_we_hear_of_the_others_later() -> None:
    site = Site()
    site.submit(1), site.submit(2, *after(1))
    site.handle(ProcessStarted(2, 1, 0, 1.0))
    assert standing(site.rows[2]) == "running"
    assert not followed(site.end(1))
    assert site.end(2) and site.states()[2] == "done"


def test_another_attempt_of_what_is_followed_is_followed_instead() -> None:
    site = Site()
    site.submit(1, retries=1)
    assert keys(site.submit(2, *after(1))) == [(2, [(1, 1, False)])]
    step = site.fail(1)
    assert keys(step) == [(2, [(1, 2, True)])]
    assert started(step) == [1]


def test_a_restart_says_again_what_is_followed_and_lets_go_what_is_free() -> None:
    site = Site()
    site.submit(1), site.submit(2, *after(1)), site.submit(3, *after(2, when=ANY))
    unfinished = [(site.rows[job], REQUEST) for job in (1, 2, 3)]
    site.new_core()
    step = site.handle(Recovered(tuple(unfinished)))
    assert keys(step) == [(2, [(1, 1, True)]), (3, [(2, 1, True)])]
    assert orders_of(step, FindAttempt) == [1, 2, 3]
    site.rows[1] = replace(site.rows[1], state=State.FAILED)
    site.new_core()
    step = site.handle(Recovered(tuple(unfinished[1:])))
    assert orders_of(step, StopAttempt) == [2]
    assert site.states()[2] == "stopping"


def test_jobs_of_a_batch_follow_and_are_followed() -> None:
    site = Site()
    lines = {10: State.QUEUED, 11: State.QUEUED}
    site.core = type(site.core)(became=site.became, lines=lambda name: lines)
    site.submit(1)
    step = site.handle(BatchHeld("sweep", after(1), cluster="cedar"))
    assert (step.followed, step.chained) == (["sweep"], [])
    site.batches["sweep"] = None
    site.submit(2, Awaited(OK, batch="sweep"))
    assert site.states()[2] == "waiting", "nothing of the batch is in the queue"
    fed = [Job(n, spec("cedar", after(1), batch="sweep"), State.QUEUED) for n in lines]
    step = site.handle(Fed(tuple((job, REQUEST) for job in fed)))
    assert keys(step)[:2] == [(10, [(1, 1, True)]), (11, [(1, 1, True)])]
    assert keys(step)[2] == (2, [(10, 1, True), (11, 1, True)])
    step = site.end(1)
    assert (followed(step), step.chained) == ([(10, ()), (11, ())], [("sweep", None)])


def test_one_that_is_stopped_while_it_follows_is_stopped() -> None:
    site = Site()
    site.submit(1), site.submit(2, *after(1))
    assert orders_of(site.handle(StopAsked((2,))), StopAttempt) == [2]
    site.handle(ProcessEnded(2, 1, 0, Ending(cause="void")))
    site.fail(1)
    assert site.states()[2] == "stopped"
