"""From what is asked to what is accepted: check everything, freeze the folder, write it down."""

import asyncio
import contextlib
import heapq
import tempfile
import time
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from towline.api.jobs import Plan
from towline.backends.ahead import Ahead
from towline.backends.driver import Driver
from towline.backends.machines import Machines
from towline.backends.slurm.dialect import shown_words
from towline.backends.tasks import Tasks
from towline.config.load import Configuration
from towline.config.settings import (
    Cluster,
    Config,
    MachineEntry,
    MachinesCluster,
    SlurmCluster,
    SnapshotSettings,
)
from towline.core.scheduling.scheduler import Waiting
from towline.engine.ask import (
    JobAsk,
    check_included,
    checked_folder,
    cluster_of,
    snapshot_settings,
    spec_from,
)
from towline.engine.clusters import Clusters
from towline.engine.engine import Engine, request_of
from towline.engine.keys import Keys
from towline.engine.results.kept import fetch_kept
from towline.errors import ConfigError, HostError, Impossible, TowlineError, UsageError
from towline.hosts.ssh import needs_person
from towline.model.events import StopAsked
from towline.model.job import Job, JobSpec
from towline.model.odd_text import keepable
from towline.snapshot.branch import Recorded, record
from towline.snapshot.collecting import Offer
from towline.snapshot.folder import only_these
from towline.snapshot.take import HashCache, Snapshot, take_snapshot

#: How long a submission waits for machines that were never met before.
_FIRST_MEETING_S = 20.0
#: How long one waits for other clusters, to say whether they could do what this one cannot.
_LOOK_ELSEWHERE_S = 5.0
#: Of a larger folder the reading is what takes time, and done once.
_REHEARSED_MB = 8.0
_LARGEST = 10
#: Files over this are named before they travel: often nobody meant to send them.
_LARGE = 50 * 1024 * 1024
_MOST_CHANGED = 200


class Frozen(Struct, frozen=True):
    """A folder at the moment of submission."""

    snapshot: Snapshot
    recorded: Recorded


class Intake:
    def __init__(
        self,
        engine: Engine,
        machines: Machines,
        clusters: Clusters,
        configuration: Configuration,
        owner: str,
    ) -> None:
        self.engine = engine
        #: Submissions under way.
        self.keys = Keys()
        self.machines = machines
        self.clusters = clusters
        self.configuration = configuration
        self.owner = owner
        self.hashes = HashCache()
        self._tasks = Tasks("submissions")

    def config(self, cwd: str | None, cluster: str | None = None) -> Config:
        """The configuration, with the cluster that is asked for though it may not be in it."""
        config = self.configuration.in_folder(cwd)
        made = self.clusters.remembered(cluster) if cluster else None
        if made is None or not cluster:
            return config
        return replace(config, clusters={**config.clusters, cluster: made})

    async def ad_hoc(self, cwd: str, entries: list[MachineEntry]) -> str:
        """The name of a cluster of just these machines."""
        return await self.clusters.ad_hoc(entries, self.config(checked_folder(cwd)))

    def group(self) -> "_Group":
        """Jobs that are submitted together."""
        return _Group(self)

    def join(self, cwd: str | None, name: str | None) -> tuple[str, list[Driver]]:
        """Make sure a cluster's machines are (being) connected."""
        config = self.config(cwd, name)
        name, cluster = cluster_of(name, config)
        return name, self.join_as(name, cluster, config, self.configuration.source_of(name, cwd))

    def join_as(
        self, name: str, cluster: Cluster, config: Config, source: str = ""
    ) -> list[Driver]:
        """Join a cluster that is, or will be, defined by this file."""
        source = source or self.configuration.user_file
        if isinstance(cluster, SlurmCluster):
            return [self.clusters.join_slurm(name, cluster, source)]
        if not isinstance(cluster, MachinesCluster):
            return []
        self.clusters.join(name, cluster, config, source)
        return [self.clusters.driver_of(entry) for entry in cluster.entries()]

    async def submit(self, asks: Iterable[JobAsk], key: str = "") -> list[Job]:
        """Accept jobs; when this returns they are on disk.

        A `key` makes it safe to ask again after a lost answer: the same key is the same jobs.
        """
        async with self.keys.alone(key):
            ids: Sequence[int] = self.engine.store.submission(key) if key else ()
            if not ids:
                group = self.group()
                specs = [await group.accept(ask) for ask in asks]
                ids = await self.engine.submit(specs, key)
            return [self.engine.job(job_id) for job_id in ids]

    async def plan(self, ask: JobAsk) -> Plan:
        """What would be sent, and where it would go; nothing is done."""
        config = self.config(checked_folder(ask.cwd), ask.cluster)
        spec = spec_from(ask, config, self.owner)
        why = await self.check_possible(spec, ask.cwd)
        snapshot = await self.snapshot(ask.cwd, snapshot_settings(ask, config))
        check_included(ask.include, [entry[0] for entry in snapshot.entries], ask.cwd)
        now = self.engine.clock()
        placement = None
        if spec.queue is None:
            placement, why = self.engine.core.scheduler.plan(_waiting(spec, now), now)
        return {
            "cluster": spec.cluster,
            "request": spec.request,
            "command": ask.argv,
            "placement": None
            if placement is None
            else [{"machine": slot.machine, "gpus": list(slot.gpus)} for slot in placement],
            "why": why,
            "queue": None if spec.queue is None else shown_words(spec.title, spec.queue),
            "files": snapshot.files,
            "bytes": snapshot.bytes,
            "largest": [[path, size] for path, size in largest(snapshot)],
            "env": sorted(spec.env),
            "folder": snapshot.subfolder,
        }

    def rehearse(self, ask: JobAsk, config: Config, spec: JobSpec) -> None:
        """Read the folder already while machines are being connected, and ask them for it.

        What counts is the folder as it is when they have been met; mostly it is the same.
        """
        _, drivers = self.join(ask.cwd, spec.cluster)
        waiting = [driver for driver in drivers if driver.link is None]
        if waiting and not spec.in_place:
            settings = snapshot_settings(ask, config)
            settings = replace(settings, limit_mb=min(settings.limit_mb, _REHEARSED_MB))
            taking = self._rehearse(ask.cwd, settings, waiting)
            self._tasks.spawn(taking, lambda error: None)

    async def _rehearse(self, cwd: str, settings: SnapshotSettings, waiting: list[Driver]) -> None:
        with contextlib.suppress(TowlineError, OSError):  # it is told when it counts
            taken = await self.snapshot(cwd, settings)
            for driver in waiting if taken.entries else ():
                driver.expect(taken.id)

    async def check_possible(self, spec: JobSpec, cwd: str) -> str:
        """Refuse at once what its cluster can never do; what the cluster's own queue says to it."""
        _, drivers = self.join(cwd, spec.cluster)
        await self._meet(drivers)
        if spec.queue is not None:
            return await self.clusters.slurm.check_possible(spec.cluster, spec.queue)
        scheduler = self.engine.core.scheduler
        problem = scheduler.impossible(spec.cluster, request_of(spec.request), spec.owner)
        if problem and all(self.machines.is_seen(driver.name) for driver in drivers):
            could = await self._who_could(spec, cwd)
            hint = f"tow machines -c {spec.cluster} shows what there is"
            raise Impossible(
                problem, f"{' and '.join(could)} can: -c {could[0]}" if could else hint
            )
        return ""

    async def _who_could(self, spec: JobSpec, cwd: str) -> list[str]:
        """The other clusters of machines that can take a job, as far as they answer soon."""
        clusters: dict[str, list[Driver]] = {}
        for name, cluster in self.config(cwd).clusters.items():
            if name != spec.cluster and isinstance(cluster, MachinesCluster):
                # What is wrong with another cluster is not what was asked about.
                with contextlib.suppress(ConfigError):
                    clusters[name] = self.join(cwd, name)[1]
        silent = [d for drivers in clusters.values() for d in drivers if not (d.link or d.error)]
        tries = [driver.reach(_LOOK_ELSEWHERE_S, patient=False) for driver in silent]
        await asyncio.gather(*tries, return_exceptions=True)
        # What they said is among the facts that this waits for.
        await self.engine.tell(StopAsked(()))
        request, scheduler = request_of(spec.request), self.engine.core.scheduler
        return [
            name
            for name, drivers in clusters.items()
            if any(self.machines.is_seen(driver.name) for driver in drivers)
            and not scheduler.impossible(name, request, spec.owner)
        ]

    async def _meet(self, drivers: list[Driver]) -> None:
        """Wait for machines never met before; if none can be used, say why instead of waiting."""
        strangers = [driver for driver in drivers if not self.machines.is_seen(driver.name)]
        known = len(strangers) < len(drivers)
        if known:
            # There is somewhere to go: one that failed before is not waited for again.
            strangers = [driver for driver in strangers if driver.error is None]
        if not strangers:
            return
        tries = [driver.reach(_FIRST_MEETING_S, patient=False) for driver in strangers]
        outcomes: list[Any] = await asyncio.gather(*tries, return_exceptions=True)
        await asyncio.sleep(0)
        errors = [outcome for outcome in outcomes if isinstance(outcome, HostError)]
        if errors and len(errors) == len(strangers) and not known:
            raise next((e for e in errors if needs_person(e)), errors[0])

    async def snapshot(
        self, cwd: str, settings: SnapshotSettings, offer: Offer | None = None
    ) -> Snapshot:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            None, take_snapshot, cwd, settings, self.hashes, self.machines.blobs, offer
        )

    async def freeze(self, ask: JobAsk, config: Config, spec: JobSpec) -> Frozen:
        """The folder as it is now, as content and as git calls it; both at the same time."""
        loop = asyncio.get_running_loop()
        recording = loop.run_in_executor(None, record, ask.cwd, spec.title, time.time(), ask.branch)
        settings, offer = snapshot_settings(ask, config), self._offer(spec)
        snapshot, recorded = await asyncio.gather(
            self.snapshot(ask.cwd, settings, offer), recording
        )
        check_included(ask.include, [entry[0] for entry in snapshot.entries], ask.cwd)
        return Frozen(snapshot, recorded)

    def _offer(self, spec: JobSpec) -> Offer | None:
        """Where only one machine can get the job, what is read goes there at once."""
        members = self.machines.members.items()
        names = [name for name, member in members if spec.cluster in member.clusters]
        if len(names) != 1 or spec.in_place or names[0] not in self.machines.drivers:
            return None
        link = self.machines.drivers[names[0]].link
        return None if link is None else Ahead(link).offer

    async def kept(self, job_id: int) -> str:
        """Snapshot id of a job's `keep` folder as it is now; "" if there is nothing in it."""
        job = self.engine.job(job_id)
        with tempfile.TemporaryDirectory(dir=self.machines.blobs.root) as folder:
            await fetch_kept(self.machines, job, folder)
            # All of it, even if the Engine's home lies in a repository.
            settings = only_these(SnapshotSettings(limit_mb=1e9), ["."])
            taken = await self.snapshot(folder, settings)
        return taken.id if taken.entries else ""

    def only_here(self, cluster: str) -> bool:
        members = [m for m in self.machines.members.values() if cluster in m.clusters]
        return all(member.host.login() is None for member in members)

    def runs_here(self, cluster: str) -> bool:
        """A job on this very machine gets the environment it was submitted from."""
        return any(
            cluster in member.clusters and member.host.login() is None
            for member in self.machines.members.values()
        )


class _Group:
    """Jobs submitted together: what they share is looked at once."""

    def __init__(self, intake: Intake) -> None:
        self.intake = intake
        self._folders: dict[tuple[str, str], tuple[Config, Frozen]] = {}
        self._possible: set[str] = set()
        self._environments: dict[int, str] = {}
        self._keeps: dict[int, str] = {}

    async def accept(self, ask: JobAsk) -> JobSpec:
        intake = self.intake
        folder = (ask.cwd, repr((ask.include, ask.exclude, ask.only, ask.branch)))
        if folder not in self._folders:
            config = intake.config(checked_folder(ask.cwd), ask.cluster)
            spec = spec_from(ask, config, intake.owner)
            intake.rehearse(ask, config, spec)
            # Everything that can be wrong is found before the folder is frozen.
            await self._check(spec, ask.cwd)
            self._folders[folder] = config, await intake.freeze(ask, config, spec)
        config, frozen = self._folders[folder]
        spec = spec_from(ask, config, intake.owner)
        await self._check(spec, ask.cwd)
        if spec.in_place and not intake.only_here(spec.cluster):
            raise UsageError(
                f"--in-place runs in the folder itself, but cluster {spec.cluster!r} is elsewhere",
                hint="use it on this machine: -c local",
            )
        if ask.continued:
            spec = replace(spec, keep=await self._kept(ask.continued))
        return self._complete(spec, frozen, await self._environment(spec, ask))

    async def _kept(self, job_id: int) -> str:
        """What an earlier job left in its `keep` folder, as a snapshot; fetched once."""
        if job_id not in self._keeps:
            self._keeps[job_id] = await self.intake.kept(job_id)
        return self._keeps[job_id]

    async def _check(self, spec: JobSpec, cwd: str) -> None:
        asked = repr((cwd, spec.cluster, spec.request, spec.queue))
        if asked not in self._possible:
            await self.intake.check_possible(spec, cwd)
            self._possible.add(asked)

    def _complete(self, spec: JobSpec, frozen: Frozen, environment: str) -> JobSpec:
        snapshot, recorded = frozen.snapshot, frozen.recorded
        changed = recorded.changed[:_MOST_CHANGED]
        return replace(
            spec,
            snapshot=snapshot.id if snapshot.entries else "",
            subfolder=keepable(snapshot.subfolder),
            environment=environment,
            commit=recorded.commit,
            branch=recorded.branch,
            changed=tuple((letter, keepable(path)) for letter, path in changed),
            files=snapshot.files,
            bytes=snapshot.bytes,
            large=tuple(
                (keepable(path), size) for path, size in largest(snapshot) if size > _LARGE
            ),
        )

    async def _environment(self, spec: JobSpec, ask: JobAsk) -> str:
        if not self.intake.runs_here(spec.cluster):
            return ""
        known = self._environments.get(id(ask.environ))
        if known is None:
            engine = self.intake.engine
            known = await engine.in_turn(lambda: engine.store.remember_environment(ask.environ))
            self._environments[id(ask.environ)] = known
        return known


def largest(snapshot: Snapshot) -> list[tuple[str, int]]:
    """The largest files of a snapshot, with their sizes."""
    files = [entry for entry in snapshot.entries if entry[1] in "fx"]
    sized = ((path, snapshot.sizes[digest]) for path, _, digest in files)
    return heapq.nlargest(_LARGEST, sized, key=lambda item: item[1])


def _waiting(spec: JobSpec, now: float) -> Waiting:
    return Waiting(
        id=0,
        cluster=spec.cluster,
        request=request_of(spec.request),
        owner=spec.owner,
        priority=spec.priority,
        submitted=now,
        time_s=spec.time_s,
    )
