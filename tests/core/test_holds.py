"""Jobs that somebody holds, and jobs that begin at a time."""

import pytest

from builders import a_machine
from core.test_chains import REQUEST, World, after, started
from towline.core.step import Step
from towline.model.events import (
    BatchHeld,
    HoldAsked,
    MachineSeen,
    Recovered,
    RetryAsked,
    StopAsked,
    Submitted,
    UnitEnded,
)
from towline.model.grammar import parse_request
from towline.model.job import Awaited, JobSpec, State
from towline.model.journal import Kind
from towline.model.names import OK
from towline.model.reason import HELD, NO_REASON


class Later(World):
    """The same world at any time."""

    now = 1.0

    def handle(self, *facts: object) -> Step:
        step = self.core.handle(list(facts), now=self.now)  # type: ignore[arg-type]
        assert not step.failures
        self.rows.update(step.changed)
        return step

    def submit_held(
        self, job: int, *after: Awaited, hold: bool = False, begin: float = 0.0
    ) -> Step:
        spec = JobSpec(
            argv=("true",), cluster="lab", owner="anna", after=after, hold=hold, begin=begin
        )
        return self.handle(Submitted(job, spec, REQUEST))

    def restart(self) -> Step:
        self.new_core()
        unfinished = [job for job in self.rows.values() if not job.state.final]
        return self.handle(Recovered(tuple((job, REQUEST) for job in unfinished)))


def test_a_held_job_begins_when_it_is_let_go_also_after_a_restart() -> None:
    world = Later()
    assert started(world.submit_held(1, hold=True)) == []
    assert (world.states()[1], world.rows[1].reason) == ("waiting", HELD)
    assert started(world.restart()) == []
    assert world.core.holds.is_held(1)
    step = world.handle(HoldAsked((1, 99), held=False))
    assert started(step) == [1]
    assert (world.rows[1].reason, bool(world.core.holds)) == (NO_REASON, False)
    assert [told.data for told in step.told if told.kind == Kind.RELEASED] == [{"by": "user"}]


def test_a_job_begins_at_its_time_and_asks_to_be_woken_for_it() -> None:
    world = Later()
    step = world.submit_held(1, begin=30.0)
    assert (started(step), step.wake_at) == ([], 30.0)
    world.now = 29.0
    assert started(world.restart()) == []
    world.now = 30.0
    assert started(world.handle()) == [1]
    world.submit_held(2, begin=20.0)
    assert world.states()[2] == "starting", "its time has come already"


def test_a_time_far_away_is_looked_at_again_and_again() -> None:
    world = Later()
    assert world.submit_held(1, begin=1e6).wake_at == 61.0


def test_others_a_hold_and_a_time_must_all_be_over() -> None:
    for order in (("end", "go", "time"), ("time", "end", "go"), ("go", "time", "end")):
        world = Later()
        world.submit(1)
        world.submit_held(2, *after(1), hold=True, begin=10.0)
        for place, what in enumerate(order):
            if what == "end":
                step = world.end(1)
            elif what == "go":
                step = world.handle(HoldAsked((2,), held=False))
            else:
                world.now = 10.0
                step = world.handle()
            assert started(step) == ([2] if place == 2 else []), order


def test_what_can_never_begin_is_skipped_although_it_is_held() -> None:
    world = Later()
    world.submit(1)
    world.submit_held(2, *after(1), hold=True)
    world.end(1, code=1)
    assert world.states()[2] == "skipped" and not world.core.holds
    world.submit_held(3, *after(1), hold=True)
    assert world.states()[3] == "skipped" and not world.core.holds


def test_a_held_job_that_is_stopped_stays_so_and_a_retry_lets_it_go() -> None:
    world = Later()
    world.submit_held(1, hold=True)
    world.handle(StopAsked((1,)))
    assert world.states()[1] == "stopped" and not world.core.holds
    assert started(world.handle(RetryAsked(((world.rows[1], REQUEST),)))) == [1]


def test_a_queued_job_can_be_held_and_a_running_one_cannot() -> None:
    world = Later()
    huge = parse_request("[cpus=2000]")
    spec = JobSpec(argv=("true",), cluster="lab", owner="anna")
    world.handle(Submitted(1, spec, huge))
    world.submit(2)
    world.handle(HoldAsked((1, 2), held=True))
    assert world.states() == {1: "waiting", 2: "starting"}
    assert world.core.scheduler.waiting_count == 0
    world.handle(MachineSeen(a_machine(name="big", cpus=4000)))
    assert world.states()[1] == "waiting"
    assert started(world.handle(HoldAsked((1,), held=False))) == [1]


@pytest.mark.parametrize("ended", [False, True])
def test_a_held_batch_waits_as_a_whole(ended: bool) -> None:
    world = Later()
    world.batches = {"first": None, "second": None}
    held = BatchHeld("second", (Awaited(OK, batch="first"),), held=True, begin=5.0)
    assert world.handle(held).chained == []
    assert world.handle(HoldAsked(("second",), held=False)).chained == []
    world.now = 6.0
    assert world.handle().chained == []
    state = State.DONE if ended else State.FAILED
    [(name, never)] = world.handle(UnitEnded("first", state)).chained
    assert (name, never is None) == ("second", ended)
    assert not world.core.holds and not world.core.chains
