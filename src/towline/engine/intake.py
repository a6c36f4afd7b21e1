"""From what is asked to what is accepted: check everything, have it frozen, write it down."""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from towline.api.jobs import PlanView
from towline.backends.base import Fleet, MachineAccess
from towline.backends.clusters import Clusters
from towline.backends.registry import KINDS, shown_words
from towline.backends.tasks import Tasks
from towline.config.settings import (
    Cluster,
    Config,
    MachinesCluster,
    QueueCluster,
    ServerCluster,
)
from towline.core.scheduling.scheduler import Waiting
from towline.engine.batches.batches import Wish
from towline.engine.chains import after_from
from towline.engine.engine import Engine, request_of
from towline.engine.keys import Keys
from towline.engine.lookup import job_for
from towline.engine.obstacle_words import never_fits, planned
from towline.engine.results.kept import fetch_kept
from towline.errors import (
    AgentError,
    ConfigError,
    EnvironmentWanted,
    HostError,
    Impossible,
    UsageError,
)
from towline.hosts.ssh import needs_person
from towline.model.events import StopAsked
from towline.model.job import Job, JobSpec, Queueing
from towline.model.odd_text import original
from towline.model.principal import Principal
from towline.model.units import format_duration
from towline.workspace.base import (
    BatchDraft,
    Draft,
    Frozen,
    Offer,
    Places,
    Submission,
    Workspace,
)

#: How long a submission waits for machines that were never met before.
_FIRST_MEETING_S = 20.0
#: How long one waits for other clusters, to say whether they could do what this one cannot.
_LOOK_ELSEWHERE_S = 5.0


class Intake:
    def __init__(
        self,
        engine: Engine,
        fleet: Fleet,
        clusters: Clusters,
        workspace: Workspace,
    ) -> None:
        self.engine = engine
        #: Submissions under way.
        self.keys = Keys()
        self.fleet = fleet
        self.clusters = clusters
        self.workspace = workspace
        self._tasks = Tasks("submissions")

    def config(self, places: Places, cluster: str | None = None) -> Config:
        """The configuration, with the cluster that is asked for though it may not be in it."""
        config = places.config
        made = self.clusters.remembered(cluster) if cluster else None
        if made is None or not cluster:
            return config
        return replace(config, clusters={**config.clusters, cluster: made})

    def group(self, who: Principal) -> "_Group":
        """Jobs that are submitted together."""
        return _Group(self, who)

    def join(self, places: Places, name: str | None) -> tuple[str, list[MachineAccess]]:
        """Make sure a cluster's machines are (being) connected."""
        config = self.config(places, name)
        name, cluster = replace(places, config=config).cluster(name)
        return name, self.join_as(name, cluster, config, places.source(name))

    def join_as(
        self, name: str, cluster: Cluster, config: Config, source: str
    ) -> list[MachineAccess]:
        """Join a cluster that is, or will be, defined by this file."""
        if isinstance(cluster, ServerCluster) or cluster.kind not in KINDS:
            return []
        if isinstance(cluster, QueueCluster):
            return [self.clusters.join_queue(name, cluster, source)]
        self.clusters.join(name, cluster, config, source)
        return [self.clusters.driver_of(entry) for entry in cluster.entries()]

    async def submit(self, who: Principal, drafts: Iterable[Draft], key: str = "") -> list[Job]:
        """Accept jobs; when this returns they are on disk.

        A `key` makes it safe to ask again after a lost answer: the same key is the same jobs.
        """
        async with self.keys.alone(who.name, key):
            ids: Sequence[int] = self.engine.store.submission(who.name, key) if key else ()
            if not ids:
                group = self.group(who)
                specs = [await group.accept(draft) for draft in list(drafts)]
                ids = await self.engine.submit(specs, key)
            return [self.engine.job(job_id) for job_id in ids]

    async def batch(self, who: Principal, draft: BatchDraft) -> Wish:
        """Find what can be wrong with a batch, then freeze its folder; it is not accepted yet."""
        group, lines = self.group(who), list(draft.lines)
        spec = await group.accept(draft.base)
        for place, other in draft.own.items():
            own = await group.accept(other)
            lines[place] = replace(
                lines[place],
                snapshot=own.snapshot,
                subfolder=own.subfolder,
                files=own.files,
                bytes=own.bytes,
            )
        queue = _queueing(spec, draft.max_parallel)
        # What a failure is to stop must not have begun while word of it travels.
        capped = queue is None and not draft.fail_fast
        at_most = draft.max_parallel if capped else 0
        return Wish(
            name=draft.name,
            base=replace(spec, argv=(), title="", queue=queue, at_most=at_most),
            lines=lines,
            max_parallel=draft.max_parallel,
            fail_fast=draft.fail_fast,
        )

    async def plan(self, draft: Draft) -> PlanView:
        """What would be sent, and where it would go; nothing is done."""
        spec = draft.spec
        why = await self.check_possible(draft)
        measured = await draft.measure()
        now = self.engine.clock()
        placement = None
        if spec.queue is None:
            found = self.engine.core.scheduler.plan(_waiting(spec, now), now)
            placement, why = planned(found)
        return {
            "cluster": spec.cluster,
            "request": spec.request,
            "command": [original(word) for word in spec.argv],
            "placement": None
            if placement is None
            else [{"machine": slot.machine, "gpus": list(slot.gpus)} for slot in placement],
            "why": why,
            "queue": None if spec.queue is None else shown_words(spec.title, spec.queue),
            "files": measured.files,
            "bytes": measured.bytes,
            "largest": [[path, size] for path, size in measured.largest],
            "env": sorted(spec.env),
            "folder": measured.subfolder,
        }

    def rehearse(self, draft: Draft) -> None:
        """Have the folder read already while machines are being connected, and ask them for it.

        What counts is the folder as it is when they have been met; mostly it is the same.
        """
        _, drivers = self.join(draft.places, draft.spec.cluster)
        waiting = [driver for driver in drivers if not driver.is_connected]
        if waiting and not draft.spec.in_place:
            self._tasks.spawn(_rehearse(draft, waiting), lambda error: None)

    async def check_possible(self, draft: Draft) -> str:
        """Refuse at once what its cluster can never do; what the cluster's own queue says to it."""
        spec = draft.spec
        _, drivers = self.join(draft.places, spec.cluster)
        await self._meet(drivers)
        if spec.queue is not None:
            return await self.fleet.check_possible(spec.cluster, spec.queue)
        if not drivers:
            raise Impossible(f"the cluster {spec.cluster} has no machine", "")
        if spec.sandbox is not None:
            await _check_walls(spec.cluster, drivers)
        scheduler = self.engine.core.scheduler
        problem = scheduler.impossible(spec.cluster, request_of(spec.request), spec.owner)
        longest_s = scheduler.rules.longest_s(spec.owner)
        if longest_s and spec.time_s > longest_s:
            text = f"jobs of {spec.owner} may run for {format_duration(longest_s)} at most"
            raise Impossible(text, "ask for less: --time")
        if problem and all(self._is_known(driver.name) for driver in drivers):
            could = await self._who_could(spec, draft.places)
            hint = f"tow machines -c {spec.cluster} shows what there is"
            raise Impossible(
                never_fits(problem), f"{' and '.join(could)} can: -c {could[0]}" if could else hint
            )
        return ""

    async def _who_could(self, spec: JobSpec, places: Places) -> list[str]:
        """The other clusters of machines that can take a job, as far as they answer soon."""
        clusters: dict[str, list[MachineAccess]] = {}
        for name, cluster in places.config.clusters.items():
            if name != spec.cluster and isinstance(cluster, MachinesCluster):
                # What is wrong with another cluster is not what was asked about.
                with contextlib.suppress(ConfigError):
                    clusters[name] = self.join(places, name)[1]
        silent = [
            d for drivers in clusters.values() for d in drivers if not (d.is_connected or d.error)
        ]
        tries = [driver.reach(_LOOK_ELSEWHERE_S, patient=False) for driver in silent]
        await asyncio.gather(*tries, return_exceptions=True)
        # What they said is among the facts that this waits for.
        await self.engine.tell(StopAsked(()))
        request, scheduler = request_of(spec.request), self.engine.core.scheduler
        return [
            name
            for name, drivers in clusters.items()
            if any(self.fleet.is_seen(driver.name) for driver in drivers)
            and not scheduler.impossible(name, request, spec.owner)
        ]

    def _is_known(self, name: str) -> bool:
        """Whether it is known what a machine has, be it from before a restart."""
        host = self.engine.core.scheduler.machines.hosts.get(self.fleet.counts_as(name))
        return self.fleet.is_seen(name) or (host is not None and host.machine is not None)

    async def _meet(self, drivers: list[MachineAccess]) -> None:
        """Wait for machines never met before; if none can be used, say why instead of waiting."""
        strangers = [driver for driver in drivers if not self._is_known(driver.name)]
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

    def offer(self, spec: JobSpec) -> Offer | None:
        """Where only one machine can get the job, what is read goes there at once."""
        return None if spec.in_place else self.fleet.offer_ahead(spec.cluster)

    def only_here(self, cluster: str) -> bool:
        return all(one.host.login() is None for one in self.fleet.machines_in(cluster))

    def runs_here(self, cluster: str) -> bool:
        """A job on this very machine gets the environment it was submitted from."""
        return any(one.host.login() is None for one in self.fleet.machines_in(cluster))


class _Group:
    """Jobs submitted together: what they share is looked at once."""

    def __init__(self, intake: Intake, who: Principal) -> None:
        self.intake = intake
        self.who = who
        self._trees: dict[str, Frozen] = {}
        self._possible: set[str] = set()
        self._environments: dict[int, str] = {}
        self._keeps: dict[int, str] = {}

    async def accept(self, draft: Draft) -> JobSpec:
        """Find everything that can be wrong before the folder is frozen."""
        intake, spec = self.intake, draft.spec
        fresh = draft.tree not in self._trees
        if fresh:
            intake.rehearse(draft)
        await self._check(draft)
        if draft.environ is None and intake.runs_here(spec.cluster):
            # It is on its way only now that it is certain that it stays on this machine.
            raise EnvironmentWanted(
                f"a job on {spec.cluster!r} gets the environment that it is submitted from",
                hint="send it along, as `environ`",
            )
        if spec.in_place and not intake.only_here(spec.cluster):
            raise UsageError(
                f"--in-place runs in the folder itself, but cluster {spec.cluster!r} is elsewhere",
                hint="use it on this machine: -c local",
            )
        if fresh:
            self._trees[draft.tree] = await draft.freeze(intake.offer(spec))
        return await self.complete(draft.submission(self._trees[draft.tree]))

    async def complete(self, submission: Submission) -> JobSpec:
        """Add to what was submitted what only the Engine knows."""
        spec, frozen = submission.spec, submission.frozen
        if submission.continued:
            job = job_for(self.who, submission.continued, self.intake.engine)
            spec = replace(spec, keep=await self._kept(job))
        return replace(
            spec,
            after=after_from(self.who, submission.after, self.intake.engine),
            snapshot=frozen.snapshot,
            subfolder=frozen.subfolder,
            environment=await self._environment(spec, submission.environ),
            commit=frozen.commit,
            branch=frozen.branch,
            changed=frozen.changed,
            files=frozen.files,
            bytes=frozen.bytes,
            large=frozen.large,
        )

    async def _kept(self, job: Job) -> str:
        """What an earlier job left in its `keep` folder, as a snapshot; fetched once."""
        if job.id not in self._keeps:
            self._keeps[job.id] = await fetch_kept(self.intake.fleet, job)
        return self._keeps[job.id]

    async def _check(self, draft: Draft) -> None:
        spec = draft.spec
        asked = repr((id(draft.places), spec.cluster, spec.request, spec.queue))
        if asked not in self._possible:
            await self.intake.check_possible(draft)
            self._possible.add(asked)

    async def _environment(self, spec: JobSpec, environ: Mapping[str, str]) -> str:
        """The submitter's own, where the job runs on the submitter's machine; nowhere else."""
        if not self.intake.runs_here(spec.cluster):
            return ""
        known = self._environments.get(id(environ))
        if known is None:
            engine = self.intake.engine
            known = await engine.in_turn(lambda: engine.store.remember_environment(environ))
            self._environments[id(environ)] = known
        return known


async def _rehearse(draft: Draft, waiting: list[MachineAccess]) -> None:
    snapshot = await draft.rehearse()
    for driver in waiting if snapshot else ():
        driver.expect(snapshot)


def _queueing(spec: JobSpec, max_parallel: int) -> Queueing | None:
    """Where jobs of one process are queued together, the queue sees to how many run at a time."""
    if spec.queue is None or request_of(spec.request).process_count > 1:
        return spec.queue
    return replace(spec.queue, at_once=max_parallel)


async def _check_walls(cluster: str, drivers: Iterable[MachineAccess]) -> None:
    """Refuse what is to be walled in where no machine can do that; one that does not answer says so
    when the job comes to it."""
    why = {}
    for driver in drivers:
        if not driver.is_connected:
            return
        try:
            walls = await (await driver.upkeep(_FIRST_MEETING_S)).walls()
        except (AgentError, HostError):
            return
        if not walls.why:
            return
        why[driver.name] = walls.why
    said = "; ".join(f"{name}: {text}" for name, text in why.items())
    raise Impossible(f"no machine of {cluster} can wall in jobs: {said}", "see docs/sandbox.md")


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
