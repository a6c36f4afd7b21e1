"""Forget jobs: what is kept of them on machines and here goes, and so does their row.

What came home stays. Nothing goes that is the only copy, unless somebody insists on it.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

from msgspec import Struct, field

from towline.api.places import MachineDisk
from towline.backends.base import Fleet, MachineUpkeep
from towline.core.garbage import is_home, is_ours
from towline.engine.chains import check_nobody_waits
from towline.engine.engine import Engine
from towline.engine.wording import results_words
from towline.errors import AgentError, HostError, UsageError
from towline.model.batch import Batch
from towline.model.job import Attempt, Job
from towline.model.odd_text import original
from towline.workspace.base import Receiver

_REACH_S = 20.0


class Removed(Struct):
    """What went of some jobs."""

    #: The jobs that are forgotten.
    jobs: list[int] = field(default_factory=list)
    batches: list[str] = field(default_factory=list)
    #: Lines of batches: their folders went, the batch still lists them.
    lines: list[int] = field(default_factory=list)
    bytes: int = 0
    #: Jobs that stay, and why.
    stay: list[tuple[int, str]] = field(default_factory=list)


class Removing:
    def __init__(self, engine: Engine, fleet: Fleet, receiver: Receiver) -> None:
        self.engine = engine
        self.fleet = fleet
        self.receiver = receiver

    async def remove(self, some: Sequence[Job], batches: Sequence[Batch], force: bool) -> Removed:
        """All of them are looked at before anything goes."""
        rows = self.engine.store
        jobs = {job.id: job for job in some}
        for batch in batches:
            jobs |= {job.id: job for job in rows.jobs_between(batch.first, batch.last)}
        owed = {job.id for job, _ in rows.attempts.given_up()}
        for job in jobs.values():
            _check(job, job.id in owed, force)
        check_nobody_waits(self.engine, jobs, [batch.name for batch in batches])
        # What came home must be on disk before the only other copy goes.
        await self.receiver.sync(jobs.values())
        removed = Removed()
        gone = [job for job in jobs.values() if await self._remove_folders(job, removed)]
        left = {(job.spec.owner, job.spec.batch) for job in jobs.values() if job not in gone}
        whole = [batch.key for batch in batches if batch.key not in left]
        removed.batches = [name for _, name in whole]
        for job in gone:
            forgotten = not job.spec.batch or (job.spec.owner, job.spec.batch) in whole
            (removed.jobs if forgotten else removed.lines).append(job.id)
        for owner in sorted({job.spec.owner for job in gone} | {name for name, _ in whole}):
            theirs = [job_id for job_id in removed.jobs if jobs[job_id].spec.owner == owner]
            their_batches = [key for key in whole if key[0] == owner]
            await self.engine.in_turn(partial(rows.forget, theirs, their_batches, owner))
        return removed

    async def _remove_folders(self, job: Job, removed: Removed) -> bool:
        """False when something of it stays, because its machine does not answer or says no."""
        attempts = self.engine.store.attempts.of_job(job.id)
        if job.attempt is not None:
            attempts.append(job.attempt)
        slots = [slot for attempt in attempts for slot in attempt.placement]
        for slot in {(slot.machine, slot.target): slot for slot in slots}.values():
            if self.fleet.machine_of(slot) is None:
                self.fleet.find_machine(slot)
            driver = self.fleet.machine_of(slot)
            if driver is None:
                continue  # no cluster has it any more: nobody can say what is there
            try:
                upkeep = await driver.upkeep(_REACH_S)
                removed.bytes += await self._forget(driver.name, upkeep, job, attempts)
            except (HostError, AgentError) as error:
                removed.stay.append((job.id, error.text))
                return False
        return True

    async def _forget(
        self, machine: str, upkeep: MachineUpkeep, job: Job, attempts: list[Attempt]
    ) -> int:
        engine_id = self.engine.store.engine_id
        tokens = {job.id: {attempt.token for attempt in attempts}}
        freed = 0
        async for folders in upkeep.folders(f"{engine_id}-{job.id}-"):
            sizes = {folder.key: folder.bytes for folder in folders}
            ours = [key for key in sizes if is_ours(key, job, engine_id, tokens)]
            if set(ours) - await upkeep.forget(ours):
                raise AgentError(f"{machine}: something of it still runs there")
            freed += sum(sizes[key] for key in ours)
        return freed


def _check(job: Job, owed: bool, force: bool) -> None:
    if not job.state.final:
        raise UsageError(f"job {job.id} has not ended", hint=f"tow stop {job.id} stops it")
    if owed:
        raise UsageError(
            f"an attempt of job {job.id} may still run on a machine that does not answer",
            hint="it can be removed once that machine said what became of it",
        )
    if not (is_home(job) or force):
        raise UsageError(
            f"what job {job.id} made is not home: {original(results_words(job.results))}",
            hint=f"tow results {job.id} fetches it; tow rm --force {job.id} gives it up",
        )


async def disk_use(fleet: Fleet, names: Sequence[str]) -> list[MachineDisk]:
    """What Towline takes on each machine, and what is free there."""

    async def one(name: str) -> MachineDisk:
        try:
            used = await (await fleet.machines[name].upkeep(_REACH_S)).disk()
            return {
                "machine": name,
                "jobs": used.jobs,
                "folders": used.folders,
                "contents": used.contents,
                "free": used.free,
            }
        except (HostError, AgentError) as error:
            return {"machine": name, "error": error.text, "hint": error.hint}

    return list(await asyncio.gather(*(one(name) for name in names)))
