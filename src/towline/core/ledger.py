"""Every job that has not ended: how one is entered, made to wait for others, and forgotten."""

from collections.abc import Callable, Iterable
from typing import Any

from towline.core import jobs
from towline.core.chains import Chains
from towline.core.gates import Gates
from towline.core.scheduling.bucket import as_waiting
from towline.core.scheduling.scheduler import Scheduler
from towline.core.step import Step
from towline.model.events import BatchHeld, HoldAsked, StartAttempt, UnitEnded
from towline.model.job import Awaited, Job, State, Unit
from towline.model.journal import Kind
from towline.model.reason import HELD, Reason
from towline.model.request import Request


def tree_of(job: Job) -> str:
    """What a job starts from: what is to be brought to its machine first."""
    spec = job.spec
    return f"{spec.keep[:8]}{spec.snapshot[:8]}" if spec.keep else spec.snapshot


def _never_heard_of(unit: Unit) -> State | None:
    return State.LOST


class Ledger:
    """What the core knows of jobs, and where each goes next."""

    def __init__(
        self, new_token: Callable[[], str], became: Callable[[Unit], State | None] | None
    ) -> None:
        self.scheduler = Scheduler(lambda job_id: tree_of(self.jobs[job_id]))
        #: Gives each attempt the part of its keys that is random: chance comes from outside.
        self._new_token = new_token
        #: What became of jobs and batches that are not here; None: they have not ended.
        self._became = became or _never_heard_of
        #: Every job that has not ended.
        self.jobs: dict[int, Job] = {}
        self._requests: dict[int, Request] = {}
        #: Those of them, and those batches, that wait for others.
        self.chains = Chains()
        #: Those that somebody holds, or that begin at a time.
        self.gates = Gates()

    def _keep(self, job: Job, step: Step, why: Kind | None = None, **data: Any) -> None:
        step.was(job.id, self.jobs.get(job.id))
        self.jobs[job.id] = job
        step.changed[job.id] = job
        if why is not None:
            step.tell(job, why, **data)

    def _forget(self, job: Job, step: Step) -> None:
        step.was(job.id, self.jobs.pop(job.id, None))
        self._requests.pop(job.id, None)
        self.gates.leave(job.id)
        step.changed[job.id] = job

    def _enqueue(self, job: Job, why: Kind, step: Step) -> None:
        self._keep(job, step, why)
        self._queue(job, step)

    def _queue(self, job: Job, step: Step) -> None:
        """Into our own queue, or at once to a cluster that has one itself."""
        if job.spec.queue is None:
            self.scheduler.submit(as_waiting(job, self._requests[job.id]))
            return
        job = jobs.handed_over(job, self._requests[job.id].process_count, self._new_token())
        self._keep(job, step, Kind.HANDED_OVER)
        step.orders.append(StartAttempt(job))

    # --- chains ------------------------------------------------------------------------------

    def _admit(self, job: Job, why: Kind, now: float, step: Step) -> None:
        """Into its queue, unless it is to run after others: then it waits, or is skipped; or later,
        or when it is let go."""
        spec = job.spec
        if spec.batch or not (spec.after or spec.hold or spec.begin):
            self._enqueue(job, why, step)
            return
        # Whoever retries it lets it go.
        by_user = spec.hold and why is Kind.SUBMITTED
        never = self._bar(job.id, spec.after, by_user, spec.begin, now, step)
        if never is None and self._is_barred(job.id):
            begin = self.gates.begin_of(job.id)
            self._keep(jobs.held(job, by_user), step, why, **({"begin": begin} if begin else {}))
        elif never is None:
            self._enqueue(job, why, step)
        else:
            self._keep(job, step, why)
            self._skip(job, never, now, step)

    def _bar(
        self,
        unit: Unit,
        after: Iterable[Awaited],
        held: bool,
        begin: float,
        now: float,
        step: Step,
    ) -> Reason | None:
        """Let one wait for whatever it has to; why it never will come true, if it cannot."""
        never = self.chains.join(unit, after, lambda other: self._end_of(other, step))
        if never is None:
            self.gates.shut(unit, held, begin, now)
        return never

    def _is_barred(self, unit: Unit) -> bool:
        return unit in self.chains or unit in self.gates

    def _held_again(self, job: Job, now: float, step: Step) -> None:
        """After a restart: what it waits for may have ended just before."""
        by_user = job.reason == HELD
        never = self._bar(job.id, job.spec.after, by_user, job.spec.begin, now, step)
        if not self._is_barred(job.id):
            self._go_on(job.id, never, now, step)

    def _batch_held(self, fact: BatchHeld, now: float, step: Step) -> None:
        never = self._bar(fact.name, fact.after, fact.held, fact.begin, now, step)
        if not self._is_barred(fact.name):
            step.chained.append((fact.name, never))

    def _hold_asked(self, fact: HoldAsked, now: float, step: Step) -> None:
        for unit in fact.units:
            job = self.jobs.get(unit) if isinstance(unit, int) else None
            if fact.held and job is not None:
                self._hold(job, step)
            elif not fact.held and self.gates.is_held(unit):
                self.gates.let_go(unit)
                if job is not None:
                    self._keep(jobs.held_as_well(job, False), step)
                self._go_on(unit, None, now, step, by="user")

    def _hold(self, job: Job, step: Step) -> None:
        """Somebody keeps back a job of which nothing has begun; of others it is too late."""
        if job.attempt is not None or job.spec.batch:
            return
        if job.state is State.QUEUED:
            self.scheduler.withdraw(job.id)
            self._keep(jobs.held(job, by_user=True), step, Kind.HELD)
        elif job.state is State.WAITING:
            self._keep(jobs.held_as_well(job, True), step, Kind.HELD)
        else:
            return
        self.gates.hold(job.id)

    def _begin_in_time(self, now: float, step: Step) -> None:
        for unit in self.gates.due(now):
            self._go_on(unit, None, now, step, by="time")

    def _unit_ended(self, fact: UnitEnded, now: float, step: Step) -> None:
        self.chains.leave(fact.unit)
        self.gates.leave(fact.unit)
        for waiter, never in self.chains.ended(fact.unit, fact.state):
            self._go_on(waiter, never, now, step)

    def _end_of(self, unit: Unit, step: Step) -> State | None:
        """The final state of a job or a batch; None while it has not ended."""
        if unit in self.jobs:
            return None
        job = step.changed.get(unit) if isinstance(unit, int) else None
        if job is not None:
            return job.state if job.state.final else None
        return self._became(unit)

    def _follow_ends(self, now: float, step: Step) -> None:
        """Let go on, or skip, what waited for jobs that ended in this step."""
        followed: set[int] = set()
        while self.chains:
            ended = [
                job
                for job in step.changed.values()
                if job.state.final and job.id not in followed and job.id not in self.jobs
            ]
            if not ended:
                return
            for job in ended:
                followed.add(job.id)
                self._unit_ended(UnitEnded(job.id, job.state), now, step)

    def _go_on(
        self, waiter: Unit, never: Reason | None, now: float, step: Step, by: str = ""
    ) -> None:
        """One of the things that kept it back does so no more, or never will cease to."""
        if never is None and self._is_barred(waiter):
            return
        self.gates.leave(waiter)
        if isinstance(waiter, str):
            step.chained.append((waiter, never))
        elif never is not None:
            self._skip(self.jobs[waiter], never, now, step)
        else:
            job = jobs.released(self.jobs[waiter])
            self._keep(job, step, Kind.RELEASED, **({"by": by} if by else {}))
            self._queue(job, step)

    def _skip(self, job: Job, never: Reason, now: float, step: Step) -> None:
        skipped = jobs.skipped(job, never, now)
        self._forget(skipped, step)
        step.tell(skipped, Kind.ENDED)
