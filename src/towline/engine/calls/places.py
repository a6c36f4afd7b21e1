"""Clusters and machines: list, join, examine, log in, clean."""

import os
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, NamedTuple

from towline.api.places import (
    Cleaned,
    ClusterView,
    EngineView,
    LoginView,
    MachineDisk,
    MachineLimitList,
    MachineView,
)
from towline.backends.base import MachineAccess
from towline.config.settings import (
    AnyQueue,
    Cluster,
    Config,
    MachineEntry,
    MachinesCluster,
    ServerCluster,
)
from towline.engine.cleaning.removing import disk_use
from towline.engine.following.output import Frame
from towline.engine.machines.doctor import Step, examine, examine_queue
from towline.engine.machines.limits import limits
from towline.engine.machines.logins import login_of
from towline.engine.parts import EngineParts
from towline.errors import (
    HostError,
    LoginWanted,
    NoNetwork,
    NotFound,
    TowlineError,
    Unreachable,
)
from towline.hosts.ssh import needs_person
from towline.model.machine import Slot
from towline.model.principal import Principal
from towline.version import __version__
from towline.workspace.base import Places


class Figures(NamedTuple):
    """States of all jobs that have not ended, and of connections; and who waits for a machine."""

    states: list[str]
    connections: list[str]
    waiting: int


class PlaceCalls:
    """They concern everybody; who may change them, `server/rights.py` says."""

    def __init__(self, parts: EngineParts) -> None:
        self._parts = parts

    def engine(self, who: Principal, started: float) -> EngineView:
        """Which Engine this is, and what it does."""
        parts = self._parts
        machines = parts.fleet.machines
        return {
            "version": __version__,
            "pid": os.getpid(),
            "engine": parts.engine.store.engine_id,
            "started": started,
            "jobs_active": len(parts.engine.core.jobs),
            "jobs_waiting": parts.engine.core.scheduler.waiting_count,
            "machines": {name: machine.channel.state for name, machine in machines.items()},
            "home": parts.paths.home,
            # A submission under a key may be repeated: it is accepted once.
            "keys": True,
        }

    def check_health(self, who: Principal) -> None:
        """Raise what keeps the Engine from writing down what it accepts."""
        if self._parts.engine.stuck is not None:
            raise self._parts.engine.stuck

    def figures(self, who: Principal) -> Figures:
        """How many jobs and machines there are, whosever they are."""
        core, machines = self._parts.engine.core, self._parts.fleet.machines
        return Figures(
            [job.state.value for job in core.jobs.values()],
            [machine.channel.state for machine in machines.values()],
            core.scheduler.waiting_count,
        )

    # --- clusters ----------------------------------------------------------------------------

    def clusters(self, who: Principal, places: Places) -> list[ClusterView]:
        """Those that are configured for a folder."""
        config, sources = places.config, places.sources
        return [
            {
                "name": name,
                "kind": cluster.kind,
                "default": name == config.default_cluster,
                "from": sources[name] or "built in",
                "machines": [entry.label for entry in cluster.entries()]
                if isinstance(cluster, MachinesCluster)
                else [],
                "host": _access(cluster),
            }
            for name, cluster in config.clusters.items()
        ]

    def remembered(self, who: Principal) -> Callable[[str], Cluster | None]:
        """Find clusters that no configuration names, and that were made for a submission."""
        return self._parts.clusters.remembered

    async def ad_hoc(self, who: Principal, machines: list[MachineEntry], config: Config) -> str:
        """The name of the cluster of some machines, which need not be configured."""
        return await self._parts.clusters.ad_hoc(machines, config)

    async def ad_hoc_queue(self, who: Principal, given: AnyQueue, config: Config) -> str:
        """The name of the cluster behind an access node, in the configuration or not."""
        return await self._parts.clusters.ad_hoc_queue(given, config)

    def forget_unused(self, who: Principal, names: Iterable[str]) -> None:
        """Give up clusters that were only made for a submission that came to nothing."""
        for name in names:
            self._parts.clusters.give_up_unused(name)

    async def add(
        self,
        who: Principal,
        name: str,
        settings: MachinesCluster | AnyQueue,
        places: Places,
        write: Callable[[], None],
        offline: bool,
    ) -> AsyncIterator[Frame]:
        """Meet the machines of a new cluster, and `write` its settings down unless nothing
        answers; `offline`: even then."""
        parts, added = self._parts, False
        try:
            drivers = parts.intake.join_as(name, settings, places.config, places.user_file)
            errors: list[HostError | None] = []
            for driver in drivers:
                step, error = await _met(driver)
                errors.append(error)
                yield {"step": step}, b""
                if error is None:
                    async for seen in examine_queue(parts, name):
                        yield {"step": seen}, b""
            if offline or could_work(errors):
                write()
                added = True
                yield {"machines": await parts.whats_free.behind(drivers)}, b""
            yield {"done": True, "added": added}, b""
        finally:
            if not added:
                parts.clusters.give_up(name)

    def remove(self, who: Principal, name: str, write: Callable[[], None]) -> None:
        """Leave a cluster that has no jobs any more, once `write` took it out of the settings."""
        jobs = self._parts.engine.core.jobs.values()
        busy = [job.id for job in jobs if job.spec.cluster == name]
        if busy:
            shown = ", ".join(map(str, busy[:5])) + (" …" if len(busy) > 5 else "")
            raise TowlineError(
                f"cluster {name!r} still has jobs: {shown}", hint="stop them first: tow stop"
            )
        write()
        self._parts.clusters.leave(name)

    # --- machines ----------------------------------------------------------------------------

    async def machines(
        self, who: Principal, places: Places, cluster: str | None
    ) -> list[MachineView]:
        """What is free on the machines of all clusters, or of one."""
        return await self._parts.whats_free.of_clusters(places, cluster)

    def logins(self, who: Principal, name: str, places: Places) -> list[LoginView]:
        """How a person logs in to a machine, or to all machines of a cluster that want it."""
        parts = self._parts
        if name not in parts.fleet.machines:
            name = parts.clusters.called(name)
        parts.clusters.find_machine(Slot(name))
        drivers = [parts.fleet.machines[name]] if name in parts.fleet.machines else []
        if not drivers:
            _, drivers = parts.intake.join(places, name)
        return [login for driver in drivers if (login := login_of(driver)) is not None]

    def redial(self, who: Principal, names: Sequence[str]) -> None:
        """Try machines again now."""
        machines = self._parts.fleet.machines
        for name in names:
            if name not in machines:
                raise NotFound(f"there is no machine {name!r}", hint="`tow machines` lists them")
            machines[name].channel.redial()

    def doctor(self, who: Principal, places: Places, cluster: str | None) -> AsyncIterator[Step]:
        """Examine the machines of all clusters, or of one, step by step."""
        return examine(self._parts, places, cluster)

    async def limits(
        self, who: Principal, places: Places, given: list[MachineEntry], request: str, each: bool
    ) -> MachineLimitList:
        """How many such jobs fit on each machine now; makes a cluster of them to submit to."""
        clusters = self._parts.clusters
        try:
            return await limits(self._parts, places, given, request, each)
        except HostError as error:
            if not needs_person(error):
                raise
            entries = await clusters.recognised(given, places.config)
            drivers = [clusters.driver_of(entry) for entry in entries]
            login = next((found for d in drivers if (found := login_of(d)) is not None), None)
            if login is None:
                raise
            raise LoginWanted(error, login) from None

    # --- what ended jobs left ----------------------------------------------------------------

    async def clean(self, who: Principal, dry_run: bool, everything: bool) -> Cleaned:
        """Remove what nobody needs any more from machines, and from this one."""
        return await self._parts.housekeeping.clean(dry_run, everything)

    async def disk(self, who: Principal, places: Places, cluster: str | None) -> list[MachineDisk]:
        """What is used on the machines of a cluster, or on all that are known."""
        names = self._parts.whats_free.machine_names(places, cluster)
        return await disk_use(self._parts.fleet, names)


def _access(cluster: Cluster) -> str:
    """Where a cluster is reached that is not a mere list of machines."""
    if isinstance(cluster, MachinesCluster):
        return ""
    return cluster.url if isinstance(cluster, ServerCluster) else cluster.host


async def _met(driver: MachineAccess) -> tuple[dict[str, Any], HostError | None]:
    """One machine of a new cluster: what is told of it, and why it cannot be used."""
    try:
        upkeep = await driver.upkeep(20.0)
    except HostError as error:
        text = error.text.removeprefix(f"{driver.name}: ")
        step = {"machine": driver.name, "text": text, "hint": error.hint, "ok": False}
        if login := login_of(driver):
            step["login"] = login
        return step, error
    text = f"connected (python {upkeep.python})"
    return {"machine": driver.name, "text": text, "ok": True}, None


def could_work(errors: Iterable[HostError | None]) -> bool:
    """Whether a new cluster is worth keeping: every name exists, and some machine answered."""
    found = list(errors)
    if any(isinstance(error, NoNetwork) for error in found):
        return False
    return any(not isinstance(error, Unreachable) for error in found)
