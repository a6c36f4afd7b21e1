"""A machine that fails jobs at once, again and again, is set aside; jobs that fail anywhere are not
its fault."""

from typing import Any

from builders import a_machine
from towline.core.decide import Core
from towline.core.health import ASIDE_S, AT_ONCE_S
from towline.core.step import Step
from towline.engine.obstacle_words import obstacle_words, why_aside
from towline.engine.wording import remark_words
from towline.model.events import (
    Fact,
    MachineGone,
    MachineSeen,
    ProcessEnded,
    ProcessStarted,
    StartAttempt,
    Submitted,
)
from towline.model.grammar import parse_request
from towline.model.job import Ending, JobSpec
from towline.model.journal import Kind

BAD = "bad"


class Lab:
    """Three machines of two CPUs each, jobs of one batch, and a clock."""

    def __init__(self, *machines: str, jobs: int = 200, request: str = "[]") -> None:
        self.core = Core()
        self.now = 1000.0
        #: job -> (attempt, machines).
        self.running: dict[int, tuple[int, list[str]]] = {}
        self.remarks: list[str] = []
        self.next_id = 1
        self.handle(*(MachineSeen(a_machine(name, cpus=2.0)) for name in machines))
        self.submit(jobs, request=request)

    def submit(self, count: int, batch: str = "sweep", request: str = "[]") -> None:
        spec = JobSpec(("work",), cluster="lab", owner="me", request=request, batch=batch)
        first, self.next_id = self.next_id, self.next_id + count
        wanted = parse_request(request)
        self.handle(*(Submitted(first + n, spec, wanted) for n in range(count)))

    def handle(self, *facts: Fact) -> Step:
        step = self.core.handle(facts, self.now)
        self.core.scheduler.check_invariants()
        started: list[Fact] = []
        for order in step.orders:
            if isinstance(order, StartAttempt) and order.job.attempt is not None:
                attempt = order.job.attempt
                machines = [slot.machine for slot in attempt.placement]
                self.running[order.job.id] = (attempt.number, machines)
                started += [
                    ProcessStarted(order.job.id, attempt.number, rank, self.now)
                    for rank in range(len(machines))
                ]
        told = [told.data["remark"] for told in step.told if told.kind == Kind.REMARK]
        self.remarks += map(remark_words, told)
        if started:
            self.core.handle(started, self.now)
        return step

    def end(self, job: int, after_s: float = 0.05, code: int = 0, cause: str = "") -> None:
        attempt, machines = self.running.pop(job)
        ending = Ending(code=code, cause=cause, started=self.now - after_s, ended=self.now)
        self.handle(*(ProcessEnded(job, attempt, rank, ending) for rank in range(len(machines))))

    def on(self, machine: str) -> list[int]:
        return [job for job, (_, machines) in self.running.items() if machine in machines]

    def round(self, failing: tuple[str, ...] = (BAD,), **failure: Any) -> None:
        """All that run end, those on some machines badly."""
        self.now += 1
        for job in list(self.running):
            bad = self.running[job][1][0] in failing
            self.end(job, **{"code": 1, **failure} if bad else {})  # type: ignore[arg-type]

    def rounds(self, count: int, failing: tuple[str, ...] = (BAD,), **failure: Any) -> None:
        for _ in range(count):
            self.round(failing, **failure)

    def aside(self, machine: str = BAD) -> str:
        aside = self.core.scheduler.aside(machine)
        return "" if aside is None else why_aside(aside)

    def wait(self, seconds: float) -> Step:
        self.now += seconds
        return self.handle()


def test_a_machine_that_fails_jobs_at_once_is_set_aside_and_said_so() -> None:
    lab = Lab(BAD, "good1", "good2")
    lab.rounds(4)
    assert lab.on(BAD) == [] and lab.on("good1") and lab.on("good2")
    assert len(lab.remarks) == 1
    assert lab.remarks[0].startswith("bad is set aside for 5 min: the last ")
    assert lab.remarks[0].endswith("failed within seconds there, while such jobs do well elsewhere")
    waiting = next(iter(lab.core.scheduler.queue.waiting))
    reasons = lab.core.scheduler.explain(waiting, lab.now).reasons
    assert {obstacle_words(r.obstacles) for r in reasons if BAD in r.machines} == {lab.aside()}


def test_few_jobs_are_lost_to_it() -> None:
    """Even where those on other machines have only begun."""
    lab, lost = Lab(BAD, *(f"good{n}" for n in range(10)), jobs=1000), 0
    while lab.on(BAD):
        lab.now += 0.2
        for job in lab.on(BAD):
            lab.end(job, after_s=0.02, code=1)
            lost += 1
    assert lost <= 10


def test_jobs_that_fail_everywhere_are_to_blame_themselves() -> None:
    lab = Lab(BAD, "good1", "good2")
    lab.rounds(20, failing=(BAD, "good1", "good2"))
    assert not lab.remarks and all(map(lab.on, (BAD, "good1", "good2")))


def test_a_machine_is_not_blamed_for_jobs_that_often_fail_elsewhere() -> None:
    lab = Lab(BAD, "good1", jobs=1000)
    for turn in range(6):
        lab.round(failing=(BAD, "good1") if turn % 2 else (BAD,))
    assert not lab.aside()


def test_the_only_machine_is_never_set_aside() -> None:
    lab = Lab(BAD)
    lab.rounds(20)
    assert not lab.aside() and lab.on(BAD)


def test_one_that_ends_well_clears_the_machine() -> None:
    lab = Lab(BAD, "good1")
    for turn in range(20):
        lab.round(failing=() if turn % 2 else (BAD,))
    assert not lab.aside()


def test_slow_failures_are_not_held_against_the_machine() -> None:
    lab = Lab(BAD, "good1")
    lab.rounds(20, after_s=AT_ONCE_S + 1)
    assert not lab.aside()


def test_stops_time_limits_and_losses_do_not_count() -> None:
    for cause in ("stopped", "timeout", "void", "lost", "oom"):
        lab = Lab(BAD, "good1")
        lab.rounds(10, cause=cause)
        assert not lab.aside(), cause


def test_a_missing_program_or_a_full_disk_counts() -> None:
    for cause in ("not_found", "no_space", "setup", "snapshot"):
        lab = Lab(BAD, "good1", "good2")
        lab.rounds(10, cause=cause)
        assert lab.aside(), cause


def test_after_some_minutes_one_job_tries_it_and_opens_it_again() -> None:
    lab = Lab(BAD, "good1", "good2")
    lab.rounds(4)
    assert lab.wait(1).wake_at is not None
    assert lab.on(BAD) == []
    lab.wait(ASIDE_S)
    (trial,) = lab.on(BAD)
    assert f"job {trial} tries it" in lab.aside()
    lab.round(failing=())
    assert not lab.aside() and len(lab.on(BAD)) > 1
    assert lab.remarks[-1] == "bad does well again and is used as before"


def test_a_trial_that_runs_on_opens_it_as_well() -> None:
    lab = Lab(BAD, "good1", "good2")
    lab.rounds(4)
    step = lab.wait(ASIDE_S)
    assert len(lab.on(BAD)) == 1
    step = lab.wait(1)
    assert step.wake_at == lab.now - 1 + AT_ONCE_S
    lab.wait(AT_ONCE_S)
    assert not lab.aside() and len(lab.on(BAD)) > 1


def test_a_trial_that_fails_sets_it_aside_for_twice_as_long() -> None:
    lab = Lab(BAD, "good1", "good2")
    lab.rounds(4)
    lab.wait(ASIDE_S)
    lab.round()
    assert lab.aside().startswith("is set aside for 10 min")
    lab.wait(ASIDE_S + 1)
    assert lab.on(BAD) == []
    lab.wait(ASIDE_S)
    lab.round()
    assert lab.aside().startswith("is set aside for 20 min")


def test_a_trial_that_is_stopped_is_no_trial() -> None:
    lab = Lab(BAD, "good1", "good2")
    lab.rounds(4)
    lab.wait(ASIDE_S)
    (trial,) = lab.on(BAD)
    lab.end(trial, cause="stopped", code=143)
    (another,) = lab.on(BAD)
    assert another != trial


def test_a_trial_by_a_job_that_fails_everywhere_is_no_trial() -> None:
    lab = Lab(BAD, "good1", "good2", jobs=40)
    lab.rounds(4)
    assert lab.aside()
    while lab.running:
        lab.round()
    lab.submit(300, batch="broken")
    lab.rounds(3, failing=("good1", "good2"))
    lab.wait(ASIDE_S)
    lab.rounds(3, failing=(BAD, "good1", "good2"))
    assert "tries it" in lab.aside() and "10 min" not in lab.aside()


def test_a_machine_that_was_away_is_tried_at_once() -> None:
    lab = Lab(BAD, "good1", "good2")
    lab.rounds(4)
    lab.handle(MachineGone(BAD))
    lab.handle(MachineSeen(a_machine(BAD, cpus=2.0)))
    assert len(lab.on(BAD)) == 1


def test_a_machine_is_used_again_when_jobs_turn_out_to_fail_elsewhere_too() -> None:
    lab = Lab(BAD, "slow1", "slow2")
    for _ in range(5):
        lab.now += 0.2
        for job in lab.on(BAD):
            lab.end(job, after_s=0.02, code=1)
    assert lab.aside()
    for job in lab.on("slow1") + lab.on("slow2"):
        lab.end(job, after_s=1, code=1)
    assert not lab.aside() and lab.on(BAD)


def test_of_a_job_with_several_processes_only_the_machine_that_failed_is_blamed() -> None:
    lab = Lab(BAD, "good1", "good2", jobs=0)
    for _ in range(8):
        lab.submit(1, request="3:[cpus=3]")
        (job,) = lab.running
        attempt, machines = lab.running.pop(job)
        lab.now += 1
        for rank, machine in enumerate(machines):
            ending = Ending(code=1, started=lab.now - 1, ended=lab.now)
            if machine != BAD:
                ending = Ending(signal=15, cause="stopped", started=lab.now - 1, ended=lab.now)
            lab.handle(ProcessEnded(job, attempt, rank, ending))
        lab.submit(1, request="2:[cpus=2]")
    assert not lab.core.scheduler.aside("good1") and not lab.core.scheduler.aside("good2")
