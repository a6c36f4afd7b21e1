"""All machines, indexed so that the tightest fit is found without looking at every machine.

Machines alike in clusters, owners and GPU models form a family. Within a family they are grouped
by level: how many GPUs are idle, and coarse steps of free CPUs and memory. A search starts at the
level of what is asked for and goes up, so the first machine that fits leaves the least over.
"""

from collections.abc import Iterator
from heapq import merge
from itertools import chain
from operator import itemgetter
from typing import TypeVar

from msgspec.structs import replace

from towline.core.machines.changes import Changes
from towline.core.machines.demand import CPU_OVERLOAD, NO_RIGHTS, Demand, level
from towline.core.machines.host_state import HostState, MachineFamily
from towline.core.machines.levels import Level, Levels
from towline.model.machine import Gpu, Machine

Amount = TypeVar("Amount", int, float)

#: Foreign use that falls by less than this is not news; that it rises always is.
SLACK_CPUS = 0.25
SLACK_MEM_MB = 64
SLACK_UTIL = 0.05

#: Needs whose lowest level a family remembers.
MOST_LOWS = 10_000


class FamilyIndex(MachineFamily):
    """A family with its machines in order."""

    def __init__(self, machine: Machine, number: int) -> None:
        super().__init__(machine, number)
        self.hosts: dict[str, HostState] = {}
        #: By what is free now; by GPUs that are in use but not full; by what there is when empty.
        self.free = Levels()
        self.part = Levels()
        self.total = Levels()
        self._lows: dict[Demand, Level | None] = {}

    def low(self, demand: Demand) -> Level | None:
        """The lowest level at which a demand can fit; None if it never can in this family."""
        try:
            return self._lows[demand]
        except KeyError:
            if len(self._lows) >= MOST_LOWS:
                self._lows.clear()
            return self._lows.setdefault(demand, self._find_low(demand))

    def _find_low(self, demand: Demand) -> Level | None:
        match = self.match(demand)
        if match is None or not self.admits(demand):
            return None
        low = [demand.gpu_count, int(demand.exclusive), level(demand.cpu), level(demand.mem)]
        if len(self.kinds) > 1:
            sure = [0] * len(self.kinds)
            for count, kinds in match:
                if len(kinds) == 1:
                    sure[next(iter(kinds))] += count
            low += sure
        return tuple(low)

    def free_hosts(self, demand: Demand) -> Iterator[tuple[Level, HostState]]:
        """Hosts that may have this much free, with how much that would leave over."""
        low = self.low(demand)
        if low is not None:
            for found, host in self.free.at_least(low):
                yield self.over(found), host

    def over(self, free: Level) -> Level:
        """The order of machines: those first that can do least, then those with least left over."""
        return (self.gpu_count, *free[:4], self.number)

    def part_hosts(self, demand: Demand) -> Iterator[tuple[Level, HostState]]:
        if self.match(demand) is not None:
            for found, host in self.part.at_least((level(demand.gpu_mem), demand.gpu_util // 100)):
                yield (self.gpu_count, *found, self.number), host

    def total_hosts(self, demand: Demand) -> Iterator[tuple[Level, HostState]]:
        low = self.low(demand)
        if low is not None:
            for found, host in self.total.at_least(low):
                yield (*found[:4], self.number), host


def candidates(families: list[FamilyIndex], demand: Demand) -> Iterator[HostState]:
    """Hosts where a demand may fit now, best fit first; `HostState.choose` has the last word."""
    free = (family.free_hosts(demand) for family in families)
    if not demand.gpus or demand.whole:
        found = merge(*free, key=itemgetter(0))
        return (host for _, host in found)
    part = merge(*(family.part_hosts(demand) for family in families), key=itemgetter(0))
    whole = merge(*free, key=itemgetter(0))
    # Shared work joins GPUs that are shared already; reserved work keeps away from busy ones.
    order = chain(whole, part) if demand.reserved else chain(part, whole)
    return (host for _, host in order)


class MachineIndex:
    """Every machine we know of, and what every job takes of it."""

    def __init__(self) -> None:
        self.hosts: dict[str, HostState] = {}
        #: Machines whose free capacity grew since the last complete round of decisions.
        self.freed: dict[str, HostState] = {}
        self.changes = Changes()
        self._families: dict[tuple[object, ...], FamilyIndex] = {}
        self._usable: dict[tuple[str, str], list[FamilyIndex]] = {}
        #: All groups that a machine or a GPU is for.
        self.named_groups = NO_RIGHTS

    def families(self, cluster: str, owner: str) -> list[FamilyIndex]:
        """The families an owner may use in a cluster."""
        key = (cluster, owner)
        if key not in self._usable:
            found = [s for s in self._families.values() if s.hosts and s.allows(cluster, owner)]
            # Owners with equal rights get the same list, so that rights compare by identity.
            same = (found_before for found_before in self._usable.values() if found_before == found)
            self._usable[key] = next(same, found)
        return self._usable[key]

    def all_families(self) -> Iterator[FamilyIndex]:
        return iter(self._families.values())

    def ease(self, host: HostState) -> None:
        """More may fit on a host than when every waiting job was last looked at."""
        if host.offered:
            self.freed[host.name] = host
            self.changes.free += 1
            self.changes.any += 1

    def opened_or_closed(self, host: HostState) -> None:
        """A host was opened to jobs or closed."""
        self.index(host)
        if host.offered:
            self.ease(host)
        else:
            self.freed.pop(host.name, None)

    def knows(self, cluster: str) -> bool:
        return any(s.hosts and cluster in s.clusters for s in self._families.values())

    def see(self, machine: Machine) -> HostState | None:
        """Take over an observation; the host if that changed anything for placement."""
        host = self.hosts.get(machine.name)
        if host is None:
            host = self.hosts[machine.name] = HostState(machine.name)
        old = host.machine
        if host.up and old is not None:
            if old is machine or old == machine:
                return None
            machine = calm(old, machine)
            if machine == old:
                return None
        better = not host.up or old is None or improves(old, machine)
        if old is None or host.family is None or make_up(old) != make_up(machine):
            self._file(host, machine)
        elif not host.up or old.closed != machine.closed:
            self.changes.potential += 1
        assert host.family is not None
        host.up = True
        shrank = old is not None and not provides(machine, old)
        host.excused = bool(host.jobs) and (host.excused or old is None or shrank)
        host.measure(machine, host.family)
        self.index(host)
        if better:
            self.changes.potential += 1
            self.ease(host)
        if not host.offered:
            self.freed.pop(host.name, None)
        return host

    def gone(self, name: str) -> HostState | None:
        """No new placements there until it is seen again."""
        host = self.hosts.get(name)
        if host is None or not host.up:
            return None
        host.up = False
        self.freed.pop(name, None)
        self.changes.potential += 1
        self.index(host)
        return host

    def remove(self, name: str) -> HostState | None:
        host = self.hosts.get(name)
        if host is None or host.family is None:
            return None
        self._unfile(host)
        host.up = False
        host.machine = None
        host.gpus = []
        self.freed.pop(name, None)
        if not host.jobs:
            del self.hosts[name]
        return host

    def take(self, job_id: int, name: str, demand: Demand, gpus: tuple[int, ...]) -> HostState:
        host = self.hosts.get(name)
        if host is None:
            host = self.hosts[name] = HostState(name)
        host.take(job_id, demand, gpus)
        self.index(host)
        return host

    def give(self, job_id: int, name: str) -> HostState | None:
        """End a job's processes on one machine."""
        host = self.hosts.get(name)
        if host is None or not host.give(job_id):
            return None
        if host.family is None:
            if not host.jobs:
                del self.hosts[name]
            return host
        self.index(host)
        self.ease(host)
        return host

    def index(self, host: HostState) -> None:
        """Put a host where what is free there belongs."""
        self.changes.any += 1
        family = host.family
        if not isinstance(family, FamilyIndex):
            return
        free = part = None
        if host.offered and not host.held:
            free, part = free_level(host, family), part_level(host)
        family.free.move(host, host.free_level, free)
        family.part.move(host, host.part_level, part)
        host.free_level, host.part_level = free, part

    def _file(self, host: HostState, machine: Machine) -> None:
        self._unfile(host)
        models = tuple(sorted((gpu.model, gpu.groups) for gpu in machine.gpus))
        rights = (machine.clusters, machine.owners, machine.groups)
        key = (*rights, machine.aliases, machine.exact_names, models)
        if key not in self._families:
            self._families[key] = FamilyIndex(machine, len(self._families))
        family = self._families[key]
        family.hosts[host.name] = host
        host.family = family
        host.total_level = total_level(machine, family)
        family.total.move(host, None, host.total_level)
        self._name_groups(family)

    def _unfile(self, host: HostState) -> None:
        self.changes.potential += 1
        self._usable.clear()
        family = host.family
        if isinstance(family, FamilyIndex):
            family.free.move(host, host.free_level, None)
            family.part.move(host, host.part_level, None)
            family.total.move(host, host.total_level, None)
            del family.hosts[host.name]
            self._name_groups(family)
        host.family = host.free_level = host.part_level = host.total_level = None

    def _name_groups(self, family: FamilyIndex) -> None:
        """Machines came to a family or left it: which groups do machines name now?"""
        if family.named_groups:
            families = [found for found in self._families.values() if found.hosts]
            self.named_groups = NO_RIGHTS.union(*(found.named_groups for found in families))


def free_level(host: HostState, family: FamilyIndex) -> Level:
    empty = int(not host.processes)
    cpu, mem = level(host.cpu_free), level(host.mem_free)
    if len(family.kinds) < 2:
        return (host.idle if host.gpus else 0, empty, cpu, mem)
    idle = [0] * len(family.kinds)
    for gpu in host.gpus:
        if not gpu.users and not gpu.busy:
            idle[gpu.kind] += 1
    return (sum(idle), empty, cpu, mem, *idle)


def part_level(host: HostState) -> Level | None:
    """The most that is left on any GPU in use; None if there is no such GPU."""
    mem = util = -1
    if len(host.gpus) == host.idle:
        return None
    for gpu in host.gpus:
        if (gpu.users or gpu.busy) and not gpu.held:
            mem, util = max(mem, gpu.mem_free), max(util, gpu.util_free)
    return None if mem < 0 or util < 0 else (level(mem), util // 100)


def total_level(machine: Machine, family: FamilyIndex) -> Level:
    cpu, mem = level(round(machine.cpus * CPU_OVERLOAD)), level(machine.mem_mb)
    counts = tuple(family.counts) if len(family.kinds) > 1 else ()
    return (family.gpu_count, 1, cpu, mem, *counts)


def make_up(machine: Machine) -> tuple[object, ...]:
    """What of a machine changes only when somebody changes the machine."""
    gpus = tuple((gpu.index, gpu.model, gpu.mem_mb, gpu.groups) for gpu in machine.gpus)
    return (
        machine.cpus,
        machine.mem_mb,
        gpus,
        machine.clusters,
        machine.owners,
        machine.groups,
        machine.aliases,
        machine.exact_names,
    )


def provides(machine: Machine, old: Machine) -> bool:
    """Whether a machine still has all it had, whatever others use of it."""
    return machine.cpus >= old.cpus and machine.mem_mb >= old.mem_mb and machine_gpus(machine, old)


def machine_gpus(machine: Machine, old: Machine) -> bool:
    have = {gpu.index: gpu.mem_mb for gpu in machine.gpus}
    return all(have.get(gpu.index, -1) >= gpu.mem_mb for gpu in old.gpus)


def calm(old: Machine, new: Machine) -> Machine:
    """The new observation, without falls in foreign use too small to matter."""
    gpus = new.gpus
    if len(old.gpus) == len(gpus):
        gpus = tuple(map(calm_gpu, old.gpus, gpus))
    return replace(
        new,
        gpus=gpus,
        foreign_cpus=settle(old.foreign_cpus, new.foreign_cpus, SLACK_CPUS),
        foreign_mem_mb=settle(old.foreign_mem_mb, new.foreign_mem_mb, SLACK_MEM_MB),
    )


def calm_gpu(old: Gpu, new: Gpu) -> Gpu:
    if old == new:
        return old
    return replace(
        new,
        foreign_mem_mb=settle(old.foreign_mem_mb, new.foreign_mem_mb, SLACK_MEM_MB),
        foreign_util=settle(old.foreign_util, new.foreign_util, SLACK_UTIL),
    )


def settle(old: Amount, new: Amount, slack: float) -> Amount:
    return old if 0 < new < old and old - new < slack else new


def improves(old: Machine, new: Machine) -> bool:
    """Whether anything may fit now that did not before."""
    if make_up(old) != make_up(new):
        return True
    return (
        (bool(old.closed) and not new.closed)
        or (bool(old.claimed_by) and not new.claimed_by)
        or new.foreign_cpus < old.foreign_cpus
        or new.foreign_mem_mb < old.foreign_mem_mb
        or any(
            fresh.foreign_mem_mb < past.foreign_mem_mb
            or fresh.foreign_util < past.foreign_util
            or fresh.claimed_by != past.claimed_by
            or fresh.reserved < past.reserved
            for past, fresh in zip(old.gpus, new.gpus, strict=True)
        )
    )
