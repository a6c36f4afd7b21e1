"""Machines, and the nodes of clusters that have their own queue, with what is free on them now."""

import asyncio
from collections.abc import Iterable

from towline.api.places import Capacity, MachineView
from towline.backends.base import Fleet, MachineAccess, QueueSilent
from towline.backends.clusters import Clusters
from towline.core.machines.host_state import at_work
from towline.core.machines.usage import usage_of
from towline.engine.engine import Engine
from towline.engine.intake import Intake
from towline.engine.obstacle_words import why_aside
from towline.errors import AgentError, HostError, TowlineError
from towline.model.machine import Machine
from towline.probes.nodes import QueueNode
from towline.workspace.base import Places

#: How long a look at the machines waits for one; and for one that did not answer before.
_LOOK_S, _LOOK_AGAIN_S = 8.0, 2.0


class WhatsFree:
    def __init__(self, engine: Engine, fleet: Fleet, clusters: Clusters, intake: Intake) -> None:
        self.engine = engine
        self.fleet = fleet
        self.clusters = clusters
        self.intake = intake

    async def of_clusters(self, places: Places, cluster: str | None) -> list[MachineView]:
        """Those of all clusters, or of one."""
        wrong: dict[str, TowlineError] = {}
        drivers = self._drivers(places, cluster, wrong)
        tries = [
            driver.reach(_LOOK_AGAIN_S if driver.error else _LOOK_S, patient=False)
            for driver in drivers.values()
            if not driver.is_connected
        ]
        await asyncio.gather(*tries, return_exceptions=True)
        found = await self.behind(drivers.values())
        return found + [_unusable(name, error) for name, error in wrong.items()]

    def machine_names(self, places: Places, cluster: str | None) -> list[str]:
        """The machines and access nodes of all clusters, or of one."""
        return list(self._drivers(places, cluster, {}))

    def _drivers(
        self, places: Places, cluster: str | None, wrong: dict[str, TowlineError]
    ) -> dict[str, MachineAccess]:
        """Of all clusters, those that are `wrong` do not hide the others."""
        names = [cluster] if cluster else list(places.config.clusters)
        drivers: dict[str, MachineAccess] = {}
        for name in names:
            try:
                drivers |= {driver.name: driver for driver in self.intake.join(places, name)[1]}
            except TowlineError as error:
                if cluster:
                    raise
                wrong[name] = error
        return drivers

    async def behind(self, drivers: Iterable[MachineAccess]) -> list[MachineView]:
        """What does the work: the machines themselves, or the nodes behind an access node."""
        found = await asyncio.gather(*map(self._behind, self._each_once(drivers)))
        return [view for views in found for view in views]

    def _each_once(self, drivers: Iterable[MachineAccess]) -> list[MachineAccess]:
        """A machine with two names under the one that counts."""
        names = dict.fromkeys(self.fleet.counts_as(driver.name) for driver in drivers)
        return [self.fleet.machines[name] for name in names if name in self.fleet.machines]

    async def _behind(self, driver: MachineAccess) -> list[MachineView]:
        queue = self.fleet.queue_at(driver.name)
        if queue is None:
            return [self._machine(driver)]
        access = self._machine(driver) | {"clusters": [driver.name]}
        if not driver.is_connected:
            return [access]
        try:
            nodes = await queue.nodes()
        except (HostError, AgentError, QueueSilent) as error:
            return [access | {"state": "offline", "reason": str(error)}]
        jobs = self._jobs_by_node(driver.name)
        return [_node(node, driver, jobs.get(node.name, [])) for node in nodes]

    def _jobs_by_node(self, cluster: str) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for job in self.engine.core.jobs.values():
            if job.spec.cluster == cluster and job.attempt is not None:
                for node in job.attempt.machines():
                    found.setdefault(node, []).append(job.id)
        return found

    def _machine(self, driver: MachineAccess) -> MachineView:
        seen = self.fleet.seen(driver.name)
        also = self.fleet.other_names(driver.name)
        scheduler = self.engine.core.scheduler
        is_ahead, aside = scheduler.series.is_ahead, scheduler.aside(driver.name)
        jobs = [self.fleet.machines[name].jobs() for name in (driver.name, *also)]
        found: MachineView = {
            "name": driver.name,
            "also": also,
            "clusters": [*self.fleet.clusters_of(driver.name)],
            "state": driver.channel.state,
            "reason": driver.error.text if driver.error else "",
            "hint": driver.error.hint if driver.error else "",
            "closed": why_aside(aside) if aside else scheduler.closed(driver.name),
            "jobs": sorted({job for some in jobs for job in some if not is_ahead(job)}),
            "seen": driver.channel.since,
            "cpus": None,
            "gpus": [],
        }
        return {**found, **self._capacity(seen)} if seen else found

    def _capacity(self, seen: Machine) -> Capacity:
        ours = usage_of(self.engine.core.scheduler.machines, seen.name)
        gpus = []
        for gpu in seen.gpus:
            users = [f"job {job}" for job in ours.gpu_jobs.get(gpu.index, ())]
            if gpu.claimed_by:
                users.append(f"jobs of {gpu.claimed_by}")
            elif at_work(gpu):
                users.append("other programs")
            taken = gpu.foreign_mem_mb + ours.gpu_mem_mb.get(gpu.index, 0)
            gpus.append(
                {
                    "index": gpu.index,
                    "model": gpu.model,
                    "mem_mb": gpu.mem_mb,
                    "free_mb": max(0, gpu.mem_mb - taken),
                    "util": gpu.foreign_util,
                    "used_by": ", ".join(users),
                }
            )
        return {
            "cpus": seen.cpus,
            "cpus_free": max(0.0, round(seen.cpus - seen.foreign_cpus - ours.cpus, 1)),
            "mem_mb": seen.mem_mb,
            "mem_free_mb": max(0, seen.mem_mb - seen.foreign_mem_mb - ours.mem_mb),
            "gpus": gpus,
        }


def _unusable(cluster: str, error: TowlineError) -> MachineView:
    """Stands for the machines of a cluster that cannot be used as it is configured."""
    return {
        "name": cluster,
        "clusters": [cluster],
        "state": "offline",
        "reason": error.text,
        "hint": error.hint,
        "closed": "",
        "jobs": [],
        "seen": 0.0,
        "cpus": None,
        "gpus": [],
    }


def _node(node: QueueNode, access: MachineAccess, jobs: list[int]) -> MachineView:
    """A node like a machine; its queue says of GPUs only how many of a kind there are."""
    return {
        "name": node.name,
        "node": True,
        "clusters": [access.name],
        "state": "offline" if node.down else "online",
        "reason": node.down,
        "hint": "",
        "closed": node.closed,
        "jobs": jobs,
        "seen": access.channel.since,
        "cpus": node.cpus,
        "cpus_free": node.cpus_free,
        "mem_mb": node.mem_mb,
        "mem_free_mb": node.mem_free_mb,
        "gpus": [
            {"model": kind or "GPU", "count": count, "free": node.gpus_free[kind]}
            for kind, count in node.gpus.items()
        ],
        "queues": list(node.partitions),
        "facts": node.facts,
    }
