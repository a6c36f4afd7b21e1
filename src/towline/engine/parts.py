"""The parts that an Engine is made of, joined: what its process opens and closes."""

from towline.backends.base import Fleet
from towline.backends.clusters import Clusters
from towline.backends.router import Backends
from towline.config.paths import Paths
from towline.engine.batches.batches import Batches
from towline.engine.cleaning.housekeeping import Housekeeping
from towline.engine.cleaning.removing import Removing
from towline.engine.engine import Engine
from towline.engine.forwards import Forwards
from towline.engine.intake import Intake
from towline.engine.live_views import LiveViews
from towline.engine.machines.whats_free import WhatsFree
from towline.engine.results.results import ResultsHome
from towline.engine.samples import SampleKeeper
from towline.engine.services import Services
from towline.errors import NotFound
from towline.workspace.base import Workspace


class EngineParts:
    """Whoever is not the Engine itself asks them through its API, which knows for whom."""

    def __init__(
        self,
        engine: Engine,
        backends: Backends,
        paths: Paths,
        workspace: Workspace,
        *,
        opens_ports: bool = True,
    ) -> None:
        """`opens_ports`: jobs' services are reached on ports of this machine."""
        self.engine = engine
        self.fleet: Fleet = backends
        self.paths = paths
        self.clusters = Clusters(backends, engine.store, paths, self._has_jobs, engine.soon)
        self.forwards = Forwards(engine, backends)
        self.views = LiveViews(engine, backends)
        #: Requests that are being answered.
        self.in_flight = 0
        self.intake = Intake(engine, backends, self.clusters, workspace)
        self.whats_free = WhatsFree(engine, backends, self.clusters, self.intake)
        self.batches = Batches(engine, self.views.away)
        self.results = ResultsHome(engine, backends, workspace.receiver, paths.home)
        self.samples = SampleKeeper(engine)
        backends.hear_use(self.samples.take, self.samples.take_readings)
        self.removing = Removing(engine, backends, workspace.receiver)
        self.housekeeping = Housekeeping(
            engine, backends, self.clusters, paths, self.is_idle, workspace
        )
        engine.backend = backends
        self.services = Services(engine, backends, opens_ports)

    async def open(self) -> None:
        """Take up what an earlier Engine left."""
        unfinished = self.engine.store.unfinished()
        forwards = self.engine.store.forwards()
        forwarded = (self.engine.store.job(number) for _, number, _ in forwards)
        jobs = [*unfinished, *filter(None, forwarded)]
        batches = self.engine.store.batches.unfinished()
        clusters = {job.spec.cluster for job in jobs} | {batch.base.cluster for batch in batches}
        attempts = [job.attempt for job in jobs if job.attempt and not job.spec.queue]
        attempts += [attempt for _, attempt in self.engine.store.attempts.given_up()]
        # First, so that the names by which they know their machines still mean these.
        for slot in (slot for attempt in attempts for slot in attempt.placement if slot.target):
            self.clusters.find_machine(slot, keep=True)
        self.clusters.rejoin(clusters)
        for slot in (slot for attempt in attempts for slot in attempt.placement):
            self.clusters.find_machine(slot)
        self.results.tidy()
        await self.engine.recover()
        self.batches.recover()
        self.results.resume()
        await self.forwards.restore(forwards)
        self.services.resume(unfinished)
        self.housekeeping.open()

    def is_idle(self) -> bool:
        """Nothing runs, waits, comes home or is being asked."""
        return not (self.engine.active or self.in_flight or len(self.results))

    async def close(self) -> None:
        self.samples.close()
        self.results.close()
        await self.services.close()
        await self.forwards.close()
        await self.fleet.close()
        self.engine.close()

    def _has_jobs(self, cluster: str) -> bool:
        return any(job.spec.cluster == cluster for job in self.engine.core.jobs.values())

    def rejoin(self, what: str, cluster: str) -> None:
        """Have the cluster again that something ran on."""
        self.clusters.rejoin({cluster})
        if not self.clusters.knows(cluster):
            raise NotFound(
                f"{what} ran on cluster {cluster!r}, which is gone",
                hint=f"`tow clusters add {cluster} MACHINE...` makes it again",
            )
