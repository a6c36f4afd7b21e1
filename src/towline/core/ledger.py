"""Every job that has not ended: how one is entered, made to wait for others, and forgotten."""

from collections.abc import Callable
from typing import Any

from towline.core import jobs
from towline.core.chains import Chains
from towline.core.scheduling.bucket import as_waiting
from towline.core.scheduling.scheduler import Scheduler
from towline.core.step import Step
from towline.model.events import BatchHeld, StartAttempt, UnitEnded
from towline.model.job import Job, State, Unit
from towline.model.journal import Kind
from towline.model.reason import Reason
from towline.model.request import Request


def _never_heard_of(unit: Unit) -> State | None:
    return State.LOST


class Ledger:
    """What the core knows of jobs, and where each goes next."""

    def __init__(
        self, new_token: Callable[[], str], became: Callable[[Unit], State | None] | None
    ) -> None:
        self.scheduler = Scheduler(lambda job_id: self.jobs[job_id].spec.snapshot)
        #: Gives each attempt the part of its keys that is random: chance comes from outside.
        self._new_token = new_token
        #: What became of jobs and batches that are not here; None: they have not ended.
        self._became = became or _never_heard_of
        #: Every job that has not ended.
        self.jobs: dict[int, Job] = {}
        self._requests: dict[int, Request] = {}
        #: Those of them, and those batches, that wait for others.
        self.chains = Chains()

    def _keep(self, job: Job, step: Step, why: Kind | None = None, **data: Any) -> None:
        step.was(job.id, self.jobs.get(job.id))
        self.jobs[job.id] = job
        step.changed[job.id] = job
        if why is not None:
            step.tell(job, why, **data)

    def _forget(self, job: Job, step: Step) -> None:
        step.was(job.id, self.jobs.pop(job.id, None))
        self._requests.pop(job.id, None)
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
        """Into its queue, unless it is to run after others: then it waits, or is skipped."""
        if not job.spec.after or job.spec.batch:
            self._enqueue(job, why, step)
            return
        never = self.chains.join(job.id, job.spec.after, lambda unit: self._end_of(unit, step))
        if job.id in self.chains:
            self._keep(jobs.held(job), step, why)
        elif never is None:
            self._enqueue(job, why, step)
        else:
            self._keep(job, step, why)
            self._skip(job, never, now, step)

    def _held_again(self, job: Job, now: float, step: Step) -> None:
        """After a restart: what it waits for may have ended just before."""
        never = self.chains.join(job.id, job.spec.after, lambda unit: self._end_of(unit, step))
        if job.id not in self.chains:
            self._go_on(job.id, never, now, step)

    def _batch_held(self, fact: BatchHeld, now: float, step: Step) -> None:
        never = self.chains.join(fact.name, fact.after, lambda unit: self._end_of(unit, step))
        if fact.name not in self.chains:
            step.chained.append((fact.name, never))

    def _unit_ended(self, fact: UnitEnded, now: float, step: Step) -> None:
        self.chains.leave(fact.unit)
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

    def _go_on(self, waiter: Unit, never: Reason | None, now: float, step: Step) -> None:
        if isinstance(waiter, str):
            step.chained.append((waiter, never))
        elif never is not None:
            self._skip(self.jobs[waiter], never, now, step)
        else:
            self._enqueue(jobs.released(self.jobs[waiter]), Kind.RELEASED, step)

    def _skip(self, job: Job, never: Reason, now: float, step: Step) -> None:
        skipped = jobs.skipped(job, never, now)
        self._forget(skipped, step)
        step.tell(skipped, Kind.ENDED)
