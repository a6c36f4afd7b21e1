"""What becomes of jobs whose machines are silent: given up only to try again, and found again."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import a_machine
from towline.core.decide import Core
from towline.core.step import Step
from towline.model.events import (
    Fact,
    FindAttempt,
    GiveUpAsked,
    MachineGone,
    MachineSeen,
    ProcessEnded,
    ProcessSilent,
    ProcessStarted,
    Recovered,
    StartAttempt,
    StopAsked,
    StopAttempt,
    Submitted,
)
from towline.model.grammar import parse_request
from towline.model.job import SILENT, Attempt, Ending, Job, JobSpec, State
from towline.model.journal import Kind
from towline.model.reason import NO_REASON
from towline.model.request import Request

OK = Ending(code=0, started=1.0, ended=2.0)
STOPPED = Ending(signal=15, cause="stopped", started=1.0, ended=2.0)
LOST = Ending(cause="lost", text="the machine restarted", ended=2.0)
VOID = Ending(cause="void")
JOB = 1


class Lab:
    """A core with two machines, and a store of what it said."""

    def __init__(self, machines: tuple[str, ...] = ("gpu1",), request: str = "[]") -> None:
        self.core = Core()
        self.now = 100.0
        self.orders: list[Any] = []
        self.told: list[str] = []
        self.past: dict[int, Attempt] = {}
        self.last: Job | None = None
        self.request: Request = parse_request(request)
        self.text = request
        for name in machines:
            self.handle(MachineSeen(a_machine(name)))

    def handle(self, *facts: Fact) -> Step:
        self.now += 1.0
        step = self.core.handle(facts, self.now)
        self.orders += step.orders
        self.told += [told.kind for told in step.told]
        self.past |= {attempt.number: attempt for _, attempt in step.past}
        self.last = step.changed.get(JOB, self.last)
        self.core.scheduler.check_invariants()
        return step

    def submit(self, retries: int = 0, ends_together: bool = False) -> None:
        spec = JobSpec(
            ("true",), cluster="lab", owner="me", request=self.text, retries=retries,
            ends_together=ends_together,
        )  # fmt: skip
        self.handle(Submitted(JOB, spec, self.request))

    def start(self, attempt: int = 1, ranks: int = 1) -> None:
        self.handle(*(ProcessStarted(JOB, attempt, rank, at=self.now) for rank in range(ranks)))

    def silent(self, rank: int = 0, attempt: int = 1) -> None:
        self.handle(ProcessSilent(JOB, attempt, rank, "gpu1 has not answered for 1 d"))

    def end(self, ending: Ending, attempt: int = 1, rank: int = 0) -> None:
        self.handle(ProcessEnded(JOB, attempt, rank, ending))

    @property
    def state(self) -> State:
        assert self.last is not None
        return self.last.state

    @property
    def attempt(self) -> int:
        assert self.last is not None and self.last.attempt is not None
        return self.last.attempt.number

    def stopped(self) -> list[int]:
        """The attempts that were to be stopped."""
        return [o.job.attempt.number for o in self.orders if isinstance(o, StopAttempt)]  # type: ignore[union-attr]

    def started(self) -> list[int]:
        return [o.job.attempt.number for o in self.orders if isinstance(o, StartAttempt)]  # type: ignore[union-attr]

    def restarted(self) -> "Lab":
        """The next Engine, with what an Engine's store would have."""
        lab = Lab(())
        lab.last, lab.past, lab.request, lab.text = self.last, self.past, self.request, self.text
        assert self.last is not None
        active = () if self.last.state.final else ((self.last, self.request),)
        given_up = tuple(
            (self.last, attempt, self.request)
            for attempt in self.past.values()
            if attempt.unheard()
        )
        lab.handle(Recovered(active, given_up))
        return lab


def given_up(*others: str) -> Lab:
    """A job with one retry whose machine went silent; `others` could take it."""
    lab = Lab()
    lab.submit(retries=1)
    lab.start()
    lab.handle(MachineGone("gpu1"))
    for name in others:
        lab.handle(MachineSeen(a_machine(name)))
    lab.silent()
    return lab


@pytest.mark.parametrize("started", [True, False])
def test_without_retries_silence_never_ends_a_job(started: bool) -> None:
    lab = Lab(("gpu1", "gpu2"))
    lab.submit()
    if started:
        lab.start()
    before = lab.state
    for _ in range(100):
        lab.silent()
    assert lab.state is before
    assert lab.started() == [1] and not lab.stopped()


def test_with_retries_another_attempt_is_made_and_the_silent_one_is_to_be_stopped() -> None:
    lab = given_up("gpu2")
    assert (lab.state, lab.attempt, lab.started()) == (State.STARTING, 2, [1, 2])
    assert lab.stopped() == [1]
    assert lab.past[1].unheard() == [0]


def test_while_no_other_machine_can_take_it_the_silent_attempt_is_left_alone() -> None:
    lab = given_up()
    assert (lab.state, lab.stopped()) == (State.QUEUED, [])


def test_a_machine_that_is_back_before_another_attempt_was_placed_goes_on_with_its_own() -> None:
    lab = given_up()
    lab.start()
    assert (lab.state, lab.attempt, lab.stopped()) == (State.RUNNING, 1, [])
    assert lab.last is not None and (lab.last.failures, lab.last.reason) == (0, NO_REASON)
    assert not lab.past[1].unheard()
    lab.handle(MachineSeen(a_machine("gpu1")), MachineSeen(a_machine("gpu2")))
    assert lab.started() == [1]
    lab.end(OK)
    assert lab.state is State.DONE


@pytest.mark.parametrize(
    ("ending", "state"), [(OK, State.DONE), (Ending(code=3, started=1.0, ended=2.0), State.QUEUED)]
)
def test_what_ended_meanwhile_ended_as_it_did(ending: Ending, state: State) -> None:
    lab = given_up()
    lab.end(ending)
    assert lab.state is state
    assert not lab.past[1].unheard()


@pytest.mark.parametrize("ending", [LOST, VOID])
def test_what_is_gone_over_there_changes_nothing(ending: Ending) -> None:
    lab = given_up()
    lab.end(ending)
    assert lab.state is State.QUEUED and not lab.past[1].unheard()
    lab.handle(MachineSeen(a_machine("gpu2")))
    assert (lab.attempt, lab.stopped()) == (2, [])


def test_once_another_attempt_is_placed_it_is_the_one_that_counts() -> None:
    lab = given_up("gpu2")
    lab.start(attempt=1)
    lab.end(OK, attempt=1)
    assert (lab.state, lab.attempt) == (State.STARTING, 2)
    assert lab.past[1].endings[0] == OK
    lab.start(attempt=2)
    lab.end(Ending(code=3, started=1.0, ended=2.0), attempt=2)
    assert lab.state is State.FAILED


def test_the_next_engine_still_stops_what_was_given_up() -> None:
    lab = given_up("gpu2")
    lab.start(attempt=2)
    again = lab.restarted()
    found = [o.job.attempt.number for o in again.orders if isinstance(o, FindAttempt)]  # type: ignore[union-attr]
    assert (sorted(found), again.stopped()) == ([1, 2], [1])
    again.end(STOPPED, attempt=1)
    assert again.state is State.RUNNING and not again.past[1].unheard()
    assert not again.restarted().stopped()


def test_the_next_engine_stops_it_even_after_its_job_is_done() -> None:
    lab = given_up("gpu2")
    lab.start(attempt=2)
    lab.end(OK, attempt=2)
    assert lab.state is State.DONE
    assert lab.restarted().stopped() == [1]


def test_the_next_engine_goes_on_with_what_was_given_up_but_not_followed() -> None:
    again = given_up().restarted()
    assert again.stopped() == []
    again.start()
    assert (again.state, again.attempt) == (State.RUNNING, 1)


def test_stopping_a_job_that_waits_again_stops_what_was_given_up_of_it() -> None:
    lab = given_up()
    lab.handle(StopAsked((JOB,)))
    assert (lab.state, lab.stopped()) == (State.STOPPED, [1])
    lab.start()
    assert lab.state is State.STOPPED
    lab.end(STOPPED)
    assert lab.state is State.STOPPED and not lab.past[1].unheard()


def test_a_stop_waits_for_the_machine_and_silence_does_not_end_it() -> None:
    lab = Lab(("gpu1", "gpu2"))
    lab.submit(retries=5)
    lab.start()
    lab.handle(StopAsked((JOB,)))
    lab.silent()
    assert (lab.state, lab.started()) == (State.STOPPING, [1])
    lab.end(STOPPED)
    assert lab.state is State.STOPPED


@pytest.mark.parametrize(
    ("ending", "state"), [(OK, State.DONE), (STOPPED, State.STOPPED), (LOST, State.LOST)]
)
@pytest.mark.parametrize("restarted", [False, True])
def test_a_job_that_a_person_gave_up_is_lost_until_its_machine_says_otherwise(
    ending: Ending, state: State, restarted: bool
) -> None:
    lab = Lab()
    lab.submit()
    lab.start()
    lab.handle(GiveUpAsked(JOB, {0: "given up, because gpu1 does not answer"}))
    assert (lab.state, lab.stopped()) == (State.LOST, [1])
    assert lab.last is not None and lab.last.reason.text == "given up, because gpu1 does not answer"
    lab = lab.restarted() if restarted else lab
    lab.end(ending)
    assert lab.state is state
    assert not lab.past[1].unheard()


@pytest.mark.parametrize("together", [True, False])
def test_the_others_are_stopped_where_a_job_ends_with_its_first_process(together: bool) -> None:
    lab = Lab(("gpu1", "gpu2"), request="2:[cpus=8]")
    lab.submit(ends_together=together)
    lab.start(ranks=2)
    lab.end(OK, rank=1)
    assert lab.stopped() == ([1] if together else [])
    assert lab.state is (State.STOPPING if together else State.RUNNING)
    lab.end(STOPPED if together else OK, rank=0)
    assert lab.state is State.DONE


def test_of_a_gang_the_others_are_stopped_and_the_silent_one_when_it_is_back() -> None:
    lab = Lab(("gpu1", "gpu2"), request="2:[cpus=8]")
    lab.submit(retries=1)
    lab.start(ranks=2)
    lab.silent(rank=0)
    assert (lab.state, lab.stopped()) == (State.STOPPING, [1])
    lab.handle(MachineGone("gpu1"))
    lab.end(STOPPED, rank=1)
    assert lab.state is State.QUEUED and lab.past[1].unheard() == [0]
    lab.handle(ProcessStarted(JOB, 1, 0, at=1.0))
    assert lab.state is State.QUEUED
    lab.end(STOPPED, rank=0)
    assert not lab.past[1].unheard()


def test_a_gang_whose_silent_machine_is_back_before_the_others_have_ended() -> None:
    lab = Lab(("gpu1", "gpu2"), request="2:[cpus=8]")
    lab.submit(retries=1)
    lab.start(ranks=2)
    lab.silent(rank=0)
    lab.end(STOPPED, rank=0)
    assert lab.state is State.STOPPING
    lab.end(STOPPED, rank=1)
    assert lab.attempt == 2 and not lab.past[1].unheard()


MOVES = st.lists(
    st.sampled_from(
        ["silent", "back", "ok", "failed", "stopped", "lost", "void", "gpu2", "away", "stop",
         "give up", "restart"]
    ),
    max_size=25,
)  # fmt: skip
ENDS = {"ok": OK, "failed": Ending(code=3, started=1.0, ended=2.0), "stopped": STOPPED,
        "lost": LOST, "void": VOID}  # fmt: skip


@given(MOVES, st.integers(0, 3))
def test_no_attempt_is_forgotten_while_it_may_run_beside_another(
    moves: list[str], retries: int
) -> None:
    """Whatever happens: an attempt that was not heard to end is the job's own, or one that is
    remembered and, once another is placed or the job has ended otherwise, told to stop."""
    lab = Lab()
    lab.submit(retries=retries)
    lab.start()
    ended: set[int] = set()
    for move in moves:
        assert lab.last is not None and lab.last.attempt is not None
        number = lab.last.attempt.number
        told = set(lab.stopped())
        if move == "silent":
            lab.silent(attempt=number)
        elif move == "back":
            for old in range(1, number + 1):
                if old not in ended and old not in told:
                    lab.start(attempt=old)
        elif move == "gpu2":
            lab.handle(MachineSeen(a_machine("gpu2")))
        elif move == "away":
            lab.handle(MachineGone("gpu2"))
        elif move == "stop":
            lab.handle(StopAsked((JOB,)))
        elif move == "give up":
            lab.handle(GiveUpAsked(JOB, {0: "away"}))
        elif move == "restart":
            lab = lab.restarted()
        else:
            unheard = [old for old in range(1, number + 1) if old not in ended]
            if unheard:
                ended.add(unheard[0])
                lab.end(ENDS[move], attempt=unheard[0])
        assert lab.last is not None and lab.last.attempt is not None
        now = lab.last
        for old in range(1, lab.last.attempt.number + 1):
            if old in ended:
                continue
            mine = old == lab.last.attempt.number and not now.state.final
            own = mine and now.state is not State.QUEUED
            remembered = old in lab.past and bool(lab.past[old].unheard())
            assert own or remembered, (old, now.state, moves)
            if old < lab.last.attempt.number:
                assert old in lab.stopped(), (old, moves)
    assert all(e.cause != SILENT for old in ended for e in _endings(lab, old))


def _endings(lab: Lab, number: int) -> list[Ending]:
    assert lab.last is not None and lab.last.attempt is not None
    known = lab.past.get(number) or lab.last.attempt
    return list(known.endings.values()) if known.number == number else []


def test_that_it_ran_is_told_also_of_what_began_and_ended_while_nobody_listened() -> None:
    lab = Lab()
    lab.submit()
    again = lab.restarted()
    again.end(OK)
    assert (again.state, again.last and again.last.started) == (State.DONE, OK.started)
    assert again.told == [Kind.RUNNING, Kind.ENDED]
    never = Lab()
    never.submit()
    never.end(Ending(cause="not_found", code=127, text="command not found", ended=2.0))
    assert never.state is State.FAILED and Kind.RUNNING not in never.told
