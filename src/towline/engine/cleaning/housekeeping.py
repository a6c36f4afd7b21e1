"""Remove what ended jobs left behind: when asked, and once a day without being asked.

Folders of jobs go by the rules of core/garbage.py. Snapshots and contents go when nothing refers to
them any more and nobody used them for a while. The jobs themselves stay remembered.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
from msgspec import Struct

from towline.agent.link import Link
from towline.api.places import Cleaned
from towline.backends.driver import Driver
from towline.backends.machines import Machines
from towline.backends.tasks import Tasks
from towline.config.load import load_config
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
from towline.engine.clusters import Clusters
from towline.engine.engine import Engine
from towline.errors import AgentError, ConfigError, TowlineError
from towline.model.job import Job
from towline.model.names import shown_cluster
from towline.model.odd_text import original
from towline.snapshot.sweep import sweep
from towline.snapshot.syncing import sync_file_systems
from towline.store.needed import snapshots_needed

log = logging.getLogger("towline")

#: How long a machine that is asked by name is waited for.
_REACH_S = 20.0
#: Whatever the settings say, contents used within this time stay: a job may be on its way.
_IN_FLIGHT_S = 3600.0
_MANY = 500
#: Job folders of one machine that are looked at in one go.
_MOST_FOLDERS = 200_000
_FIRST_LOOK_S, _LOOK_EVERY_S = 60.0, 600.0
#: What this machine's own copies of snapshots are called in the diary.
_HERE = ""


class Removed(Struct):
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
    """`is_idle` tells whether the Engine has nothing better to do."""

    def __init__(
        self,
        engine: Engine,
        machines: Machines,
        clusters: Clusters,
        paths: Paths,
        is_idle: Callable[[], bool],
    ) -> None:
        self.engine = engine
        self.machines = machines
        self.clusters = clusters
        self.paths = paths
        self.is_idle = is_idle
        self._diary = os.path.join(paths.home, "cleanup.json")
        self._alone = asyncio.Lock()
        self._tasks = Tasks("housekeeping", asks_again=False)

    # --- when asked --------------------------------------------------------------------------

    async def clean(self, dry_run: bool, everything: bool = False) -> Cleaned:
        """Every machine that was ever used, and this machine's own copies.

        `everything` is all that is home, however little time ago.
        """
        settings = load_config(self.paths.config_file).cleanup
        rules = _rules(settings)
        if everything:
            rules = Rules(after_s=-1.0, keep_bytes=0.0, recent_s=-1.0)
        unknown = {n for n in self.clusters.known() if not self.clusters.knows(n)}
        self.clusters.rejoin(unknown)
        async with self._alone:
            drivers = list(self.machines.drivers.values())
            work = [self._clean_machine(driver, rules, dry_run) for driver in drivers]
            removed = await asyncio.gather(*work)
            blobs = await self._clean_here(dry_run)
        return {
            "dry_run": dry_run,
            "machines": [msgspec.to_builtins(one) for one in removed],
            "here": {"blobs": len(blobs), "bytes": sum(blobs)},
        }

    async def _clean_machine(self, driver: Driver, rules: Rules, dry_run: bool) -> Removed:
        removed, called = Removed(driver.name, []), shown_cluster(driver.name)
        try:
            link = await driver.reach(_REACH_S, patient=False)
            folders, going, shrinking = await self._folders(called, link, rules)
            if len(folders) > _MOST_FOLDERS:
                removed.error = f"{called}: only its first {len(folders)} job folders were seen"
            if not dry_run:
                await self._sync_results(going)
                going = await _forget(link, going)
                driver.forget_staged()
            self._count(removed, going)
            if not dry_run:
                await note_cleaned(self.engine, removed.jobs, driver.name)
                removed.bytes += await _shrink(link, shrinking)
            unused_s = max(rules.after_s, _IN_FLIGHT_S)
            without = [folder.key for folder in going] if dry_run else []
            keep = max(0.0, rules.keep_bytes - (_bytes(folders) - removed.bytes))
            wish: dict[str, Any] = {"unused_s": unused_s, "full_s": _IN_FLIGHT_S, "keep": keep}
            swept, _ = await link.ask("sweep", dry=dry_run, without=without, **wish)
            removed.snapshots, removed.blobs = swept["snapshots"], swept["blobs"]
            removed.bytes += swept["bytes"]
        except TowlineError as error:
            removed.error, removed.hint = error.text, error.hint
        except Exception as error:
            log.exception("cleaning up %s", driver.name)
            removed.error = f"{called}: the Engine failed over it: {error!r}"
        return removed

    async def _sync_results(self, going: list[Folder]) -> None:
        """What came home must be on disk before the only other copy goes."""
        numbers = {job_of(folder.key, self.engine.store.engine_id) for folder in going}
        homes = {job.spec.folder for job in self._jobs(numbers).values() if job.results}
        if homes:
            places = [original(home) for home in homes] + [self.paths.home]
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, sync_file_systems, places)

    def _count(self, removed: Removed, going: list[Folder]) -> None:
        numbers = {job_of(folder.key, self.engine.store.engine_id) for folder in going}
        removed.jobs = sorted(number for number in numbers if number is not None)
        removed.folders = len(going)
        removed.bytes = _bytes(going)

    async def _folders(
        self, name: str, link: Link, rules: Rules
    ) -> tuple[list[Folder], list[Folder], list[Folder]]:
        """The job folders on a machine, those that may go, and those that may shrink."""
        engine_id = self.engine.store.engine_id
        folders: list[Folder] = []
        jobs: dict[int, Job] = {}
        async for some in _pages(name, link, f"{engine_id}-"):
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
        needed = snapshots_needed(self.paths.store_file)
        return sweep(self.machines.blobs, needed, before, dry_run)

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
            settings = load_config(self.paths.config_file).cleanup
        except ConfigError:
            return  # every command that needs the configuration says what is wrong with it
        if not settings.automatic or self._alone.locked():
            return
        async with self._alone:
            for driver in list(self.machines.drivers.values()):
                if driver.link is not None and self._is_due(driver.name):
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


async def _pages(name: str, link: Link, prefix: str) -> AsyncIterator[list[Folder]]:
    """The job folders of ours on a machine, by key, some at a time."""
    after, more = "", True
    while more:
        answer, _ = await link.ask("sizes", prefix=prefix, after=after)
        some = [Folder(*entry) for entry in answer["folders"]]
        more = answer["more"]
        if more and not (some and some[-1].key > after):
            raise AgentError(f"{name}: its agent lists the same job folders over and over")
        after = some[-1].key if some else after
        yield some


async def _shrink(link: Link, folders: list[Folder]) -> int:
    """Leave only what the jobs made; the bytes that went."""
    freed = 0
    for at in range(0, len(folders), _MANY):
        keys = [folder.key for folder in folders[at : at + _MANY]]
        answer, _ = await link.ask("shrink", keys=keys)
        freed += answer["bytes"]
    return freed


async def _forget(link: Link, going: list[Folder]) -> list[Folder]:
    """Those that really went: the machine keeps what has not ended there."""
    gone: set[str] = set()
    for at in range(0, len(going), _MANY):
        keys = [folder.key for folder in going[at : at + _MANY]]
        answer, _ = await link.ask("forget", keys=keys)
        gone.update(answer["forgotten"])
    return [folder for folder in going if folder.key in gone]
