"""Where a job goes: all of its processes at once or none; spread, or best fit first."""

from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import chain, islice
from operator import itemgetter

from msgspec.structs import replace

from towline.core.machines.demand import Demand
from towline.core.machines.host_state import HostState
from towline.core.machines.levels import Level
from towline.core.machines.machine_index import FamilyIndex, candidates
from towline.core.scheduling.spreading import Cost, cost, rounds, spreads
from towline.model.machine import Machine, Placement, Slot

#: (count, what each of them needs) per process group.
Groups = tuple[tuple[int, Demand], ...]
#: One process: machine, need, GPU indexes.
Seat = tuple[HostState, Demand, tuple[int, ...]]

#: Hosts looked at for one process before giving up; reached only when thousands of machines
#: have it by level but not by the megabyte.
MOST_HOSTS = 1000


class Lacking:
    """How many processes found no place, what they need, and what was placed before them."""

    __slots__ = ("count", "demand", "harder")

    def __init__(self, count: int, demand: Demand, harder: tuple[Demand, ...] = ()) -> None:
        self.count = count
        self.demand = demand
        self.harder = harder


class Search:
    """Where one job may look: families, machines it is barred from, and what it must fit beside."""

    __slots__ = ("barred", "families", "hindered", "pack", "shadow")

    def __init__(
        self,
        families: list[FamilyIndex],
        barred: tuple[str, ...],
        shadow: Callable[[HostState], HostState | None],
        pack: bool = True,
    ) -> None:
        self.families = families
        #: Somebody waits who needs more: look for the tightest fit, not for what is least used.
        self.pack = pack
        self.barred = barred
        #: For a machine that is kept for another job: what it will look like then.
        self.shadow = shadow
        #: A machine kept for another job was all that lacked; a time limit could have helped.
        self.hindered = False

    def may_use(self, host: HostState) -> bool:
        return host.offered and host.family in self.families and host.name not in self.barred

    def hosts_for(self, demand: Demand) -> Iterator[HostState]:
        hosts = candidates(self.families, demand)
        if self.barred:
            hosts = (host for host in hosts if host.name not in self.barred)
        return islice(hosts, MOST_HOSTS)

    def choose(self, host: HostState, demand: Demand) -> tuple[int, ...] | None:
        shadow = self.shadow(host)
        gpus = host.choose(demand, shadow, self.pack)
        if gpus is None and shadow is not None and host.choose(demand) is not None:
            self.hindered = True
        return gpus

    def find(self, groups: Groups) -> list[Seat] | Lacking:
        """Seats for all processes in rank order, wherever they fit best."""
        if len(groups) == 1 and groups[0][0] == 1:
            demand = groups[0][1]
            if not self.pack and spreads(demand):
                return self._least_used(demand)
            if not demand.gpus or demand.whole:
                return self._tightest(demand)
            return self.first_of(demand, self.hosts_for(demand))
        return fill(groups, self.hosts_for, self._twins, self.choose)

    def find_among(self, demand: Demand, hosts: list[HostState]) -> list[Seat] | Lacking:
        """A seat in one of these few hosts."""
        if not self.pack and spreads(demand):
            return self._cheapest(demand, hosts)
        return self.first_of(demand, sorted(hosts, key=tightness))

    def _least_used(self, demand: Demand) -> list[Seat] | Lacking:
        for hosts in rounds(self.families, demand):
            found = self._cheapest(demand, hosts)
            if not isinstance(found, Lacking):
                return found
        # What was compared are some hosts of each family only.
        return self.first_of(demand, self.hosts_for(demand))

    def _cheapest(self, demand: Demand, hosts: Iterable[HostState]) -> list[Seat] | Lacking:
        best: tuple[Cost, list[Seat]] | None = None
        for host in hosts:
            if host.name not in self.barred:
                gpus = self.choose(host, demand)
                if gpus is not None:
                    found = cost(host, demand, gpus)
                    if best is None or found < best[0]:
                        best = found, [(host, demand, gpus)]
        return best[1] if best is not None else Lacking(1, demand)

    def first_of(self, demand: Demand, hosts: Iterable[HostState]) -> list[Seat] | Lacking:
        for host in hosts:
            gpus = self.choose(host, demand)
            if gpus is not None:
                return [(host, demand, gpus)]
        return Lacking(1, demand)

    def _tightest(self, demand: Demand) -> list[Seat] | Lacking:
        """As `first_of` all hosts, but each family is searched no further than it can win."""
        best: tuple[Level, list[Seat]] | None = None
        tried = 0
        for family in self.families:
            for over, host in family.free_hosts(demand):
                if best is not None and over >= best[0]:
                    break
                if host.name not in self.barred:
                    gpus = self.choose(host, demand)
                    if gpus is not None:
                        best = over, [(host, demand, gpus)]
                        break
                    tried += 1
                    if tried > MOST_HOSTS:
                        break
        return best[1] if best is not None else Lacking(1, demand)

    def _twins(self, host: HostState) -> tuple[HostState, HostState | None]:
        shadow = self.shadow(host)
        return host.copy(), shadow.copy() if shadow is not None else None


def tightness(host: HostState) -> Level:
    """Sorts machines as a search through the index would find them."""
    family, free = host.family, host.free_level
    return family.over(free) if isinstance(family, FamilyIndex) and free is not None else ()


def fill(
    groups: Groups,
    hosts_for: Callable[[Demand], Iterable[HostState]],
    twins: Callable[[HostState], tuple[HostState, HostState | None]],
    choose: Callable[[HostState, Demand], tuple[int, ...] | None],
) -> list[Seat] | Lacking:
    """Fill hosts one after the other, the hardest processes first, on twins of the hosts."""
    opened: dict[str, tuple[HostState, HostState, HostState | None]] = {}
    seats: dict[int, list[Seat]] = {}
    for number in sorted(range(len(groups)), key=lambda n: groups[n][1].hardness(), reverse=True):
        count, demand = groups[number]
        seated = seats[number] = []
        if not count:
            continue
        before = [host for host, _, _ in opened.values()]
        for host in chain(before, hosts_for(demand)):
            if host.name not in opened:
                if choose(host, demand) is None:
                    continue
                opened[host.name] = (host, *twins(host))
            _, twin, shadow = opened[host.name]
            while len(seated) < count and (gpus := twin.choose(demand, shadow)) is not None:
                twin.take(0, demand, gpus)
                if shadow is not None:
                    shadow.take(0, demand, gpus)
                seated.append((host, demand, gpus))
            if len(seated) == count:
                break
        else:
            harder = tuple(groups[before][1] for before in seats)
            return Lacking(count - len(seated), demand, harder)
    return [seat for number in range(len(groups)) for seat in seats[number]]


def total_hosts(families: list[FamilyIndex], demand: Demand) -> Iterator[HostState]:
    """Hosts where a demand may fit when they are empty, smallest first."""
    found = merge(*(family.total_hosts(demand) for family in families), key=itemgetter(0))
    return (host for _, host in found)


def bare(machine: Machine) -> Machine:
    """The machine as if nobody used it."""
    gpus = tuple(
        replace(gpu, foreign_mem_mb=0, foreign_util=0.0, claimed_by="", reserved=False)
        for gpu in machine.gpus
    )
    return replace(machine, foreign_cpus=0.0, foreign_mem_mb=0, claimed_by="", gpus=gpus)


def bare_host(host: HostState) -> HostState:
    twin = HostState(host.name)
    if host.machine is not None and host.family is not None:
        twin.measure(bare(host.machine), host.family)
    return twin


def ever_fits(
    families: list[FamilyIndex], groups: Groups, accept: Callable[[HostState], bool]
) -> Lacking | None:
    """None if machines that nobody used could take all processes; else what would lack."""

    def hosts_for(demand: Demand) -> Iterator[HostState]:
        return filter(accept, total_hosts(families, demand))

    found = fill(
        groups,
        hosts_for,
        lambda host: (bare_host(host), None),
        lambda host, demand: bare_host(host).choose(demand),
    )
    return found if isinstance(found, Lacking) else None


def placement_of(seats: list[Seat]) -> Placement:
    return tuple(
        Slot(host.name, gpus, host.machine.target, host.machine.identity)
        if host.machine
        else Slot(host.name, gpus)
        for host, _, gpus in seats
    )
