"""How much any packing could have run at one moment, at most: the yardstick of the simulated week.

Everything may be packed anew, by someone who knows all jobs: those that run and those that wait.
What others use stays used, and machines that are closed or away keep what they have and get no more.
Processes of one job are placed one by one, memory of machines is not looked at, and for GPUs their
CPUs are not either: each of these lets the bound only grow.

GPUs are counted by how full they are: a whole GPU is 1; of a process that shares one of which n of
the same sort fit on it, each is 1/n. What fits on one GPU at most is found exactly (a knapsack
of memory and utilisation). CPUs are those of jobs without GPUs, beside the GPU jobs that run.

The bound itself is a cut: for any set of kinds of machine, whatever runs is either on these (no more
than they hold), or of a sort that can run elsewhere (no more than there is of it). The least over all
sets is taken; and sorts that share may be counted by how many there are instead of by what fits.
"""

from collections.abc import Iterable
from functools import lru_cache
from itertools import chain, combinations

from towline.model.request import Need

#: As the scheduler has it: sums of CPUs and of utilisation may exceed what there is by this much.
CPU_OVERLOAD, GPU_OVERLOAD = 1.5, 1.2
#: Steps in which the knapsack counts.
STEP_MB, STEP_UTIL = 512, 0.05

#: One GPU as others leave it: its kind of machine, free memory and utilisation, whether others
#: work on it, and how full our jobs have made it.
GpuState = tuple[str, int, float, bool, float]


class Sort:
    """Processes with the same need: how many there are, and what each takes on which machines."""

    def __init__(self, need: Need, allowed: dict[str, float]) -> None:
        self.need = need
        #: Kind of machine -> how much of GPUs (or CPUs) one of them fills there.
        self.allowed = allowed
        self.count = 0

    @property
    def most(self) -> float:
        return self.count * max(self.allowed.values(), default=0.0)


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


def gpu_bound(sorts: list[Sort], gpus: dict[GpuState, int], kept: float) -> float:
    """How full all GPUs together can be; `kept` is what runs where nothing more may start."""
    kinds = {state[0] for state in gpus}
    present = [sort for sort in sorts if sort.count]
    best = float("inf")
    for chosen in subsets(kinds):
        outside = [sort for sort in present if not sort.allowed.keys() <= chosen]
        inside = [sort for sort in present if sort.allowed.keys() <= chosen]
        shared = [sort for sort in inside if not sort.need.gpu_reserved]
        for counted in subsets(map(str, range(len(shared)))):
            left = [s for n, s in enumerate(shared) if str(n) not in counted]
            bound = sum(sort.most for sort in outside)
            bound += sum(shared[int(n)].most for n in counted)
            whole = [sort for sort in inside if sort.need.gpu_reserved]
            bound += sum(
                count * room(state, left, whole)
                for state, count in gpus.items()
                if state[0] in chosen
            )
            best = min(best, bound)
    return best + kept


def room(state: GpuState, shared: list[Sort], whole: list[Sort]) -> float:
    """How full one GPU can be, of these sorts; what it holds already it can hold."""
    kind, mem_mb, util, busy, filled = state
    best = max(filled if shared or whole else 0.0, _packed(kind, shared, mem_mb, util))
    for sort in whole:
        need = sort.need
        idle_only = not need.gpu_mem_mb and not need.gpu_util
        fits = not busy if idle_only else need.gpu_mem_mb <= mem_mb and need.gpu_util <= util
        if kind in sort.allowed and fits:
            return max(1.0, best)
    return best


def _packed(kind: str, shared: list[Sort], mem_mb: int, util: float) -> float:
    here = frozenset(
        (sort.need.gpu_mem_mb, sort.need.gpu_util, sort.allowed[kind])
        for sort in shared
        if kind in sort.allowed
    )
    return fullest(here, mem_mb, round(util, 2)) if here else 0.0


def cpu_bound(sorts: list[Sort], free: dict[str, float], kept: float) -> float:
    """How many CPUs jobs without GPUs can use; `free` is what others and GPU jobs leave."""
    return kept + min(
        sum(free[kind] for kind in chosen)
        + sum(sort.most for sort in sorts if not sort.allowed.keys() <= chosen)
        for chosen in subsets(free)
    )
