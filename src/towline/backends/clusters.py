"""From configured clusters to machines that are driven."""

import asyncio
import hashlib
import logging
import os
from collections.abc import Callable, Iterable

import msgspec
from msgspec.structs import replace

from towline.backends.machines.driver import Driver
from towline.backends.membership import Membership
from towline.backends.registry import queue_from
from towline.backends.router import Backends
from towline.config.paths import Paths
from towline.config.settings import (
    AnyQueue,
    Cluster,
    Config,
    MachineEntry,
    MachinesCluster,
    QueueCluster,
)
from towline.config.targets import THIS, split_target
from towline.errors import ConfigError, TowlineError
from towline.hosts.base import Host
from towline.hosts.local import LocalHost
from towline.hosts.ssh import SshHost, place_of, real_target
from towline.model.machine import Slot
from towline.model.names import AD_HOC, QUEUES, ad_hoc_queue, is_ad_hoc_queue
from towline.probes.machine import limits_of
from towline.store.store import Store

log = logging.getLogger("towline")

#: Programs that are asked at the same time where ssh would go.
_QUESTIONS_AT_ONCE = 8
_NEVER_S = 1e9


class Clusters:
    """The clusters the Engine knows; one is joined when a job or a question first names it."""

    def __init__(
        self,
        backends: Backends,
        store: Store,
        paths: Paths,
        busy: Callable[[str], bool] = lambda cluster: False,
        soon: Callable[[str, Callable[[], object]], object] = lambda what, write: write(),
    ) -> None:
        self.backends = backends
        self.machines = backends.on_machines
        self.machines.find_machine = self.find_machine
        self.store = store
        self.paths = paths
        #: Whether a cluster has jobs that have not ended.
        self.busy = busy
        #: Writes what the next Engine must know, before whatever is written later.
        self.soon = soon
        self._joined: dict[str, bytes] = {}
        #: Cluster -> the file that defines it, as far as it was joined by this Engine.
        self._sources: dict[str, str] = {}
        #: Left by this Engine, whatever is still written of them.
        self._left: set[str] = set()
        #: Machine, by its name and by its place -> how it is reached.
        self._remembered: dict[str, bytes] = {}
        #: Target as it is written -> where ssh really goes with it.
        self._real: dict[str, tuple[str, ...]] = {}
        self._questions = asyncio.Semaphore(_QUESTIONS_AT_ONCE)

    def join(self, name: str, cluster: MachinesCluster, config: Config, source: str = "") -> None:
        """Connect to a cluster's machines, or bring what is known of them up to date.

        `source` is the file that defines it: two projects may give one name to different clusters.
        """
        parts = [cluster, config.aliases, config.engine.lost_after_s]
        body = msgspec.json.encode(parts)
        if self._joined.get(name) == body:
            return
        check_names(name, cluster, config)
        self._check_source(name, source)
        self._join(name, cluster, config.aliases, config.engine.lost_after_s)
        self._joined[name] = body
        self._remember_cluster(name, msgspec.json.encode([*parts, source]))

    def _remember_cluster(self, name: str, body: bytes) -> None:
        self._left.discard(name)
        self.soon(f"the cluster {name}", lambda: self.store.remember_cluster(name, body))

    def rejoin(self, names: set[str]) -> None:
        """After a restart: the clusters of unfinished jobs, as they were when last used."""
        for name, body in self.known().items():
            if name not in names:
                continue
            try:
                if body.startswith(b"{"):
                    self._join_queue(name, queue_from(body))
                else:
                    self._join(name, *decoded(body))
                    self._sources[name] = source_of(body)
                    body = msgspec.json.encode(decoded(body))
            except (msgspec.MsgspecError, ValueError, TowlineError):
                # What is remembered of one must not keep the Engine from the others.
                log.exception("the cluster %s, as it was remembered", name)
                continue
            self._joined[name] = body

    def _check_source(self, name: str, source: str) -> None:
        if name.startswith(AD_HOC) or is_ad_hoc_queue(name):
            return
        before = self._sources.get(name) or source
        if before != source and self.busy(name):
            raise ConfigError(
                f"{source}: the cluster {name!r} is another one in {before}, which has jobs now",
                hint="give one of them another name, or wait until those jobs have ended",
            )
        self._sources[name] = source

    def join_queue(self, name: str, cluster: AnyQueue, source: str = "") -> Driver:
        """Connect to the access node of a cluster that has a queue of its own."""
        body = msgspec.json.encode(cluster)
        if self._joined.get(name) != body:
            self._check_source(name, source)
            known = self.machines.members.get(name)
            moved = known is not None and _place(known.host) != _place(self._host("", cluster.host))
            queue = self.backends.backend_at(name)
            if known is not None and queue is not None and (moved or queue.kind != cluster.kind):
                if queue.is_busy(name) or self.busy(name):
                    raise _still_needed(name, cluster.host, known.host)
                self.give_up(name)
            self._join_queue(name, cluster)
            self._joined[name] = body
            self._remember_cluster(name, body)
        return self.machines.drivers[name]

    def _join_queue(self, name: str, cluster: AnyQueue) -> None:
        entry = MachineEntry(cluster.host, name=name, folder=cluster.folder)
        # Its nodes do the work: an access node that is silent for long has lost nothing.
        member = self._member(entry, _NEVER_S)
        known = self.machines.members.get(name)
        if known is not None and known.host.login() != member.host.login():
            raise ConfigError(
                f"the cluster {name} is called like a machine that is another one",
                hint="give the cluster or the machine another name",
            )
        self._remember(entry, _NEVER_S)
        self.machines.watch(member)
        self.backends.queues[cluster.kind].join(name, cluster.setup_login)

    async def ad_hoc(self, entries: Iterable[MachineEntry], config: Config) -> str:
        """Join a cluster of just these machines; its name, which the same machines have again."""
        found = {entry.label: entry for entry in await self.recognised(entries, config)}
        digest = hashlib.sha256("\n".join(sorted(found)).encode()).hexdigest()[:8]
        self.join(AD_HOC + digest, MachinesCluster([*found.values()]), config)
        return AD_HOC + digest

    async def ad_hoc_queue(self, given: AnyQueue, config: Config) -> str:
        """Join the cluster behind an access node; its name.

        One that is configured, or was joined under another name of the node, is that one: the
        jobs of one folder over there belong to one queue here.
        """
        configured = {n: c for n, c in config.clusters.items() if isinstance(c, QueueCluster)}
        alike = {**configured, **self._ad_hoc_queues()}
        found = {name: known for name, known in alike.items() if known.kind == given.kind}
        for name, known in found.items():
            anywhere = name in configured and given.folder == QueueCluster().folder
            if (anywhere or known.folder == given.folder) and await self._is_same(
                given.host, known.host
            ):
                return name
        where = "" if given.folder == QueueCluster().folder else f":{given.folder}"
        name = ad_hoc_queue(given.kind, f"{given.host}{where}")
        self.join_queue(name, given)
        return name

    def known(self) -> dict[str, bytes]:
        """All that were joined, by this Engine or an earlier one."""
        written = self.store.clusters().items()
        return {name: body for name, body in written if name not in self._left} | self._joined

    def _ad_hoc_queues(self) -> dict[str, AnyQueue]:
        known = self.known().items()
        return {name: queue_from(body) for name, body in known if is_ad_hoc_queue(name)}

    async def _is_same(self, one: str, other: str) -> bool:
        """Whether ssh goes to the same place with both names."""
        if one == other or THIS in (one, other):
            return one == other
        await asyncio.gather(self._ask_ssh(one), self._ask_ssh(other))
        real = self._real.get(one)
        return real is not None and real == self._real.get(other)

    async def recognised(
        self, entries: Iterable[MachineEntry], config: Config
    ) -> list[MachineEntry]:
        """The same machines, each under the one name it has here, in their long form.

        A machine that is configured too is that one: one agent, one room, the configured limits.
        """
        known = [
            entry
            for cluster in config.clusters.values()
            if isinstance(cluster, MachinesCluster)
            for entry in cluster.entries()
        ]
        labels = {entry.label: entry.ssh for entry in known}
        found = [
            await self._configured(entry, known) or _with_own_name(entry, labels)
            for entry in entries
        ]
        return MachinesCluster([*found]).entries()

    def called(self, name: str) -> str:
        """What a cluster is called inside that people know without what only the Engine needs."""
        inside = (ad_hoc_queue(kind, name) for kind in QUEUES)
        known = self.known()
        return next((one for one in inside if one in known), name)

    def remembered(self, name: str) -> Cluster | None:
        """An ad-hoc cluster that was joined before, by this Engine or an earlier one."""
        body = self.known().get(name)
        if is_ad_hoc_queue(name):
            return queue_from(body) if body else None
        return decoded(body)[0] if body and name.startswith(AD_HOC) else None

    async def _configured(
        self, given: MachineEntry, known: list[MachineEntry]
    ) -> MachineEntry | None:
        """The configured machine that ssh reaches with what is given, under whatever name."""
        targets = dict.fromkeys(entry.ssh for entry in known if entry.ssh != THIS)
        if not targets or given.ssh == THIS:
            return next((entry for entry in known if entry.ssh == given.ssh), None)
        await asyncio.gather(*(self._ask_ssh(target) for target in [given.ssh, *targets]))
        real = self._real.get(given.ssh)
        return next((e for e in known if real and self._real.get(e.ssh) == real), None)

    async def _ask_ssh(self, target: str) -> None:
        host = self._host(target, target)
        if target in self._real or not isinstance(host, SshHost):
            return
        async with self._questions:
            asking = await asyncio.create_subprocess_exec(
                *host.question(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
            answer, _ = await asking.communicate()
        if asking.returncode == 0:
            self._real[target] = real_target(answer.decode(errors="replace"))

    def leave(self, name: str) -> None:
        self._joined.pop(name, None)
        self._sources.pop(name, None)
        self.machines.leave(name)
        self._left.add(name)
        what = f"that the cluster {name} was left"
        self.soon(what, lambda: self.store.forget_cluster(name))

    def give_up(self, name: str) -> None:
        """Forget a cluster that was just tried and has no jobs."""
        self.leave(name)
        for queue in self.backends.queues.values():
            queue.leave(name)
        self.machines.forget(name)

    def give_up_unused(self, name: str) -> None:
        """Forget one that nobody configured, that could not be reached and never had a job."""
        made = name.startswith(AD_HOC) or is_ad_hoc_queue(name)
        made = made and name in self._joined
        if made and not (self.store.active(name) or self.store.ended_count(0.0, cluster=name)):
            self.give_up(name)

    def knows(self, name: str) -> bool:
        return name in self._joined

    def _join(
        self, name: str, cluster: MachinesCluster, aliases: dict[str, str], lost_after_s: float
    ) -> None:
        members = []
        for entry in cluster.entries():
            lost = cluster.lost_after_s or lost_after_s
            member = self._member(entry, lost)
            member.owners = tuple(entry.owners or ())
            member.aliases = tuple(sorted(aliases.items()))
            members.append(member)
            self._take_over_key(member)
            self._remember(entry, lost)
        self.machines.join(name, members)

    def _take_over_key(self, member: Membership) -> None:
        """A key that was corrected counts for the machine as it is driven already."""
        driver = self.machines.driver_at(member.target)
        if driver is None or not isinstance(driver.host, SshHost):
            return
        if isinstance(member.host, SshHost) and driver.host.key != member.host.key:
            driver.host.key = member.host.key
            driver.channel.redial()

    def find_machine(self, slot: Slot, keep: bool = False) -> None:
        """Reach a machine that has jobs of ours, though it may be in no cluster any more.

        `keep`: they may still run there, so it keeps the name that they know it by.
        """
        name = slot.target or slot.machine
        body = self._remembered.get(name) or self.store.machine(name)
        if body is not None and self.machines.driver_of(slot) is None:
            entry, lost_after_s = msgspec.json.decode(body, type=tuple[MachineEntry, float])
            found = self._member(replace(entry, name=slot.machine), lost_after_s)
            self.machines.watch(found).kept = keep

    def driver_of(self, entry: MachineEntry) -> Driver:
        """Of a machine of a cluster that was joined."""
        driver = self.machines.driver_at(self._target(entry))
        assert driver is not None, entry
        return driver

    def _target(self, entry: MachineEntry) -> str:
        """As its membership has it, without making one."""
        if entry.ssh == THIS:
            return f"{THIS} {self._root(entry)}"
        destination, port = split_target(entry.ssh)
        return f"{place_of(destination, port)} {self._root(entry)}"

    def _root(self, entry: MachineEntry) -> str:
        here = entry.ssh == THIS
        return os.path.join(self.paths.home, "machine") if here else str(entry.folder)

    def _member(self, entry: MachineEntry, lost_after_s: float) -> Membership:
        host = self._host(entry.label, entry.ssh, entry.key)
        return Membership(host, self._root(entry), limits_of(entry), lost_after_s)

    def _remember(self, entry: MachineEntry, lost_after_s: float) -> None:
        body = msgspec.json.encode([entry, lost_after_s])
        if self._remembered.get(entry.label) != body:
            # By its place for what runs there now, by its name for people and older attempts.
            bodies = {self._target(entry): body, entry.label: body}
            self._remembered |= bodies
            self.soon(f"how {entry.label} is reached", lambda: self.store.remember_machine(bodies))

    def _host(self, label: str, target: str, key: str | None = None) -> Host:
        if target == THIS:
            return LocalHost(label)
        destination, port = split_target(target)
        return SshHost(label, destination, port, self.paths.ssh_dir, key)


def _place(host: Host) -> tuple[str, int | None]:
    """Where a machine is, whatever it is called and whichever key opens it."""
    return (host.destination, host.port) if isinstance(host, SshHost) else (THIS, None)


def _still_needed(name: str, target: str, known: Host) -> ConfigError:
    destination, port = _place(known)
    before = destination if port is None else f"{destination}:{port}"
    return ConfigError(
        f"{name!r} is {target} now, but jobs of yours still need it as {before}",
        hint="give the new one another name, or wait until those jobs have ended: tow status",
    )


def check_names(name: str, cluster: MachinesCluster, config: Config) -> None:
    """A machine called like a queue would be taken for its access node."""
    for entry in cluster.entries():
        queue = config.clusters.get(entry.label)
        if isinstance(queue, QueueCluster):
            named = f'{{ ssh = "{entry.ssh}", name = "{entry.label}-login" }}'
            title = QUEUES.get(queue.kind, "cluster")
            raise ConfigError(
                f"the machine {entry.label} of {name} is called like the {title} {entry.label}",
                hint=f"give it another name: {named}",
            )


def decoded(body: bytes) -> tuple[MachinesCluster, dict[str, str], float]:
    """A cluster as it was remembered: itself, short names for GPUs, when a machine is lost."""
    parts = msgspec.json.decode(body, type=list[msgspec.Raw])
    cluster = msgspec.json.decode(parts[0], type=MachinesCluster)
    aliases = msgspec.json.decode(parts[1], type=dict[str, str])
    return cluster, aliases, msgspec.json.decode(parts[2], type=float)


def source_of(body: bytes) -> str:
    """The file that said what a remembered cluster is; empty where nobody noted that."""
    parts = msgspec.json.decode(body, type=list[msgspec.Raw])
    return msgspec.json.decode(parts[3], type=str) if len(parts) > 3 else ""


def _with_own_name(entry: MachineEntry, labels: dict[str, str]) -> MachineEntry:
    """The entry under a name that no other machine has."""
    taken = labels.get(entry.label, entry.ssh) != entry.ssh
    return replace(entry, name=f"{entry.label}~") if taken else entry
