"""From configured clusters to machines that are driven."""

import os

import msgspec

from towline.backends.machines import Machines, Membership
from towline.config.paths import Paths
from towline.config.settings import Config, MachineEntry, MachinesCluster
from towline.config.targets import THIS, split_target
from towline.hosts.base import Host
from towline.hosts.local import LocalHost
from towline.hosts.ssh import SshHost
from towline.probes.machine import limits_of
from towline.store.store import Store


class Clusters:
    """The clusters the Engine knows; one is joined when a job or a question first names it."""

    def __init__(self, machines: Machines, store: Store, paths: Paths) -> None:
        self.machines = machines
        self.store = store
        self.paths = paths
        self._joined: dict[str, bytes] = {}
        self._remembered: dict[str, bytes] = {}

    def join(self, name: str, cluster: MachinesCluster, config: Config) -> None:
        """Connect to a cluster's machines, or bring what is known of them up to date."""
        body = msgspec.json.encode([cluster, config.aliases, config.engine.lost_after_s])
        if self._joined.get(name) == body:
            return
        self._join(name, cluster, config.aliases, config.engine.lost_after_s)
        self._joined[name] = body
        self.store.remember_cluster(name, body)

    def rejoin(self, names: set[str]) -> None:
        """After a restart: the clusters of unfinished jobs, as they were when last used."""
        for name, body in self.store.clusters().items():
            if name in names:
                kind = tuple[MachinesCluster, dict[str, str], float]
                cluster, aliases, lost_after_s = msgspec.json.decode(body, type=kind)
                self._join(name, cluster, aliases, lost_after_s)
                self._joined[name] = body

    def leave(self, name: str) -> None:
        self._joined.pop(name, None)
        self.machines.leave(name)
        self.store.forget_cluster(name)

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
            self._remember(entry, lost)
        self.machines.join(name, members)

    def find_machine(self, name: str) -> None:
        """Reach a machine that has jobs of ours, though it may be in no cluster any more."""
        body = self.store.machine(name)
        if body is not None and name not in self.machines.drivers:
            entry, lost_after_s = msgspec.json.decode(body, type=tuple[MachineEntry, float])
            self.machines.watch(self._member(entry, lost_after_s))

    def _member(self, entry: MachineEntry, lost_after_s: float) -> Membership:
        local = entry.ssh == THIS
        root = os.path.join(self.paths.home, "machine") if local else str(entry.folder)
        host = self._host(entry.label, entry.ssh)
        return Membership(host, root, limits_of(entry), lost_after_s)

    def _remember(self, entry: MachineEntry, lost_after_s: float) -> None:
        body = msgspec.json.encode([entry, lost_after_s])
        if self._remembered.get(entry.label) != body:
            self._remembered[entry.label] = body
            self.store.remember_machine(entry.label, body)

    def _host(self, label: str, target: str) -> Host:
        if target == THIS:
            return LocalHost(label)
        destination, port = split_target(target)
        return SshHost(label, destination, port, self.paths.ssh_dir)
