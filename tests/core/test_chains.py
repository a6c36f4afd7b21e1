"""Chains: a job waits for others, goes on when they ended as they were to, or is skipped."""

import random

import pytest

from builders import a_machine
from towline.core.chains import Chains
from towline.core.decide import Core
from towline.core.step import Step
from towline.model.events import (
    BatchHeld,
    MachineSeen,
    ProcessEnded,
    ProcessStarted,
    Recovered,
    RetryAsked,
    StartAttempt,
    StopAsked,
    Submitted,
    UnitEnded,
)
from towline.model.grammar import parse_request
from towline.model.job import Awaited, Ending, Job, JobSpec, State, Unit
from towline.model.journal import Kind
from towline.model.names import ANY, FAILED, OK
from towline.model.reason import NO_REASON, Reason, because_of

REQUEST = parse_request("[]")


class World:
    """A core with one machine, and a store that remembers what ended."""

    def __init__(self) -> None:
        self.rows: dict[int, Job] = {}
        self.batches: dict[str, State | None] = {}
        self.core = self.new_core()

    def new_core(self) -> Core:
        self.core = Core(became=self.became)
        self.handle(MachineSeen(a_machine(cpus=1000)))
        return self.core

    def became(self, unit: Unit) -> State | None:
        if isinstance(unit, str):
            return self.batches[unit]
        return self.rows[unit].state if self.rows[unit].state.final else None

    def handle(self, *facts: object) -> Step:
        step = self.core.handle(list(facts), now=1.0)  # type: ignore[arg-type]
        assert not step.failures
        self.rows.update(step.changed)
        return step

    def submit(self, job: int, *after: Awaited) -> Step:
        spec = JobSpec(argv=("true",), cluster="lab", owner="anna", after=after)
        return self.handle(Submitted(job, spec, REQUEST))

    def end(self, job: int, code: int = 0) -> Step:
        return self.handle(ProcessStarted(job, 1, 0, 1.0), self.ended(job, code))

    def ended(self, job: int, code: int = 0) -> ProcessEnded:
        return ProcessEnded(job, 1, 0, Ending(code=code, started=1.0, ended=2.0))

    def states(self) -> dict[int, str]:
        return {number: job.state.value for number, job in self.rows.items()}


def started(step: Step) -> list[int]:
    return [order.job.id for order in step.orders if isinstance(order, StartAttempt)]


def after(*jobs: int, when: str = OK) -> tuple[Awaited, ...]:
    return tuple(Awaited(when, job=job) for job in jobs)


def test_a_job_begins_when_all_that_it_is_to_run_after_ended_well() -> None:
    world = World()
    world.submit(1), world.submit(2)
    assert started(world.submit(3, *after(1, 2))) == []
    assert world.states()[3] == "waiting"
    assert world.core.scheduler.waiting_count == 0
    assert started(world.end(1)) == []
    step = world.end(2)
    assert started(step) == [3]
    assert Kind.RELEASED in [told.kind for told in step.told]


@pytest.mark.parametrize(
    ("when", "code", "state"),
    [
        (OK, 0, "starting"),
        (OK, 1, "skipped"),
        (ANY, 0, "starting"),
        (ANY, 1, "starting"),
        (FAILED, 0, "skipped"),
        (FAILED, 1, "starting"),
    ],
)
def test_how_it_must_end_decides(when: str, code: int, state: str) -> None:
    for ended_before in (False, True):
        world = World()
        world.submit(1)
        if ended_before:
            world.end(1, code)
        world.submit(2, *after(1, when=when))
        if not ended_before:
            world.end(1, code)
        assert world.states()[2] == state


def test_what_was_skipped_says_because_of_what_and_skips_what_follows() -> None:
    world = World()
    world.submit(1)
    world.submit(2, *after(1))
    world.submit(3, *after(2))
    world.submit(4, *after(2, when=ANY))
    world.submit(5, *after(2, when=FAILED))
    step = world.end(1, code=3)
    assert world.states() == {1: "failed", 2: "skipped", 3: "skipped", 4: "starting", 5: "starting"}
    assert world.rows[2].reason == because_of(1, "failed")
    assert world.rows[3].reason == because_of(2, "skipped")
    assert [told.job.id for told in step.told if told.kind == Kind.ENDED] == [1, 2, 3]
    assert not world.core.chains


def test_an_end_and_a_submission_in_one_turn_are_not_missed() -> None:
    world = World()
    world.submit(1)
    spec = JobSpec(argv=("true",), cluster="lab", owner="anna", after=after(1))
    step = world.handle(world.ended(1), Submitted(2, spec, REQUEST))
    assert started(step) == [2]


def test_a_waiting_job_that_is_stopped_lets_those_go_that_wait_for_it() -> None:
    world = World()
    world.submit(1)
    world.submit(2, *after(1))
    world.submit(3, *after(2, when=ANY))
    step = world.handle(StopAsked((2,)))
    assert started(step) == [3]
    assert world.states()[2] == "stopped"
    world.end(1)
    assert world.states()[2] == "stopped"


def test_a_restart_goes_on_where_it_was_and_hears_of_ends_in_between() -> None:
    world = World()
    world.submit(1)
    world.submit(2, *after(1))
    world.submit(3, *after(2))
    one_done = world.rows | {1: world.core.handle([world.ended(1)], 1.0).changed[1]}
    for rows, expected in ((dict(world.rows), []), (one_done, [2])):
        world.rows = dict(rows)
        world.new_core()
        unfinished = [job for job in rows.values() if not job.state.final]
        step = world.handle(Recovered(tuple((job, REQUEST) for job in unfinished)))
        assert started(step) == expected
        assert 3 in world.core.chains


def test_a_skipped_job_that_is_retried_waits_again() -> None:
    world = World()
    world.submit(1)
    world.submit(2, *after(1))
    world.end(1, code=1)
    world.handle(RetryAsked(((world.rows[1], REQUEST), (world.rows[2], REQUEST))))
    assert (world.states()[2], world.rows[2].reason) == ("waiting", NO_REASON)
    step = world.handle(ProcessStarted(1, 2, 0, 1.0), ProcessEnded(1, 2, 0, Ending(code=0)))
    assert started(step) == [2]


def test_a_batch_waits_as_a_whole_and_is_waited_for_as_a_whole() -> None:
    world = World()
    world.batches = {"first": None, "second": None}
    world.submit(1, Awaited(OK, batch="first"))
    assert world.handle(BatchHeld("second", after(1))).chained == []
    step = world.handle(UnitEnded("first", State.DONE))
    assert (started(step), step.chained) == ([1], [])
    assert world.end(1).chained == [("second", None)]
    world.batches["first"] = State.FAILED
    step = world.handle(BatchHeld("third", (Awaited(OK, batch="first"),)))
    assert step.chained == [("third", because_of("first", "failed"))]


def test_any_order_of_ends_decides_each_once_and_leaves_nothing_behind() -> None:
    chance = random.Random(7)
    for _ in range(200):
        count = chance.randint(2, 12)
        afters = {
            job: {
                other: chance.choice((OK, ANY, FAILED))
                for other in range(job)
                if chance.random() < 0.4
            }
            for job in range(count)
        }
        chains, became, decided = Chains(), dict[Unit, State](), dict[Unit, bool]()
        ready: list[Unit] = []

        def decide(
            job: Unit,
            never: Reason | None,
            decided: dict[Unit, bool] = decided,
            ready: list[Unit] = ready,
        ) -> None:
            assert job not in decided
            decided[job] = never is None
            ready.append(job)

        for job, waits in afters.items():
            wanted = [Awaited(when, job=other) for other, when in waits.items()]
            never = chains.join(job, wanted, became.get)
            if job not in chains:
                decide(job, never)
            while ready and chance.random() < 0.5:
                end_one(chance, ready, decided, became, chains, decide)
        while ready:
            end_one(chance, ready, decided, became, chains, decide)
        assert decided.keys() == afters.keys()
        assert not chains and not chains._followers
        for job, waits in afters.items():
            met = [w == ANY or (became[o] == State.DONE) == (w == OK) for o, w in waits.items()]
            assert decided[job] == all(met)


def end_one(chance, ready, decided, became, chains, decide) -> None:  # type: ignore[no-untyped-def]
    job = ready.pop(chance.randrange(len(ready)))
    ran = chance.choice((State.DONE, State.FAILED))
    became[job] = ran if decided[job] else State.SKIPPED
    for other, never in chains.ended(job, became[job]):
        decide(other, never)


def test_an_end_costs_what_follows_it_and_not_how_many_wait() -> None:
    chains = Chains()
    for number in range(1, 10_000):
        chains.join(10_000 + number, [Awaited(OK, job=number)], lambda unit: None)
    assert chains.ended(5, State.DONE) == [(10_005, None)]
    assert 5 not in chains._followers and len(chains.waiters()) == 9_998
