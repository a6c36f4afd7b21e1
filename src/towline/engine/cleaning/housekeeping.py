"""Remove what ended jobs left behind: when asked, and once a day without being asked.

Folders of jobs go by the rules of core/garbage.py. Snapshots and contents go when nothing refers to
them any more and nobody used them for a while. The jobs themselves stay remembered.
"""

import asyncio
import logging
import os
from collections.abc import Callable

import msgspec
from msgspec import Struct

from towline.api.places import Cleaned
from towline.backends.base import Fleet, MachineAccess, MachineUpkeep
from towline.backends.clusters import Clusters
from towline.backends.tasks import Tasks
from towline.config.paths import Paths
from towline.config.settings import CleanupSettings
from towline.core.garbage import (
    DAY_S,
    Folder,
    Rules,
    folders_to_remove,
    folders_to_shrink,
    is_due,
    job_of,
)
from towline.engine.cleaning.cleaned import note_cleaned
from towline.engine.engine import Engine
from towline.errors import ConfigError, TowlineError
from towline.model.job import Job
from towline.model.names import shown_cluster
from towline.snapshot.sweep import sweep
from towline.store.snapshots_in_use import snapshots_in_use
from towline.workspace.base import Workspace

log = logging.getLogger("towline")

#: How long a machine that is asked by name is waited for.
_REACH_S = 20.0
#: Whatever the settings say, contents used within this time stay: a job may be on its way.
_IN_FLIGHT_S = 3600.0
#: Job folders of one machine that are looked at in one go.
_MOST_FOLDERS = 200_000
_FIRST_LOOK_S, _LOOK_EVERY_S = 60.0, 600.0
#: What this machine's own copies of snapshots are called in the diary.
_HERE = ""


class CleanedMachine(Struct):
    """What went from one machine, or would go."""

    machine: str
    jobs: list[int]
    folders: int = 0
    snapshots: int = 0
    blobs: int = 0
    bytes: int = 0
    #: Why nothing could be done, and what to do about it.
    error: str = ""
    hint: str = ""


class Housekeeping:
    """`is_idle` tells whether the Engine has nothing better to do; the workspace says how long what
    ended jobs left is kept."""

    def __init__(
        self,
        engine: Engine,
        fleet: Fleet,
        clusters: Clusters,
        paths: Paths,
        is_idle: Callable[[], bool],
        workspace: Workspace,
    ) -> None:
        self.engine = engine
        self.fleet = fleet
        self.clusters = clusters
        self.paths = paths
        self.is_idle = is_idle
        self.workspace = workspace
        self._diary = os.path.join(paths.home, "cleanup.json")
        self._alone = asyncio.Lock()
        self._tasks = Tasks("housekeeping", asks_again=False)

    # --- when asked --------------------------------------------------------------------------

    async def clean(self, dry_run: bool, everything: bool = False) -> Cleaned:
        """Every machine that was ever used, and this machine's own copies.

        `everything` is all that is home, however little time ago.
        """
        rules = _rules(self.workspace.cleanup())
        if everything:
            rules = Rules(after_s=-1.0, keep_bytes=0.0, recent_s=-1.0)
        unknown = {n for n in self.clusters.known() if not self.clusters.knows(n)}
        self.clusters.rejoin(unknown)
        async with self._alone:
            drivers = list(self.fleet.machines.values())
            work = [self._clean_machine(driver, rules, dry_run) for driver in drivers]
            removed = await asyncio.gather(*work)
            blobs = await self._clean_here(dry_run)
        return {
            "dry_run": dry_run,
            "machines": [msgspec.to_builtins(one) for one in removed],
            "here": {"blobs": len(blobs), "bytes": sum(blobs)},
        }

    async def _clean_machine(
        self, driver: MachineAccess, rules: Rules, dry_run: bool
    ) -> CleanedMachine:
        removed, called = CleanedMachine(driver.name, []), shown_cluster(driver.name)
        try:
            upkeep = await driver.upkeep(_REACH_S)
            folders, going, shrinking = await self._folders(upkeep, rules)
            if len(folders) > _MOST_FOLDERS:
                removed.error = f"{called}: only its first {len(folders)} job folders were seen"
            if not dry_run:
                await self._sync_results(going)
                gone = await upkeep.forget(folder.key for folder in going)
                going = [folder for folder in going if folder.key in gone]
                driver.forget_staged()
            self._count(removed, going)
            if not dry_run:
                await note_cleaned(self.engine, removed.jobs, driver.name)
                removed.bytes += await upkeep.shrink(folder.key for folder in shrinking)
            unused_s = max(rules.after_s, _IN_FLIGHT_S)
            without = [folder.key for folder in going] if dry_run else []
            keep = max(0.0, rules.keep_bytes - (_bytes(folders) - removed.bytes))
            swept = await upkeep.sweep(unused_s, _IN_FLIGHT_S, keep, dry_run, without)
            removed.snapshots, removed.blobs = swept.snapshots, swept.blobs
            removed.bytes += swept.bytes
        except TowlineError as error:
            removed.error, removed.hint = error.text, error.hint
        except Exception as error:
            log.exception("cleaning up %s", driver.name)
            removed.error = f"{called}: the Engine failed over it: {error!r}"
        return removed

    async def _sync_results(self, going: list[Folder]) -> None:
        """What came home must be on disk before the only other copy goes."""
        numbers = {job_of(folder.key, self.engine.store.engine_id) for folder in going}
        await self.workspace.receiver.sync(self._jobs(numbers).values())

    def _count(self, removed: CleanedMachine, going: list[Folder]) -> None:
        numbers = {job_of(folder.key, self.engine.store.engine_id) for folder in going}
        removed.jobs = sorted(number for number in numbers if number is not None)
        removed.folders = len(going)
        removed.bytes = _bytes(going)

    async def _folders(
        self, upkeep: MachineUpkeep, rules: Rules
    ) -> tuple[list[Folder], list[Folder], list[Folder]]:
        """The job folders on a machine, those that may go, and those that may shrink."""
        engine_id = self.engine.store.engine_id
        folders: list[Folder] = []
        jobs: dict[int, Job] = {}
        async for some in upkeep.folders(f"{engine_id}-"):
            folders += some
            jobs |= self._jobs({job_of(folder.key, engine_id) for folder in some} - jobs.keys())
            if len(folders) > _MOST_FOLDERS:
                break
        # While it was measured, a job may have been tried again.
        jobs |= {n: job for n, job in self.engine.core.jobs.items() if n in jobs}
        earlier = self.engine.store.attempts.tokens(jobs)
        now = self.engine.clock()
        going = folders_to_remove(folders, jobs, engine_id, now, rules, earlier)
        gone = {folder.key for folder in going}
        stay = [folder for folder in folders if folder.key not in gone]
        return folders, going, folders_to_shrink(stay, jobs, engine_id, earlier)

    def _jobs(self, numbers: set[int | None]) -> dict[int, Job]:
        known = self.engine.core.jobs
        found = ((n, known.get(n) or self.engine.store.job(n)) for n in numbers if n is not None)
        return {number: job for number, job in found if job is not None}

    async def _clean_here(self, dry_run: bool) -> list[int]:
        """The sizes of the contents that no remembered job needs."""
        before = self.engine.clock() - DAY_S
        return await asyncio.get_running_loop().run_in_executor(None, self._sweep, before, dry_run)

    def _sweep(self, before: float, dry_run: bool) -> list[int]:
        needed = snapshots_in_use(self.paths.store_file)
        return sweep(self.fleet.blobs, needed, before, dry_run)

    # --- without being asked -----------------------------------------------------------------

    def open(self) -> None:
        """From now on, look every few minutes whether it is time."""
        self._tasks.spawn(self._watch(), lambda error: self.open())

    async def _watch(self) -> None:
        await asyncio.sleep(_FIRST_LOOK_S)
        while True:
            try:
                await self.look()
            except Exception:
                log.exception("housekeeping")
            await asyncio.sleep(_LOOK_EVERY_S)

    async def look(self) -> None:
        """Clean whatever is due: only machines that are connected anyway."""
        try:
            settings = self.workspace.cleanup()
        except ConfigError:
            return  # every command that needs the configuration says what is wrong with it
        if not settings.automatic or self._alone.locked():
            return
        async with self._alone:
            for driver in list(self.fleet.machines.values()):
                if driver.is_connected and self._is_due(driver.name):
                    await self._clean_machine(driver, _rules(settings), dry_run=False)
            if self._is_due(_HERE):
                await self._clean_here(dry_run=False)

    def _is_due(self, name: str) -> bool:
        """Whether it is time; if so, that is written down first, so that it is not done twice."""
        now = self.engine.clock()
        diary = self._read_diary()
        # Where nothing was ever done, there is nothing old yet.
        due = is_due(diary[name], now, self.is_idle()) if name in diary else False
        if due or name not in diary:
            self._write_diary(diary | {name: now})
        return due

    def _read_diary(self) -> dict[str, float]:
        try:
            with open(self._diary, "rb") as file:
                return msgspec.json.decode(file.read(), type=dict[str, float])
        except (OSError, msgspec.DecodeError):
            return {}

    def _write_diary(self, diary: dict[str, float]) -> None:
        beside = f"{self._diary}.new"
        with open(beside, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(msgspec.json.encode(diary))
        os.replace(beside, self._diary)


def _rules(settings: CleanupSettings) -> Rules:
    return Rules(settings.after_days * DAY_S, settings.keep_mb * 1024 * 1024)


def _bytes(folders: list[Folder]) -> int:
    return sum(folder.bytes for folder in folders)
