"""The nodes of a team's server: machines of its one cluster, and who may use them."""

import asyncio
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from towline.config.settings import Cluster, Config, MachineEntry, MachinesCluster
from towline.config.targets import split_target
from towline.engine.engine import Engine
from towline.engine.parts import EngineParts
from towline.errors import AgentError, Exists, HostError, NotFound, UsageError
from towline.model.events import MachineGone, MachineSeen, TeamSeen
from towline.model.machine import Machine, Walls
from towline.model.principal import check_group, check_name
from towline.model.team.node import Isolation, TeamNode, indexes, used_as
from towline.model.team.rules import Rulebook, UseLimits
from towline.store.accounts import AccountRows
from towline.store.nodes import already, no_alias, no_node
from towline.workspace.base import Places

#: The name of the cluster that nodes are in.
CLUSTER = "nodes"
#: So long a new node has to answer, and to say what it has.
_REACH_S = 30.0
_LOOK_S = 0.05


class Nodes:
    """All nodes, as they are wanted; whoever changes one comes through here."""

    def __init__(self, engine: Engine, accounts: AccountRows) -> None:
        self._engine = engine
        self._accounts = accounts
        self._rows = engine.store.nodes
        self._parts: EngineParts | None = None
        self._clusters: Callable[[], Places] = lambda: Places(Config())
        #: Those that are being tried, besides those that are in the store.
        self._trying: dict[str, TeamNode] = {}
        self.all = self._rows.all()
        self.aliases = self._rows.aliases()

    # --- the cluster -------------------------------------------------------------------------

    def places(self, places: Places) -> Places:
        """The clusters there are, and this one."""
        config, wanted = places.config, {**self.all, **self._trying}
        entries: list[str | MachineEntry] = [
            MachineEntry(
                node.endpoint.removeprefix("ssh://"), name=name, max_cpus=node.cpus or None
            )
            for name, node in wanted.items()
        ]
        clusters = {**config.clusters, CLUSTER: MachinesCluster(entries)}
        default = CLUSTER if wanted or not config.default_cluster else config.default_cluster
        return Places(
            replace(config, clusters=clusters, default_cluster=default),
            {**places.sources, CLUSTER: "nodes of this server"},
            places.user_file,
        )

    def begin(self, parts: EngineParts, clusters: Callable[[], Places]) -> None:
        """Before anything is taken up again: who may use what, and what nodes had last."""
        self._parts, self._clusters = parts, clusters
        parts.clusters.machines.used_as = self._used_as
        parts.clusters.machines.walled = self._is_walled
        self._engine.report(TeamSeen(self.rulebook(), tuple(self._rows.used())))
        for node in self.all.values():
            if node.machine is not None:
                seen = replace(node.machine, clusters=(CLUSTER,))
                self._engine.report(MachineSeen(used_as(seen, node, self.aliases)))
                self._engine.report(MachineGone(node.name))

    def connect(self) -> None:
        """Call all nodes."""
        if self.all:
            self._join()

    def _join(self) -> None:
        assert self._parts is not None
        places = self._clusters()
        cluster = places.config.clusters[CLUSTER]
        assert isinstance(cluster, MachinesCluster)
        self._parts.clusters.join(CLUSTER, cluster, places.config, places.sources[CLUSTER])

    def _used_as(self, seen: Machine) -> Machine:
        node = self.all.get(seen.name) or self._trying.get(seen.name)
        if node is None:
            return seen
        if node.name in self.all and _has(node.machine) != _has(seen):
            bare = replace(seen, clusters=(), foreign_cpus=0.0, foreign_mem_mb=0)
            self.all[node.name] = replace(node, machine=bare)
            self._engine.soon(f"what {node.name} has", lambda: self._note(node.name, bare))
        return used_as(seen, node, self.aliases)

    def all_walled(self, named: Iterable[Cluster]) -> bool:
        """Whether no job is without walls, on nodes and in clusters that the server has besides."""
        nodes = all(node.isolation == "walls" for node in self.all.values())
        return nodes and all(map(is_walled, named))

    def _is_walled(self, name: str) -> bool:
        node = self.all.get(name)
        return node is not None and node.isolation == "walls"

    def _note(self, name: str, machine: Machine) -> None:
        self._rows.change(name, lambda node: replace(node, machine=machine))

    # --- nodes -------------------------------------------------------------------------------

    def find(self, name: str) -> TeamNode:
        if name not in self.all:
            raise no_node(name)
        return self.all[name]

    def state(self, node: TeamNode) -> str:
        """`online`, `offline`, or `drain` while nothing new starts there."""
        if node.drained:
            return "drain"
        assert self._parts is not None
        driver = self._parts.fleet.machines.get(node.name)
        return "online" if driver is not None and driver.is_connected else "offline"

    async def add(self, name: str, endpoint: str, isolation: str, cpus: float = 0) -> TeamNode:
        """Make a machine a node, once it was reached and has said what it has."""
        check_name(name)
        target = split_target(endpoint)
        if name in self.all or name in self._trying:
            raise already(name)
        for other in (*self.all.values(), *self._trying.values()):
            if split_target(other.endpoint) == target:
                raise Exists(f"{endpoint} is the node {other.name} already")
        kind = checked_isolation(isolation)
        node = TeamNode(name, endpoint, kind, cpus=cpus, since=self._engine.clock())
        self._trying[name] = node
        try:
            seen = await self._try(name)
            walls = await self._walls(name)
            if kind == "walls":
                check_walls(name, walls)
            machine = replace(seen, clusters=(), aliases=())
            node = replace(node, machine=machine, walls=walls)
            await self._engine.in_turn(lambda: self._rows.add(node))
            self.all[name] = node
        finally:
            self._trying.pop(name, None)
            self._join()
        self.tell(check=False)
        return node

    async def _try(self, name: str) -> Machine:
        assert self._parts is not None
        self._join()
        fleet = self._parts.fleet
        driver = fleet.machines.get(name)
        if driver is None:
            raise Exists(f"another machine is called {name} already", "give the node another name")
        try:
            await driver.reach(_REACH_S, patient=False)
        except HostError as error:
            raise UsageError(f"Problem adding node {name}: {error.text}", error.hint) from None
        for _ in range(round(_REACH_S / _LOOK_S)):
            if (counts_as := fleet.counts_as(name)) != name:
                raise Exists(f"{name} is the node {counts_as} under another name")
            if (seen := fleet.seen(name)) is not None:
                return seen
            await asyncio.sleep(_LOOK_S)
        raise UsageError(f"Problem adding node {name}: it does not say what it has")

    async def _walls(self, name: str) -> Walls:
        """Whether jobs can be walled in on a node, as it says now."""
        assert self._parts is not None
        driver = self._parts.fleet.machines.get(name)
        try:
            if driver is None:
                raise no_node(name)
            return await (await driver.upkeep(_REACH_S)).walls()
        except (AgentError, HostError, NotFound) as error:
            return Walls(f"it does not say: {error}")

    async def look_at_walls(self, name: str) -> TeamNode:
        """The node, with its walls as they are now; where it is away, as they were."""
        node = self.find(name)
        if self.state(node) == "offline":
            return node
        walls = await self._walls(name)
        if walls == node.walls:
            return node
        return await self.change(name, lambda one: replace(one, walls=walls))

    async def isolate(self, name: str, isolation: str) -> TeamNode:
        """Wall in the jobs of a node from now on, or do so no more."""
        kind = checked_isolation(isolation)
        if kind == "walls":
            self.find(name)
            check_walls(name, await self._walls(name))
        return await self.change(name, lambda one: replace(one, isolation=kind))

    async def change(self, name: str, edit: Callable[[TeamNode], TeamNode]) -> TeamNode:
        """Replace a node by what is made of it; it counts at once."""
        before = self.find(name)
        self.all[name] = await self._engine.in_turn(lambda: self._rows.change(name, edit))
        if self.all[name].cpus != before.cpus:
            self._join()
        self.tell()
        return self.all[name]

    async def set_groups(
        self, name: str, group: str, index: int | None, edit: Callable[..., TeamNode]
    ) -> TeamNode:
        """Let a group use a node or one of its GPUs, or do so no more."""
        check_group(group)
        if index is not None and index not in indexes(self.find(name)):
            raise NotFound(f"Resource not found: {name} has no GPU {index}")
        return await self.change(name, lambda node: edit(node, group, index))

    async def remove(self, name: str) -> None:
        """What runs there goes on; nothing new starts."""
        self.find(name)
        await self._engine.in_turn(lambda: self._rows.forget(name))
        del self.all[name]
        self._join()
        self.tell()

    # --- names of GPUs, limits ---------------------------------------------------------------

    async def set_alias(self, name: str, model: str, new: bool) -> None:
        check_name(name)
        if not model.strip() or len(model) > 200 or not model.isprintable():
            raise UsageError("an alias stands for the exact name of a GPU model")
        await self._engine.in_turn(lambda: self._rows.set_alias(name, model, new))
        self.aliases = self._rows.aliases()
        self.tell()

    def model_of(self, alias: str) -> str:
        if alias not in self.aliases:
            raise no_alias(alias)
        return self.aliases[alias]

    async def forget_alias(self, name: str) -> None:
        self.model_of(name)
        await self._engine.in_turn(lambda: self._rows.forget_alias(name))
        self.aliases = self._rows.aliases()
        self.tell(check=False)

    async def set_limits(self, name: str, is_group: bool, limits: UseLimits) -> None:
        if is_group:
            self._accounts.title_of(name)
        elif self._accounts.find(name) is None:
            raise NotFound(f"there is no account {name}")
        await self._engine.in_turn(lambda: self._rows.set_limits(name, is_group, limits))
        self.tell(check=False)

    def limits(self, of_groups: bool) -> dict[str, UseLimits]:
        return self._rows.limits(of_groups)

    def rulebook(self) -> Rulebook:
        """Who is in which group, and may use how much."""
        members: dict[str, set[str]] = {}
        for group in self._accounts.groups():
            for account in self._accounts.members_of(group):
                members.setdefault(account, set()).add(group)
        return Rulebook(
            {account: frozenset(groups) for account, groups in members.items()},
            self._rows.limits(of_groups=False),
            self._rows.limits(of_groups=True),
        )

    def tell(self, check: bool = True) -> None:
        """Let the scheduler know what holds now; who waits for what is forbidden now, ends."""
        if self._parts is not None:
            self._parts.clusters.machines.announce_all(CLUSTER)
            self._engine.report(TeamSeen(self.rulebook(), check=check))


def is_walled(cluster: Cluster) -> bool:
    """Whether all of a cluster's jobs are walled in."""
    return isinstance(cluster, MachinesCluster) and cluster.sandbox


def checked_isolation(isolation: str) -> Isolation:
    """What an administrator says of it; walls where nothing is said."""
    if isolation not in ("", "walls", "none"):
        raise UsageError(f"isolation is walls or none, not {isolation!r}")
    return "none" if isolation == "none" else "walls"


def check_walls(name: str, walls: Walls) -> None:
    """Refuse a node whose jobs could reach each other without anybody having said so."""
    why = walls.why
    if not why and walls.groups:
        why = f"its account is in {', '.join(walls.groups)}, which reach around any wall"
    if why:
        raise UsageError(
            f"nothing keeps jobs on {name} apart: {why}",
            "install bubblewrap there, or say that this is meant: isolation=none",
        )


def _has(machine: Machine | None) -> object:
    """What of a machine is worth remembering while it is away."""
    if machine is None:
        return None
    gpus = tuple((gpu.index, gpu.model, gpu.mem_mb) for gpu in machine.gpus)
    return machine.cpus, machine.mem_mb, gpus, machine.target
