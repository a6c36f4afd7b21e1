"""How much any packing could have run at one moment, at most: the yardstick of the simulated week.

GPUs are counted by how full they are: a whole GPU is 1; of a process that shares one of which n of
the same sort fit on it, each is 1/n. What fits on one machine at most is found exactly: who needs
idle GPUs needs all of them on one machine, and who shares fills what is left of each GPU (a
knapsack of memory and utilisation). CPUs are those of jobs without GPUs, beside the GPU jobs that
run; of these, too, a machine holds whole ones only.

What others use stays used, and machines that are closed or away keep what they have, and get no
more. Processes of one job are placed one by one, memory of machines is not looked at, and for GPUs
their CPUs hardly are, and no machine is kept for anyone: each of these lets the bound only grow.

There are two bounds for GPUs, one function of two views of the machines. In the one what runs stays
where it is, as nobody can move it, and those who wait go wherever GPUs are left. In the other all
is packed anew, what runs as well: nobody who cannot move what runs can reach it.

Both are found with prices. Let every process of a sort cost something, no matter what. Whatever
runs is then worth what all of it cost (no more than the price of all there are), and what it fills
beyond that; and of the latter no machine holds more than its best content at these prices. So each
choice of prices gives a bound; the least of many is taken.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import chain, combinations
from typing import Any

from towline.model.request import Need

#: As the scheduler has it: sums of CPUs and of utilisation may exceed what there is by this much.
CPU_OVERLOAD, GPU_OVERLOAD = 1.5, 1.2
#: Steps in which the knapsack counts.
STEP_MB, STEP_UTIL, STEP_CPUS = 512, 0.05, 0.5

#: Who is on a GPU: nobody, other people's programs, jobs of ours that share it.
NOBODY, OTHERS, OURS = range(3)
#: One GPU: free memory and utilisation, who is on it, and how full those make it who share it.
GpuState = tuple[int, float, int, float]
#: One machine: its kind, and its GPUs.
HostState = tuple[str, tuple[GpuState, ...]]
#: The same for jobs without GPUs: CPUs free for them, CPUs they have, whether no GPU job is here.
CpuState = tuple[str, float, float, bool]


class Sort:
    """Processes with the same need: how many there are, and what each takes on which machines."""

    def __init__(self, need: Need, allowed: dict[str, float]) -> None:
        self.need = need
        #: Kind of machine -> how much of GPUs (or CPUs) one of them fills there.
        self.allowed = allowed
        self.count = 0

    @property
    def fills(self) -> float:
        """The most that one of them fills anywhere."""
        return max(self.allowed.values(), default=0.0)

    @property
    def most(self) -> float:
        return self.count * self.fills


def subsets(items: Iterable[str]) -> list[frozenset[str]]:
    found = list(items)
    sizes = range(len(found) + 1)
    return [frozenset(s) for s in chain.from_iterable(combinations(found, n) for n in sizes)]


def fill_of(need: Need, mem_mb: int) -> float:
    """How full one process makes the GPUs it gets, on GPUs with so much memory."""
    if need.gpu_reserved:
        return float(need.gpu_count)
    fits = [round(GPU_OVERLOAD / need.gpu_util, 6) // 1] if need.gpu_util else []
    fits += [mem_mb // need.gpu_mem_mb] if need.gpu_mem_mb else []
    return 1 / min(fits)


@lru_cache(None)
def fullest(shared: frozenset[tuple[int, float, float]], mem_mb: int, util: float) -> float:
    """The most that processes of these sorts (memory, utilisation, fill) make of one GPU."""
    mem_steps, util_steps = mem_mb // STEP_MB, round(util / STEP_UTIL)
    best = [[0.0] * (util_steps + 1) for _ in range(mem_steps + 1)]
    for mem, share, fill in shared:
        cost, part = mem // STEP_MB, round(share / STEP_UTIL)
        for row in range(cost, mem_steps + 1):
            before, here = best[row - cost], best[row]
            for column in range(part, util_steps + 1):
                here[column] = max(here[column], before[column - part] + fill)
    return best[mem_steps][util_steps]


def gpu_bound(sorts: list[Sort], hosts: dict[HostState, int], kept: float) -> float:
    """How full all GPUs together can be; `kept` is what stays as it is, or where it is."""
    return kept + least_bound(sorts, hosts, room)


def cpu_bound(sorts: list[Sort], hosts: dict[CpuState, int], kept: float) -> float:
    """How many CPUs jobs without GPUs can use, beside the GPU jobs that run."""
    return kept + least_bound(sorts, hosts, cpu_room)


def least_bound(sorts: list[Sort], hosts: Mapping[Any, int], room: Callable[..., float]) -> float:
    """The least bound at prices that are easily found."""
    present = [sort for sort in sorts if sort.count and sort.allowed]
    offers = Offers(present, hosts, room)
    kinds = {host[0] for host in hosts}
    # One may start anywhere: with those for nothing that can run on some kinds only, for instance.
    starts = {
        tuple(float(not sort.allowed.keys() <= chosen) for sort in present)
        for chosen in subsets(kinds)
    }
    found = [offers.improve(start, (0.0, 1.0)) for start in starts]
    best = min(found, key=offers.bound)
    return offers.bound(offers.improve(best, (0.0, 0.25, 0.5, 0.75, 1.0)))


#: What a process of each sort costs, as a part of the most that it fills anywhere.
Prices = tuple[float, ...]


class Offers:
    """What machines hold of the sorts of one moment, at any prices."""

    def __init__(
        self, sorts: list[Sort], hosts: Mapping[Any, int], room: Callable[..., float]
    ) -> None:
        self.sorts = sorts
        self.room = room
        self.hosts: dict[str, list[tuple[Any, int]]] = {}
        for host, count in hosts.items():
            self.hosts.setdefault(host[0], []).append((host, count))
        self._held: dict[tuple[str, Prices], float] = {}

    def improve(self, prices: Prices, steps: Prices) -> Prices:
        """The prices with the least bound that are found by changing one at a time."""
        best = self.bound(prices)
        again = True
        while again:
            again = False
            for number in range(len(prices)):
                for step in steps:
                    tried = (*prices[:number], step, *prices[number + 1 :])
                    if self.bound(tried) < best - 1e-9:
                        best, prices, again = self.bound(tried), tried, True
        return prices

    def bound(self, prices: Prices) -> float:
        """No packing is fuller: the price of all there are, and the best content of machines."""
        most = sum(price * sort.most for price, sort in zip(prices, self.sorts, strict=True))
        return most + sum(self._holds(kind, prices) for kind in self.hosts)

    def _holds(self, kind: str, prices: Prices) -> float:
        known = (
            kind,
            tuple(
                price if kind in sort.allowed else 1.0
                for price, sort in zip(prices, self.sorts, strict=True)
            ),
        )
        if known not in self._held:
            worth = [
                (sort.need, sort.allowed[kind], sort.allowed[kind] - price * sort.fills)
                for sort, price in zip(self.sorts, prices, strict=True)
                if kind in sort.allowed
            ]
            paying = [offer for offer in worth if offer[2] > 1e-9]
            self._held[known] = sum(
                count * self.room(host, paying) for host, count in self.hosts[kind] if paying
            )
        return self._held[known]


#: What a process needs, how much it fills on this machine, and what that is worth.
Offer = tuple[Need, float, float]


def room(host: HostState, offers: list[Offer]) -> float:
    """The most that one machine can hold of these, of which it may take any number."""
    gpus = host[1]
    idle_only = {}
    for need, _, worth in offers:
        if whole(need):
            idle_only[need.gpu_count] = max(worth, idle_only.get(need.gpu_count, 0.0))
    alone = [offer for offer in offers if offer[0].gpu_reserved and not whole(offer[0])]
    shared = [offer for offer in offers if not offer[0].gpu_reserved]
    parts = [part(gpu, alone, shared) for gpu in gpus]
    idle = sorted(full for full, gpu in zip(parts, gpus, strict=True) if gpu[2] == NOBODY)
    # Who needs idle GPUs gets those that are worth least to all others.
    best = max(worth + sum(idle[given:]) for given, worth in sums(idle_only, len(idle)).items())
    return best + sum(full for full, gpu in zip(parts, gpus, strict=True) if gpu[2] != NOBODY)


def part(gpu: GpuState, alone: list[Offer], shared: list[Offer]) -> float:
    """The most of one GPU without those who need an idle one; what it holds it can hold."""
    mem_mb, util, who, filled = gpu
    best = 0.0
    if shared:
        sizes = frozenset((need.gpu_mem_mb, need.gpu_util, worth) for need, _, worth in shared)
        held = filled * max(worth / fill for _, fill, worth in shared)
        best = max(held, fullest(sizes, mem_mb, round(util, 2)))
    for need, _, worth in alone:
        if who != OURS and need.gpu_mem_mb <= mem_mb and need.gpu_util <= util + 1e-9:
            best = max(best, worth)
    return best


def whole(need: Need) -> bool:
    """Whether nothing but idle GPUs will do."""
    return need.gpu_reserved and not need.gpu_mem_mb and not need.gpu_util


def sums(worths: dict[int, float], most: int) -> dict[int, float]:
    """What so many idle GPUs can be worth, given to jobs of these sizes without one left over."""
    found = {0: 0.0}
    for total in range(1, most + 1):
        fits = [found[total - n] + worth for n, worth in worths.items() if total - n in found]
        if fits:
            found[total] = max(fits)
    return found


def cpu_room(host: CpuState, offers: list[Offer]) -> float:
    """The most that one machine can hold of these: one that wants it alone, or many."""
    _, free, held, empty = host
    alone = [worth for need, _, worth in offers if need.exclusive and empty and need.cpus <= free]
    others = [(need.cpus, worth) for need, _, worth in offers if not need.exclusive]
    most = most_cpus(frozenset(others), int(free / STEP_CPUS + 1e-9))
    kept = held * max((worth / cpus for cpus, worth in others), default=0.0)
    return max(most, kept, *alone, 0.0)


@lru_cache(None)
def most_cpus(sizes: frozenset[tuple[float, float]], steps: int) -> float:
    """The most that processes of these sizes (CPUs, worth) are worth on so many steps of CPUs."""
    best = [0.0] * (steps + 1)
    for cpus, worth in sizes:
        cost = int(cpus / STEP_CPUS)
        for row in range(max(cost, 1), steps + 1):
            best[row] = max(best[row], best[row - cost] + worth)
    return max(best)
