"""Every job that has not ended: how one is entered, made to wait for others, and forgotten."""

from collections.abc import Callable, Iterable
from typing import Any

from towline.core import jobs
from towline.core.chains import Chains
from towline.core.following import Lines, Queues
from towline.core.holds import Holds
from towline.core.scheduling.bucket import as_waiting
from towline.core.scheduling.scheduler import Scheduler
from towline.core.step import Step
from towline.model.events import (
    BatchHeld,
    FindAttempt,
    Follow,
    FollowAttempt,
    HoldAsked,
    StartAttempt,
    StopAttempt,
    UnitEnded,
)
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
        self,
        new_token: Callable[[], str],
        became: Callable[[Unit], State | None] | None,
        lines: Lines | None,
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
        self.holds = Holds()
        self._queues = Queues(self.jobs, lines)
        #: Batches that wait -> the cluster whose own queue they go into.
        self._bound_for: dict[str, str] = {}
        #: Those that wait for something that came into a queue in this step, or ended.
        self._ripe: dict[Unit, None] = {}

    def _keep(self, job: Job, step: Step, why: Kind | None = None, **data: Any) -> None:
        step.was(job.id, self.jobs.get(job.id))
        self.jobs[job.id] = job
        step.changed[job.id] = job
        if why is not None:
            step.tell(job, why, **data)

    def request_of(self, job_id: int) -> Request:
        return self._requests[job_id]

    def end_waiting(self, ended: Job, step: Step) -> None:
        """What waited here has ended."""
        self.scheduler.withdraw(ended.id)
        self.chains.leave(ended.id)
        self._forget(ended, step)
        step.tell(ended, Kind.ENDED)

    def _forget(self, job: Job, step: Step) -> None:
        step.was(job.id, self.jobs.pop(job.id, None))
        self._requests.pop(job.id, None)
        self.holds.leave(job.id)
        step.changed[job.id] = job

    def _enqueue(self, job: Job, why: Kind, step: Step, **data: Any) -> None:
        self._keep(job, step, why, **data)
        self._queue(job, step)

    def _queue(self, job: Job, step: Step) -> None:
        """Into our own queue, or at once to a cluster that has one itself; what waits for others
        goes there only if these are there, too."""
        if job.spec.queue is None:
            self.scheduler.submit(as_waiting(job, self._requests[job.id]))
            return
        follows = self._follows(job, step)
        if follows is None:
            self._keep(jobs.held(job), step)
            return
        count = self._requests[job.id].process_count
        job = jobs.handed_over(job, count, self._new_token(), bool(follows))
        self._keep(job, step, Kind.HANDED_OVER)
        if follows:
            step.orders.append(FollowAttempt(job, follows))
        step.orders.append(StartAttempt(job))
        self._ripen(job.id)
        self._ripen(job.spec.batch)

    # --- chains ------------------------------------------------------------------------------

    def _admit(self, job: Job, why: Kind, now: float, step: Step) -> None:
        """Into its queue, unless it is to run after others: then it waits, or is skipped; or later,
        or when it is let go."""
        spec = job.spec
        if spec.batch or not (spec.after or spec.hold or spec.begin_here):
            self._enqueue(job, why, step)
            return
        # Whoever retries it lets it go.
        by_user = spec.hold and why is Kind.SUBMITTED
        never = self._bar(job.id, spec.after, by_user, spec.begin_here, now, step)
        if never is None and self._is_barred(job.id) and self._follows(job, step) is None:
            begin = self.holds.begin_of(job.id)
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
            self.holds.add(unit, held, begin, now)
        return never

    def _is_barred(self, unit: Unit) -> bool:
        return unit in self.chains or unit in self.holds

    def _held_again(self, job: Job, now: float, step: Step) -> None:
        """After a restart: what it waits for may have ended just before."""
        by_user = job.reason == HELD
        never = self._bar(job.id, job.spec.after, by_user, job.spec.begin_here, now, step)
        if not self._is_barred(job.id):
            self._go_on(job.id, never, now, step)
        self._ripe[job.id] = None

    def _followed_again(self, job: Job, now: float, step: Step) -> None:
        """The same for what is in the queue of its cluster."""
        never = self.chains.join(job.id, job.spec.after, lambda unit: self._end_of(unit, step))
        if job.id in self.chains:
            step.orders.append(FollowAttempt(job, self._follows(job, step)))
        step.orders.append(FindAttempt(job))
        if job.id not in self.chains:
            self._go_on(job.id, never, now, step)

    def _feed(self, job: Job, now: float, step: Step) -> None:
        """Into its queue; what its batch is to run after may be in there, too, or be over."""
        never = None
        if job.spec.batch in self.chains:
            never = self.chains.join(job.id, job.spec.after, lambda unit: self._end_of(unit, step))
        if never is None:
            self._queue(job, step)
        else:
            self._skip(job, never, now, step)

    def _batch_held(self, fact: BatchHeld, now: float, step: Step) -> None:
        never = self._bar(fact.name, fact.after, fact.held, fact.begin, now, step)
        if not self._is_barred(fact.name):
            step.chained.append((fact.name, never))
        elif fact.cluster:
            self._bound_for[fact.name] = fact.cluster
            self._ripe[fact.name] = None

    def _hold_asked(self, fact: HoldAsked, now: float, step: Step) -> None:
        for unit in fact.units:
            job = self.jobs.get(unit) if isinstance(unit, int) else None
            if fact.held and job is not None:
                self._hold(job, step)
            elif not fact.held and self.holds.is_held(unit):
                self.holds.let_go(unit)
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
        self.holds.hold(job.id)

    def _begin_in_time(self, now: float, step: Step) -> None:
        for unit in self.holds.due(now):
            self._go_on(unit, None, now, step, by="time")

    def _unit_ended(self, fact: UnitEnded, now: float, step: Step) -> None:
        self.chains.leave(fact.unit)
        self._ripen(fact.unit)
        self.holds.leave(fact.unit)
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
                break
            for job in ended:
                followed.add(job.id)
                self._unit_ended(UnitEnded(job.id, job.state), now, step)
        self._hand_over_ripe(step)

    def _go_on(
        self, waiter: Unit, never: Reason | None, now: float, step: Step, by: str = ""
    ) -> None:
        """One of the things that kept it back does so no more, or never will cease to."""
        if never is None and self._is_barred(waiter):
            self._ripe[waiter] = None
            return
        self.holds.leave(waiter)
        if isinstance(waiter, str):
            step.chained.append((waiter, never))
        elif self.jobs[waiter].state is not State.WAITING:
            self._go_on_there(self.jobs[waiter], never, step)
        elif never is not None:
            self._skip(self.jobs[waiter], never, now, step)
        else:
            job = jobs.released(self.jobs[waiter])
            self._keep(job, step, Kind.RELEASED, **({"by": by} if by else {}))
            self._queue(job, step)

    def _go_on_there(self, job: Job, never: Reason | None, step: Step) -> None:
        """The same for what is in the queue of its cluster; what has begun there stays so."""
        if job.state is not State.STARTING or job.attempt is None or not job.attempt.follows:
            return
        if never is None:
            job = jobs.let_go(job)
            self._keep(job, step, Kind.RELEASED)
            step.orders.append(FollowAttempt(job, ()))
        else:
            job = jobs.skip_asked(job, never)
            self._keep(job, step, Kind.STOPPING)
            step.orders.append(StopAttempt(job))

    # --- chains within one queue -------------------------------------------------------------

    def _follows(self, job: Job, step: Step) -> tuple[Follow, ...] | None:
        """What it is to follow in the queue of its cluster; None where it cannot go there yet."""
        if job.spec.queue is None or job.id in self.holds:
            return None
        if job.id not in self.chains:
            return ()
        waits = self.chains.waits_for(job.id)
        return self._queues.follows(job.spec.cluster, waits, step.changed)

    def _ripen(self, unit: Unit) -> None:
        self._ripe.update(dict.fromkeys(self.chains.followers(unit)))

    def _hand_over_ripe(self, step: Step) -> None:
        """Let those into a queue that wait for nothing but what is in it."""
        while self._ripe:
            waiter, _ = self._ripe.popitem()
            if waiter not in self.chains or waiter in self.holds:
                continue
            if isinstance(waiter, str):
                self._hand_over_lines(waiter, step)
                continue
            job = self.jobs[waiter]
            follows = self._follows(job, step)
            if follows is not None and job.state is State.WAITING:
                self._keep(job := jobs.released(job), step)
                self._queue(job, step)
            elif follows is not None and job.attempt is not None and job.attempt.follows:
                step.orders.append(FollowAttempt(job, follows))

    def _hand_over_lines(self, batch: str, step: Step) -> None:
        """Let the jobs of a batch be given to us, which wait on their own account from then on."""
        cluster, waits = self._bound_for.get(batch, ""), self.chains.waits_for(batch)
        if cluster and self._queues.follows(cluster, waits, step.changed) is not None:
            del self._bound_for[batch]
            step.followed.append(batch)

    def _skip(self, job: Job, never: Reason, now: float, step: Step) -> None:
        skipped = jobs.skipped(job, never, now)
        self._forget(skipped, step)
        step.tell(skipped, Kind.ENDED)
