"""The one door to the core: `handle(facts, now) -> Step`.

A step says which jobs changed (to be written in one transaction), what to tell about them, and what
to do once that is written. Orders are given only after the transaction: an attempt is on disk
before anything of it can start, so a crash in between can at worst start it again, and starting
twice is starting once (the agent sees to that).
"""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import astuple, replace

from towline.core import jobs, outside, team
from towline.core.following import Lines
from towline.core.given_up import Given, GivenUp, counts_again
from towline.core.health import Health, HealthVerdict
from towline.core.ledger import Ledger
from towline.core.scheduling.bucket import as_waiting
from towline.core.step import Step
from towline.core.subjects import job_in, number_in, singly
from towline.model.events import (
    AttemptEntered,
    AttemptWaits,
    BatchHeld,
    Conclude,
    Fact,
    Fed,
    FindAttempt,
    GiveUpAsked,
    HoldAsked,
    MachineAway,
    MachineGone,
    MachineRemoved,
    MachineSeen,
    ProcessEnded,
    ProcessSilent,
    ProcessStarted,
    RecallAttempt,
    Recovered,
    RetryAsked,
    SetWaiting,
    StartAttempt,
    StopAsked,
    StopAttempt,
    Submitted,
    TeamSeen,
    UnitEnded,
    WaitingSkipped,
    WaitingStopped,
)
from towline.model.job import SILENT, Attempt, Ending, Job, State, Unit
from towline.model.journal import Kind, Remark
from towline.model.request import Request


class Core(Ledger):
    """All jobs that have not ended, and the scheduler that places them."""

    def __init__(
        self,
        new_token: Callable[[], str] = lambda: "",
        became: Callable[[Unit], State | None] | None = None,
        lines: Lines | None = None,
    ) -> None:
        super().__init__(new_token, became, lines)
        #: job -> ranks of the present attempt that have started.
        self._started: dict[int, set[int]] = {}
        #: job -> when all of its processes had started, by our own clock.
        self._since: dict[int, float] = {}
        self.health = Health(self._since.get)
        self._given_up = GivenUp()
        self._handlers: dict[type, Callable[[Any, float, Step], None]] = {
            Submitted: self._submitted,
            Fed: self._fed,
            StopAsked: self._stop_asked,
            RetryAsked: self._retry_asked,
            WaitingStopped: lambda fact, now, step: outside.stop(fact, self.jobs, now, step),
            WaitingSkipped: lambda fact, now, step: outside.skip(fact, self.jobs, now, step),
            BatchHeld: self._batch_held,
            HoldAsked: self._hold_asked,
            UnitEnded: self._unit_ended,
            SetWaiting: lambda fact, now, step: outside.set_waiting(fact, self.jobs, step),
            GiveUpAsked: self._give_up_asked,
            Recovered: self._recovered,
            MachineSeen: lambda fact, now, step: self.scheduler.see(fact.machine),
            MachineAway: lambda fact, now, step: self.scheduler.series.reached(*astuple(fact)),
            MachineGone: self._machine_gone,
            MachineRemoved: self._machine_removed,
            TeamSeen: lambda fact, now, step: team.seen(self, fact, now, step),
            ProcessStarted: self._process_started,
            ProcessSilent: self._process_silent,
            AttemptWaits: self._attempt_waits,
            AttemptEntered: self._attempt_entered,
            ProcessEnded: self._process_ended,
        }

    def handle(self, facts: Sequence[Fact], now: float) -> Step:
        step = Step()
        for fact in facts:
            for one in singly(fact):
                self._take(one, now, step)
        try:
            self._begin_in_time(now, step)
            self._follow_ends(now, step)
            self._judge(self.health.due(now))
            self._place(now, step)
            team.note_shares(self, step)
        except Exception as error:
            step.failures.append(("placing jobs", error))
        step.tell_the_rest()
        wakes = self.scheduler.wake_at(now), self.health.wake_at(), self.holds.wake_at(now)
        step.wake_at = min(filter(None, wakes), default=None)
        return step

    def _take(self, fact: Fact, now: float, step: Step) -> None:
        """One fact that cannot be handled ends the job that it is about, and no other."""
        try:
            self._handlers[type(fact)](fact, now, step)
        except Exception as error:
            step.failures.append((repr(fact)[:500], error))
            job = self._subject(fact, now)
            if job is not None:
                self._write_off(job, f"the Engine failed over it: {error!r}", now, step)

    def _subject(self, fact: Fact, now: float) -> Job | None:
        """The job that a fact is about."""
        if isinstance(fact, Submitted):
            return jobs.accepted(fact.id, fact.spec, now)
        job = job_in(fact) or self.jobs.get(number_in(fact))
        attempt = getattr(fact, "attempt", None)
        return job if job is None or attempt is None else self._current(job.id, attempt)

    def _write_off(self, job: Job, why: str, now: float, step: Step) -> None:
        if job.attempt is not None:
            step.orders += [StopAttempt(job), Conclude(job)]
        lost = jobs.written_off(job, why, now)
        if job.id not in self.jobs and job.attempt is None and job.submitted == now:
            step.fresh.add(job.id)
        step.was(job.id, None if job.id in step.fresh else job)
        self.drop(job.id, now)
        step.changed[job.id] = lost
        step.tell(lost, Kind.ENDED)

    def drop(self, job_id: int, now: float) -> None:
        """Forget a job, whatever it is doing: nothing of it is decided here any more."""
        self.scheduler.withdraw(job_id)
        self.scheduler.release(job_id, now, None, False)
        self.chains.leave(job_id)
        self.holds.leave(job_id)
        for known in (self.jobs, self._requests, self._started, self._since):
            known.pop(job_id, None)

    def take_back(self, step: Step, now: float) -> None:
        """As if the jobs that were submitted in a step never had been: they cannot be written."""
        for job_id in step.fresh:
            self.drop(job_id, now)
        step.take_back_fresh()

    # --- what people ask ---------------------------------------------------------------------

    def _submitted(self, fact: Submitted, now: float, step: Step) -> None:
        job = jobs.accepted(fact.id, fact.spec, now)
        self._requests[job.id] = fact.request
        step.fresh.add(job.id)
        self._admit(job, Kind.SUBMITTED, now, step)

    def _fed(self, fact: Fed, now: float, step: Step) -> None:
        for job, request in fact.jobs:
            if job.id not in self.jobs:
                self._requests[job.id] = request
                self.jobs[job.id] = job
                self._feed(job, now, step)

    def _stop_asked(self, fact: StopAsked, now: float, step: Step) -> None:
        for job_id in fact.ids:
            job = self.jobs.get(job_id)
            if job is None:
                continue
            if job.stop_asked:
                # Whoever asks again sees that it has not ended: so the machine is asked again.
                step.orders.append(StopAttempt(job, fact.now))
                continue
            job = jobs.stop_asked(job, now)
            if job.state.final:
                self.end_waiting(job, step)
                self._go_on_without(job, step)
            else:
                self.chains.leave(job_id)
                self._keep(job, step, Kind.STOP_ASKED)
                step.orders.append(StopAttempt(job, fact.now))

    def _retry_asked(self, fact: RetryAsked, now: float, step: Step) -> None:
        for ended, request in fact.jobs:
            if ended.id in self.jobs:
                continue
            self._requests[ended.id] = request
            step.remember(ended)
            again = jobs.retried(ended)
            step.was(ended.id, ended)
            self._admit(again, Kind.RETRIED, now, step)

    def _give_up_asked(self, fact: GiveUpAsked, now: float, step: Step) -> None:
        self._stop_asked(StopAsked((fact.id,)), now, step)
        for rank, text in fact.silent.items():
            job = self.jobs.get(fact.id)
            if job is not None and job.attempt is not None:
                ending = Ending(cause=SILENT, text=text, ended=now)
                self._process_ended(
                    ProcessEnded(job.id, job.attempt.number, rank, ending), now, step
                )

    # --- what machines say -------------------------------------------------------------------

    def _recovered(self, fact: Recovered, now: float, step: Step) -> None:
        for job, request in fact.jobs:
            self._requests[job.id] = request
            self.jobs[job.id] = job
            if job.state is State.QUEUED:
                self._queue(job, step)
                continue
            if job.state is State.WAITING:
                self._held_again(job, now, step)
                continue
            assert job.attempt is not None
            if job.state is State.STARTING and job.attempt.follows:
                self._followed_again(job, now, step)
                continue
            if job.spec.queue is None:
                self._adopt(job, job.attempt, job.started or now)
            step.orders.append(FindAttempt(job))
            if job.state is State.STOPPING:
                step.orders.append(StopAttempt(job))
        for job, attempt, request in fact.given_up:
            self._recovered_given_up(job, attempt, request, step)

    def _recovered_given_up(self, job: Job, attempt: Attempt, request: Request, step: Step) -> None:
        current = job.attempt is not None and job.attempt.number == attempt.number
        over = not current or job.state not in (State.QUEUED, State.LOST)
        over = over or len(attempt.placement) > 1
        if current and job.state is State.QUEUED and job.id not in self.jobs:
            # Of a batch: it is fed to the core before its turn, since it may be found again.
            self._requests[job.id] = request
            self.jobs[job.id] = job
            self._queue(job, step)
        given = Given(replace(job, attempt=attempt), request, over)
        self._given_up.add(given)
        step.orders.append(FindAttempt(given.job))
        if over:
            step.orders.append(StopAttempt(given.job))

    def _machine_gone(self, fact: MachineGone, now: float, step: Step) -> None:
        self.scheduler.gone(fact.name)
        self._judge(self.health.answers_again(fact.name))

    def _machine_removed(self, fact: MachineRemoved, now: float, step: Step) -> None:
        self.scheduler.remove(fact.name)
        self.health.forget(fact.name)

    def _process_started(self, fact: ProcessStarted, now: float, step: Step) -> None:
        self._take_up_again(fact.job, fact.attempt, fact.rank, fact.at, None, step)
        job = self._current(fact.job, fact.attempt)
        if job is not None and fact.node:
            job = jobs.on_node(job, fact.rank, fact.node)
            self._keep(job, step)
        if job is None or job.state is not State.STARTING:
            return
        started = self._started.setdefault(job.id, set())
        started.add(fact.rank)
        if len(started) == self._requests[job.id].process_count:
            self._since[job.id] = now
            self.chains.leave(job.id)
            job = jobs.running(job, fact.at)
            self._keep(job, step, Kind.RUNNING, **jobs.whereabouts(job))

    def _process_silent(self, fact: ProcessSilent, now: float, step: Step) -> None:
        """Only where another attempt may be made is one given up; else it is waited for."""
        job = self._current(fact.job, fact.attempt)
        if job is not None and job.failures < job.spec.retries and not job.stop_asked:
            ending = Ending(cause=SILENT, text=fact.text, ended=now)
            self._process_ended(ProcessEnded(fact.job, fact.attempt, fact.rank, ending), now, step)

    def _attempt_waits(self, fact: AttemptWaits, now: float, step: Step) -> None:
        job = self._current(fact.job, fact.attempt)
        if job is None or job.state not in (State.STARTING, State.RUNNING):
            return
        taken_back = job.state is State.RUNNING
        if taken_back and not fact.again:
            return
        if taken_back:
            self._started.pop(job.id, None)
        why = Kind.TAKEN_BACK if taken_back else None
        self._keep(jobs.waiting_there(job, fact.reason), step, why)

    def _attempt_entered(self, fact: AttemptEntered, now: float, step: Step) -> None:
        job = self._current(fact.job, fact.attempt)
        if job is not None:
            self._keep(jobs.entered(job, fact.entry), step)

    def _process_ended(self, fact: ProcessEnded, now: float, step: Step) -> None:
        began = fact.ending.started or now
        self._take_up_again(fact.job, fact.attempt, fact.rank, began, fact.ending, step)
        if fact.ending.started:  # of which nobody may have heard: no Engine was there
            self._process_started(fact.start, now, step)
        job = self._current(fact.job, fact.attempt)
        if job is None or job.attempt is None or fact.rank in job.attempt.heard():
            return
        job = jobs.with_ending(job, fact.rank, fact.ending, fact.node)
        if len(job.attempt.endings) == len(job.attempt.placement):  # type: ignore[union-attr]
            self._conclude(job, now, step)
            if fact.said is not None and len(job.attempt.placement) == 1:  # type: ignore[union-attr]
                step.said[job.id] = fact.said
            return
        goes_on = fact.ending.ok and not job.spec.ends_together
        if goes_on or job.state is State.STOPPING:
            self._keep(job, step)
            return
        job = jobs.stopping_the_rest(job, fact.rank, fact.ending)
        self._keep(job, step, Kind.STOPPING)
        step.orders.append(StopAttempt(job))

    def _take_up_again(
        self, job_id: int, attempt: int, rank: int, at: float, ending: Ending | None, step: Step
    ) -> None:
        """Hear what a machine says of an attempt that was given up while it was silent."""
        given = self._given_up.get(job_id, attempt)
        if given is None or rank not in given.attempt.unheard():
            return
        job = self.jobs.get(job_id, given.job)
        if counts_again(given, job, ending):
            self._given_up.drop(given)
            step.was(job_id, job)
            self._requests[job_id] = given.request
            job = jobs.found_again(job, at)
            self._adopt(job, given.attempt, job.started or at)
            self.health.started(job)
            self._keep(job, step, Kind.FOUND_AGAIN, answers=given.attempt.machine_of(rank))
            step.remember(job)
        elif ending is not None:
            step.past.append((job_id, self._given_up.note(given, rank, ending)))

    # --- what follows ------------------------------------------------------------------------

    def _conclude(self, job: Job, now: float, step: Step) -> None:
        well, ran_s = jobs.ran(job)
        self.scheduler.release(job.id, now, ran_s, well)
        self._since.pop(job.id, None)
        verdicts = [] if job.spec.queue else self.health.ended(job, now)
        self._started.pop(job.id, None)
        step.orders.append(Conclude(job))
        job = jobs.concluded(job, now)
        assert job.attempt is not None
        if job.attempt.unheard():
            self._given_up.add(Given(job, self._requests[job.id]))
            step.remember(job)
            if len(job.attempt.placement) > 1:
                self._go_on_without(job, step)
        if job.state.final:
            self._forget(job, step)
            step.tell(job, Kind.ENDED)
        else:
            step.remember(job)
            self._enqueue(job, jobs.why_again(job), step, **jobs.why_void(job))
        for remark in self._judge(verdicts):
            step.tell(job, Kind.REMARK, remark=remark)

    def _judge(self, verdicts: list[HealthVerdict]) -> list[Remark]:
        """Set machines aside or use them again; what to tell of it."""
        for verdict in verdicts:
            self.scheduler.set_aside(verdict.machine, verdict.aside)
        return [verdict.remark for verdict in verdicts if verdict.remark]

    def _place(self, now: float, step: Step) -> None:
        for placed in self.scheduler.decide(now):
            job, series = self.jobs[placed.id], self.scheduler.series.named(placed.id)
            job = team.bounded(self, job)
            job = jobs.placed(job, placed.placement, self._new_token(), series, placed.places)
            self._keep(job, step, jobs.how_placed(job), **jobs.whereabouts(job))
            self.health.started(job)
            self._go_on_without(job, step)
            step.orders.append(StartAttempt(job))
        step.orders += [RecallAttempt(self.jobs[job]) for job in self.scheduler.recall(now)]

    def _go_on_without(self, job: Job, step: Step) -> None:
        """What was given up of it counts no more: it ends as soon as its machine can be told."""
        for given in self._given_up.of(job.id):
            if not given.over:
                given.over = True
                step.orders.append(StopAttempt(given.job))

    def _adopt(self, job: Job, attempt: Attempt, started: float) -> None:
        waiting = as_waiting(job, self._requests[job.id])
        self.scheduler.adopt(waiting, attempt.placement, started, attempt.series)

    def _current(self, job_id: int, attempt: int) -> Job | None:
        """The job if `attempt` is its present one: words from older attempts are dropped here."""
        job = self.jobs.get(job_id)
        if job is None or job.attempt is None or job.attempt.number != attempt:
            return None
        return None if job.state in (State.WAITING, State.QUEUED) else job
