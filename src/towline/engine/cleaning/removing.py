"""Forget jobs: what is kept of them on machines and here goes, and so does their row.

What came home stays. Nothing goes that is the only copy, unless somebody insists on it.
"""

import asyncio
from collections.abc import Sequence

from msgspec import Struct, field

from towline.agent.link import Link
from towline.api.places import MachineDisk
from towline.backends.machines import Machines
from towline.core.garbage import is_home, is_ours
from towline.engine.engine import Engine
from towline.errors import AgentError, HostError, UsageError
from towline.model.job import Attempt, Job
from towline.model.odd_text import original
from towline.snapshot.syncing import sync_file_systems

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
    def __init__(self, engine: Engine, machines: Machines) -> None:
        self.engine = engine
        self.machines = machines

    async def remove(self, ids: Sequence[int], batches: Sequence[str], force: bool) -> Removed:
        """All of them are looked at before anything goes."""
        rows = self.engine.store
        jobs = {job_id: self.engine.job(job_id) for job_id in ids}
        for name in batches:
            batch = rows.batches.named(name)
            jobs |= {job.id: job for job in rows.jobs_between(batch.first, batch.last)}
        owed = {job.id for job, _ in rows.attempts.given_up()}
        for job in jobs.values():
            _check(job, job.id in owed, force)
        await self._sync(list(jobs.values()))
        removed = Removed()
        gone = [job for job in jobs.values() if await self._remove_folders(job, removed)]
        left = {job.spec.batch for job in jobs.values() if job not in gone}
        removed.batches = [name for name in batches if name not in left]
        whole = {"", *removed.batches}
        removed.jobs = [job.id for job in gone if job.spec.batch in whole]
        removed.lines = [job.id for job in gone if job.spec.batch not in whole]
        await self.engine.in_turn(lambda: rows.forget(removed.jobs, removed.batches))
        return removed

    async def _sync(self, jobs: list[Job]) -> None:
        homes = {original(job.spec.folder) for job in jobs if job.results}
        if homes:
            await asyncio.to_thread(sync_file_systems, homes)

    async def _remove_folders(self, job: Job, removed: Removed) -> bool:
        """False when something of it stays, because its machine does not answer or says no."""
        attempts = self.engine.store.attempts.of_job(job.id)
        if job.attempt is not None:
            attempts.append(job.attempt)
        slots = [slot for attempt in attempts for slot in attempt.placement]
        for slot in {(slot.machine, slot.target): slot for slot in slots}.values():
            if self.machines.driver_of(slot) is None:
                self.machines.find_machine(slot)
            driver = self.machines.driver_of(slot)
            if driver is None:
                continue  # no cluster has it any more: nobody can say what is there
            try:
                link = await driver.reach(_REACH_S, patient=False)
                removed.bytes += await self._forget(link, job, attempts)
            except (HostError, AgentError) as error:
                removed.stay.append((job.id, error.text))
                return False
        return True

    async def _forget(self, link: Link, job: Job, attempts: list[Attempt]) -> int:
        engine_id = self.engine.store.engine_id
        tokens = {job.id: {attempt.token for attempt in attempts}}
        freed, after, more = 0, "", True
        while more:
            answer, _ = await link.ask("sizes", prefix=f"{engine_id}-{job.id}-", after=after)
            sizes = {key: size for key, size, _ in answer["folders"]}
            after, more = max(sizes, default=""), answer["more"] and bool(sizes)
            ours = [key for key in sizes if is_ours(key, job, engine_id, tokens)]
            gone, _ = await link.ask("forget", keys=ours)
            if set(ours) - set(gone["forgotten"]):
                raise AgentError(f"{link.host.name}: something of it still runs there")
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
            f"what job {job.id} made is not home: {original(job.results)}",
            hint=f"tow results {job.id} fetches it; tow rm --force {job.id} gives it up",
        )


async def disk_use(machines: Machines, names: Sequence[str]) -> list[MachineDisk]:
    """What Towline takes on each machine, and what is free there."""

    async def one(name: str) -> MachineDisk:
        try:
            link = await machines.drivers[name].reach(_REACH_S, patient=False)
            answer, _ = await link.ask("disk")
            return {
                "machine": name,
                "jobs": answer["jobs"],
                "folders": answer["folders"],
                "contents": answer["contents"],
                "free": answer["free"],
            }
        except (HostError, AgentError) as error:
            return {"machine": name, "error": error.text, "hint": error.hint}

    return list(await asyncio.gather(*(one(name) for name in names)))
