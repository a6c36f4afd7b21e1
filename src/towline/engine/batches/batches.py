"""Batches in the Engine: feed the core, stop and start again what belongs together."""

import asyncio
import contextlib
import functools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from towline.api.batches import BatchView, MachineShare
from towline.api.jobs import MachineReason
from towline.backends.tasks import Tasks
from towline.core.batches import Progress
from towline.core.step import Step
from towline.engine.batches.why import why_waiting
from towline.engine.chains import waits_for
from towline.engine.engine import Engine, request_of
from towline.engine.views import after_view
from towline.engine.writing import AGAIN_S
from towline.errors import CannotWrite
from towline.model.batch import Batch, BatchKey, Line
from towline.model.events import BatchHeld, Fed, UnitEnded
from towline.model.job import Job, JobSpec, State
from towline.model.principal import Principal
from towline.model.reason import STOPPED_WAITING, Reason

#: Batches that ended earlier than this are not listed unless asked for.
_RECENT_S = 86400.0
_LONGEST_NAME = 60
#: So many jobs are stopped or set waiting in one turn of the loop.
_AT_ONCE = 1000
#: Of the jobs whose results are not home, so many are asked where those are.
_MOST_LOOKED_AT = 100


class Wish(Struct, frozen=True):
    """A batch that was checked and can be accepted."""

    name: str
    base: JobSpec
    lines: list[Line]
    max_parallel: int = 0
    fail_fast: bool = False


def like(batch: Batch, lines: Sequence[Line]) -> Wish:
    """Other commands, with all that a batch was submitted with but what it had to wait for."""
    base = replace(batch.base, after=(), hold=False)
    return Wish(batch.name, base, list(lines), batch.max_parallel, batch.fail_fast)


class Batches:
    """`away` tells which machines of a job do not answer, and why."""

    def __init__(
        self, engine: Engine, away: Callable[[Job], dict[str, str]] = lambda job: {}
    ) -> None:
        self.engine = engine
        self.store = engine.store
        self._away = away
        #: Those that have not ended.
        self.active: dict[BatchKey, Progress] = {}
        #: Of those that are being written.
        self._names: set[BatchKey] = set()
        self._stopping = Tasks("batches", asks_again=False)
        #: Batch -> what went wrong with it in the Engine itself.
        self._troubles: dict[BatchKey, str] = {}
        #: Batches of which many jobs are being changed.
        self._uncounted: Counter[BatchKey] = Counter()
        engine.on_changed.append(self._changed)
        engine.on_chained = self._chained

    def recover(self) -> None:
        """After a restart: go on with every batch that has not ended."""
        for batch in self.store.batches.unfinished():
            self._hold(batch)
            self._take_up(batch)
            if batch.stopped:
                # The Engine before this one may have ended in the middle of it.
                self._stop_soon(batch, STOPPED_WAITING)

    async def submit(self, wish: Wish, key: str = "") -> Batch:
        """Accept a batch; when this returns it is on disk."""
        owner = wish.base.owner
        known = self.store.submission(owner, key) if key else range(0)
        if known and (batch := self.store.batches.of_job(known[0])):
            return batch
        first = self.store.new_ids(len(wish.lines))[0]
        batch = Batch(
            name=self._free_name(owner, wish.name),
            base=wish.base,
            first=first,
            count=len(wish.lines),
            submitted=self.engine.clock(),
            max_parallel=wish.max_parallel,
            fail_fast=wish.fail_fast,
            held=bool(wish.base.after or wish.base.hold or wish.base.begin_here),
            by_user=wish.base.hold,
        )
        self._names.add(batch.key)
        try:
            await self.engine.in_turn(lambda: self.store.batches.add(batch, wish.lines, key))
        finally:
            self._names.discard(batch.key)
        self._take_up(batch)
        self._hold(batch)
        return batch

    def called(self, who: Principal, name: str) -> Batch:
        """The batch that somebody means by a name."""
        return self.store.batches.meant(who, name)

    async def stop(
        self, batch: Batch, reason: Reason = STOPPED_WAITING, now: bool = False
    ) -> Batch:
        """End what waits, stop what runs; nothing of it starts any more."""
        batch = replace(self.store.batches.named(*batch.key), stopped=True)
        progress = self.active.get(batch.key)
        if progress is not None:
            progress.batch = batch
        at = self.engine.clock()
        await self.engine.in_turn(lambda: self.store.batches.change(batch, at))
        self._troubles.pop(batch.key, None)
        if progress is not None:
            await self.engine.stop(list(progress.inside), now)
        with self._many(batch):
            async for waiting in self._each(batch, (State.QUEUED,)):
                await self.engine.stop_waiting(waiting, reason)
        return batch

    async def retry(self, batch: Batch, states: Sequence[State]) -> int:
        """Start again what ended in one of these states; how many they are."""
        batch = self.store.batches.named(*batch.key)
        held = bool(batch.base.after or batch.base.begin_here)
        batch = replace(batch, stopped=False, held=held, by_user=False, follows=False)
        at = self.engine.clock()
        await self.engine.in_turn(lambda: self.store.batches.change(batch, at))
        count = 0
        with self._many(batch):
            async for ended in self._each(batch, states):
                await self.engine.set_waiting(ended)
                count += len(ended)
        self._hold(batch)
        return count

    # --- batches that wait for others --------------------------------------------------------

    def _hold(self, batch: Batch) -> None:
        """Let the core say when a batch may begin that is to run after others."""
        base, name = batch.base, batch.name
        if batch.held:
            where = base.cluster if base.queue else ""
            self.engine.report(BatchHeld(name, base.after, batch.by_user, base.begin_here, where))

    def _chained(self, step: Step) -> None:
        """Let those go on that may, or whose jobs may wait in the queue of their cluster."""
        for name, never in step.chained:
            how = functools.partial(self._set, held=False, follows=False)
            self._go_on(name, how if never is None else functools.partial(self._skip, never=never))
        for name in step.followed:
            self._go_on(name, functools.partial(self._set, follows=True))

    def _go_on(self, name: str, how: Callable[[Batch], Awaitable[None]]) -> None:
        if batch := self.store.batches.newest(name):
            doing = _patiently(functools.partial(how, batch))
            self._stopping.spawn(doing, functools.partial(self._not_stopped, batch))

    async def _set(self, batch: Batch, **changes: bool) -> None:
        changed = replace(self.store.batches.named(*batch.key), **changes)
        at = self.engine.clock()
        await self.engine.in_turn(lambda: self.store.batches.change(changed, at))
        self._take_up(changed)

    async def _skip(self, batch: Batch, never: Reason) -> None:
        with self._many(batch):
            async for waiting in self._each(batch, (State.QUEUED,)):
                await self.engine.skip_waiting(waiting, never)

    @contextlib.contextmanager
    def _many(self, batch: Batch) -> Iterator[None]:
        """While many of its jobs change that the core does not have: it is counted afterwards."""
        self._uncounted[batch.key] += 1
        try:
            yield
        finally:
            self._uncounted[batch.key] -= 1
            self._take_up(self.store.batches.named(*batch.key))

    async def _each(self, batch: Batch, states: Sequence[State]) -> AsyncIterator[list[Job]]:
        """Its jobs in some states that the core does not have, so many at a time that others get
        their turn in between."""
        first = batch.first
        chosen = [state.value for state in states]
        while jobs := self.store.jobs_between(first, batch.last, chosen, _AT_ONCE):
            first = jobs[-1].id + 1
            if outside := [job for job in jobs if job.id not in self.engine.core.jobs]:
                yield outside

    # --- feeding the core --------------------------------------------------------------------

    def _take_up(self, batch: Batch) -> None:
        """Count anew where its jobs stand, and go on from there."""
        mine = [job for job in self.engine.core.jobs.values() if _batch_key(job) == batch.key]
        counts = Counter(self.store.batches.counts(batch))
        # The core may be a step ahead of what is written.
        counts.subtract(self.store.batches.states([job.id for job in mine]))
        counts.update(job.state for job in mine)
        progress = Progress(batch, counts)
        progress.take_in(mine)
        if progress.over:
            self._is_over(progress)
        else:
            self.active[batch.key] = progress
            self._feed(progress)

    def _is_over(self, progress: Progress) -> None:
        """All of its jobs have ended: what is to run after it can be decided."""
        self.active.pop(progress.batch.key, None)
        well = progress.counts[State.DONE] == progress.batch.count
        state = State.DONE if well else State.FAILED
        self.engine.report(UnitEnded(progress.batch.name, state))

    def _feed(self, progress: Progress) -> None:
        left = progress.wants()
        while left:
            found = self.store.waiting_of(progress.cursor, progress.batch.last, left)
            if not found:
                return
            progress.cursor = found[-1].id + 1
            new = [job for job in found if job.id not in progress.inside]
            progress.take_in(new)
            left -= len(new)
            self.engine.report(Fed(tuple((job, request_of(job.spec.request)) for job in new)))

    def _changed(self, jobs: Iterable[Job]) -> None:
        """The core changed jobs, and that is written."""
        touched: dict[BatchKey, Progress] = {}
        #: Someone started jobs again by their numbers, or changed what the core does not have.
        again: set[BatchKey] = set()
        now = self.engine.clock()
        for job in jobs:
            if not job.spec.batch:
                continue
            key = _batch_key(job)
            progress = self.active.get(key)
            if progress is None or job.id not in progress.inside:
                if not self._uncounted[key]:
                    again.add(key)
                continue
            progress.follow(job, now)
            touched[key] = progress
            if progress.must_stop(job):
                progress.batch = replace(progress.batch, stopped=True)
                reason = Reason("line_ended", line=job.spec.line, state=job.state)
                self._stop_soon(progress.batch, reason)
        for key in again:
            self._take_up(self.store.batches.named(*key))
        for progress in touched.values():
            if progress.over:
                self._is_over(progress)
            else:
                self._feed(progress)

    def _stop_soon(self, batch: Batch, reason: Reason) -> None:
        failed = functools.partial(self._not_stopped, batch)
        stop = functools.partial(self.stop, batch, reason)
        self._stopping.spawn(_patiently(stop), failed)

    def _not_stopped(self, batch: Batch, error: Exception) -> None:
        """Nothing of it starts any more, and whoever looks at it sees why."""
        name = batch.name
        self._troubles[batch.key] = f"the rest could not be stopped: {error}; tow batch stop {name}"
        note = functools.partial(
            self.store.batches.note_trouble, batch, self.engine.clock(), str(error)
        )
        self.engine.soon(f"that the batch {name} could not be stopped", note)

    # --- what is known of them ---------------------------------------------------------------

    def listed(self, who: Principal, everything: bool) -> list[BatchView]:
        since = 0.0 if everything else self.engine.clock() - _RECENT_S
        views = (self.view(batch) for batch in self.store.batches.all(who.sees))
        return [view for view in views if view["ended"] is None or view["ended"] >= since]

    def view(self, batch: Batch) -> BatchView:
        """What programs see of a batch, as it is now."""
        batch = self.store.batches.named(*batch.key)
        progress = self.active.get(batch.key)
        now = self.engine.clock()
        counts = Counter(progress.counts if progress else self.store.batches.counts(batch))
        if batch.base.queue is not None:
            # They are in their cluster's queue.
            counts[State.QUEUED] += counts.pop(State.STARTING, 0)
        ahead = sum(map(self._is_ahead, progress.inside)) if progress else 0
        counts[State.STARTING] -= ahead
        counts[State.QUEUED] += ahead
        pending = self.store.batches.results_wanted(batch)
        return {
            "name": batch.name,
            "cluster": batch.base.cluster,
            "owner": batch.base.owner,
            "folder": batch.base.folder,
            "request": batch.base.request,
            "submitted": batch.submitted,
            "ended": None if progress else self.store.batches.ended_at(batch),
            "count": batch.count,
            "first": batch.first,
            "max_parallel": batch.max_parallel,
            "fail_fast": batch.fail_fast,
            "stopped": batch.stopped,
            "after": after_view(batch.base.after),
            "waits_for": waits_for(self.engine, batch.name, batch.base.after),
            "held": batch.held and batch.by_user,
            "begin": batch.base.begin or None,
            "counts": {state.value: counts[state] for state in State if state is not State.NEW},
            "rate": round(progress.rate(now), 2) if progress else 0.0,
            "eta_s": progress.eta_s(now) if progress else None,
            "machines": self._machines(progress) if progress else {},
            "why": self._why(progress) if progress else "",
            "home": pending == 0,
            "pending": pending,
            "away": self._gone(batch) if pending and not progress else [],
            # To follow it from here on.
            "seq": self.store.journal.last_seq(),
        }

    def _gone(self, batch: Batch) -> list[MachineReason]:
        """Machines that do not answer, although they still have results."""
        jobs = self.engine.jobs(self.store.batches.some_wanted(batch, _MOST_LOOKED_AT)).values()
        found = {name: why for job in jobs for name, why in self._away(job).items()}
        return [{"machine": name, "reason": found[name]} for name in sorted(found)]

    def _is_ahead(self, job_id: int) -> bool:
        """Whether it is on its machine, and waits there for the place of another."""
        job = self.engine.core.jobs.get(job_id)
        starting = job is not None and job.state is State.STARTING
        return starting and self.engine.core.scheduler.series.is_ahead(job_id)

    def _machines(self, progress: Progress) -> dict[str, MachineShare]:
        """Which machine runs how many of its jobs, and on which GPUs."""
        found: dict[str, MachineShare] = {}
        for job_id, state in progress.inside.items():
            job = self.engine.core.jobs.get(job_id)
            if state is State.QUEUED or job is None or job.attempt is None:
                continue
            if state is State.STARTING and (job.spec.queue is not None or self._is_ahead(job_id)):
                continue
            for rank, slot in enumerate(job.attempt.placement):
                row = found.setdefault(job.attempt.machine_of(rank), {"running": 0, "gpus": {}})
                row["running"] += 1
                for gpu in slot.gpus:
                    row["gpus"][str(gpu)] = row["gpus"].get(str(gpu), 0) + 1
        return found

    def _why(self, progress: Progress) -> str:
        return self._troubles.get(progress.batch.key) or why_waiting(self.engine, progress)

    def _free_name(self, owner: str, wanted: str) -> str:
        base = wanted[:_LONGEST_NAME] or "batch"
        return next(name for name in _numbered(base) if not self._is_taken(owner, name))

    def _is_taken(self, owner: str, name: str) -> bool:
        return (owner, name) in self._names or self.store.batches.exists(owner, name)


def _batch_key(job: Job) -> BatchKey:
    return (job.spec.owner, job.spec.batch)


async def _patiently(do: Callable[[], Awaitable[object]]) -> None:
    """As often as it takes until it can be written."""
    while True:
        try:
            await do()
            return
        except CannotWrite:
            await asyncio.sleep(AGAIN_S)


def _numbered(base: str) -> Iterable[str]:
    yield base
    number = 2
    while True:
        yield f"{base}-{number}"
        number += 1
