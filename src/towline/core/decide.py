"""The one door to the core: `handle(facts, now) -> Step`.

A step says which jobs changed (to be written in one transaction), what to tell about them, and what
to do once that is written. Orders are given only after the transaction: an attempt is on disk
before anything of it can start, so a crash in between can at worst start it again, and starting
twice is starting once (the agent sees to that).
"""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct, field

from towline.core import jobs
from towline.core.scheduler import Scheduler, Waiting
from towline.model.events import (
    Conclude,
    Fact,
    FindAttempt,
    MachineGone,
    MachineRemoved,
    MachineSeen,
    Order,
    ProcessEnded,
    ProcessStarted,
    Recovered,
    RetryAsked,
    StartAttempt,
    StopAsked,
    StopAttempt,
    Submitted,
)
from towline.model.job import Attempt, Job, State
from towline.model.request import Request


class Step(Struct):
    """What one turn of the loop decided."""

    changed: dict[int, Job] = field(default_factory=dict)
    #: Those of them that were submitted in this very step.
    fresh: set[int] = field(default_factory=set)
    #: (job, sentence) for the history that `tow show` prints.
    told: list[tuple[int, str]] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)
    #: Attempts that will be followed by another.
    past: list[tuple[int, Attempt]] = field(default_factory=list)


class Core:
    """All jobs that have not ended, and the scheduler that places them."""

    def __init__(self) -> None:
        self.scheduler = Scheduler()
        #: Every job that has not ended.
        self.jobs: dict[int, Job] = {}
        self._requests: dict[int, Request] = {}
        #: job -> ranks of the present attempt that have started.
        self._started: dict[int, set[int]] = {}
        self._handlers: dict[type, Callable[[Any, float, Step], None]] = {
            Submitted: self._submitted,
            StopAsked: self._stop_asked,
            RetryAsked: self._retry_asked,
            Recovered: self._recovered,
            MachineSeen: lambda fact, now, step: self.scheduler.see(fact.machine),
            MachineGone: lambda fact, now, step: self.scheduler.gone(fact.name),
            MachineRemoved: lambda fact, now, step: self.scheduler.remove(fact.name),
            ProcessStarted: self._process_started,
            ProcessEnded: self._process_ended,
        }

    def handle(self, facts: Sequence[Fact], now: float) -> Step:
        step = Step()
        for fact in facts:
            self._handlers[type(fact)](fact, now, step)
        self._place(now, step)
        return step

    # --- what people ask ---------------------------------------------------------------------

    def _submitted(self, fact: Submitted, now: float, step: Step) -> None:
        job = jobs.accepted(fact.id, fact.spec, now)
        self._requests[job.id] = fact.request
        self._enqueue(job, step)
        step.fresh.add(job.id)
        step.told.append((job.id, "submitted"))

    def _stop_asked(self, fact: StopAsked, now: float, step: Step) -> None:
        for job_id in fact.ids:
            job = self.jobs.get(job_id)
            if job is None or job.stop_asked:
                continue
            job = jobs.stop_asked(job, now)
            if job.state.final:
                self.scheduler.withdraw(job_id)
                self._forget(job, step)
                step.told.append((job_id, job.reason))
            else:
                self._keep(job, step)
                step.told.append((job_id, "stop was asked for"))
                step.orders.append(StopAttempt(job))

    def _retry_asked(self, fact: RetryAsked, now: float, step: Step) -> None:
        for ended, request in fact.jobs:
            if ended.id in self.jobs:
                continue
            self._requests[ended.id] = request
            self._remember_attempt(ended, step)
            self._enqueue(jobs.retried(ended), step)
            step.told.append((ended.id, "retry was asked for"))

    # --- what machines say -------------------------------------------------------------------

    def _recovered(self, fact: Recovered, now: float, step: Step) -> None:
        for job, request in fact.jobs:
            self._requests[job.id] = request
            self.jobs[job.id] = job
            waiting = self._waiting(job)
            if job.state is State.QUEUED:
                self.scheduler.submit(waiting)
                continue
            assert job.attempt is not None
            self.scheduler.adopt(waiting, job.attempt.placement, job.started or now)
            step.orders.append(FindAttempt(job))
            if job.state is State.STOPPING:
                step.orders.append(StopAttempt(job))

    def _process_started(self, fact: ProcessStarted, now: float, step: Step) -> None:
        job = self._current(fact.job, fact.attempt)
        if job is None or job.state is not State.STARTING:
            return
        started = self._started.setdefault(job.id, set())
        started.add(fact.rank)
        if len(started) == self._requests[job.id].process_count:
            self._keep(jobs.running(job, fact.at), step)
            step.told.append((job.id, f"running on {machines_of(job)}"))

    def _process_ended(self, fact: ProcessEnded, now: float, step: Step) -> None:
        job = self._current(fact.job, fact.attempt)
        if job is None or job.attempt is None or fact.rank in job.attempt.endings:
            return
        job = jobs.with_ending(job, fact.rank, fact.ending)
        if len(job.attempt.endings) == len(job.attempt.placement):  # type: ignore[union-attr]
            self._conclude(job, now, step)
            return
        if not fact.ending.ok and job.state is not State.STOPPING:
            job = jobs.stopping_the_rest(job, fact.rank, fact.ending)
            step.told.append((job.id, job.reason))
            step.orders.append(StopAttempt(job))
        self._keep(job, step)

    # --- what follows ------------------------------------------------------------------------

    def _conclude(self, job: Job, now: float, step: Step) -> None:
        self.scheduler.release(job.id, now)
        self._started.pop(job.id, None)
        step.orders.append(Conclude(job))
        job = jobs.concluded(job, now)
        if job.state.final:
            self._forget(job, step)
            step.told.append((job.id, how_it_ended(job)))
        else:
            self._remember_attempt(job, step)
            self._enqueue(job, step)
            step.told.append((job.id, job.reason or "its start was void; waiting again"))

    def _place(self, now: float, step: Step) -> None:
        for placed in self.scheduler.decide(now):
            job = jobs.placed(self.jobs[placed.id], placed.placement)
            self._keep(job, step)
            step.orders.append(StartAttempt(job))
            step.told.append((job.id, f"starting on {machines_of(job)}"))

    def _remember_attempt(self, job: Job, step: Step) -> None:
        if job.attempt is not None:
            step.past.append((job.id, job.attempt))

    def _enqueue(self, job: Job, step: Step) -> None:
        self._keep(job, step)
        self.scheduler.submit(self._waiting(job))

    def _waiting(self, job: Job) -> Waiting:
        return Waiting(
            id=job.id,
            cluster=job.spec.cluster,
            request=self._requests[job.id],
            owner=job.spec.owner,
            priority=job.spec.priority,
            submitted=job.submitted,
            time_s=job.spec.time_s,
            avoid=job.avoid,
        )

    def _current(self, job_id: int, attempt: int) -> Job | None:
        """The job if `attempt` is its present one: words from older attempts are dropped here."""
        job = self.jobs.get(job_id)
        if job is None or job.attempt is None or job.attempt.number != attempt:
            return None
        return None if job.state is State.QUEUED else job

    def _keep(self, job: Job, step: Step) -> None:
        self.jobs[job.id] = job
        step.changed[job.id] = job

    def _forget(self, job: Job, step: Step) -> None:
        self.jobs.pop(job.id, None)
        self._requests.pop(job.id, None)
        step.changed[job.id] = job


def how_it_ended(job: Job) -> str:
    said = job.reason and job.reason != job.state
    return f"{job.state}: {job.reason}" if said else str(job.state)


def machines_of(job: Job) -> str:
    assert job.attempt is not None
    return ", ".join(dict.fromkeys(slot.machine for slot in job.attempt.placement))
