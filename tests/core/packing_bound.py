"""How much any packing could have run at one moment, at most: the yardstick of the simulated week.

GPUs are counted by how full they are: a whole GPU is 1; of a process that shares one of which n of
the same sort fit on it, each is 1/n. What fits on one GPU at most is found exactly (a knapsack
of memory and utilisation). CPUs are those of jobs without GPUs, beside the GPU jobs that run.

What others use stays used, and machines that are closed or away keep what they have, and get no
more. Processes of one job are placed one by one, memory of machines is not looked at, and for GPUs
their CPUs hardly are, and no machine is kept for anyone: each of these lets the bound only grow.

There are two bounds for GPUs. In `gpu_bound` what runs stays where it is, as nobody can move it,
and those who wait go wherever GPUs are left; one process gets several only where one machine has as
many. In `repacked_bound` all is packed anew, what runs as well: nobody who cannot move what runs
can reach it.

Both are cuts: for any set of kinds of machine, whatever runs is either on these (no more than they
hold), or of a sort that can run elsewhere (no more than there is of it). The least over many sets
is taken; and sorts that share may be counted by how many there are instead of by what fits.
"""

from collections.abc import Iterable
from functools import lru_cache
from itertools import chain, combinations

from towline.model.request import Need

#: As the scheduler has it: sums of CPUs and of utilisation may exceed what there is by this much.
CPU_OVERLOAD, GPU_OVERLOAD = 1.5, 1.2
#: Steps in which the knapsack counts.
STEP_MB, STEP_UTIL = 512, 0.05

#: Who is on a GPU: nobody, other people's programs, jobs of ours that share it.
NOBODY, OTHERS, OURS = range(3)
#: One GPU: its kind of machine, free memory and utilisation, who is on it, and how full it is
#: already of what is to be packed.
GpuState = tuple[str, int, float, int, float]


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


def repacked_bound(sorts: list[Sort], gpus: dict[GpuState, int], kept: float) -> float:
    """How full all GPUs together can be; `kept` is what runs where nothing more may start."""
    present = [sort for sort in sorts if sort.count]
    kinds = {state[0] for state in gpus}
    return kept + min(cut(present, gpus, chosen) for chosen in subsets(kinds))


def gpu_bound(sorts: list[Sort], gpus: dict[GpuState, int], running: float) -> float:
    """The same if what runs stays; kinds are `rack 3` for a machine with 3 idle GPUs.

    Sorts are those that wait. Kinds of one sort of machine are a row: who can go where few GPUs
    are idle can go where more are. So a cut has a place in each row, sought one row at a time.
    """
    present = [sort for sort in sorts if sort.count]
    rows: dict[str, list[str]] = {}
    for kind in sorted({state[0] for state in gpus}, key=lambda kind: int(kind.split()[1])):
        rows.setdefault(kind.split()[0], []).append(kind)
    best = cut(present, gpus, frozenset(state[0] for state in gpus))
    for first in (0, 99):
        places = dict.fromkeys(rows, first)
        for row in [*rows, *rows]:
            found = {}
            for place in range(len(rows[row]) + 1):
                tried = {**places, row: place}
                chosen = frozenset(k for name in rows for k in rows[name][tried[name] :])
                found[place] = cut(present, gpus, chosen)
            places[row] = min(found, key=lambda place: found[place])
            best = min(best, found[places[row]])
    return running + best


def cut(present: list[Sort], gpus: dict[GpuState, int], chosen: frozenset[str]) -> float:
    """No packing is fuller: on the chosen kinds what they hold, elsewhere all that may go there."""
    outside = [sort for sort in present if not sort.allowed.keys() <= chosen]
    inside = [sort for sort in present if sort.allowed.keys() <= chosen]
    shared = [sort for sort in inside if not sort.need.gpu_reserved]
    whole = [sort for sort in inside if sort.need.gpu_reserved]
    best = float("inf")
    for counted in subsets(map(str, range(len(shared)))):
        left = [sort for n, sort in enumerate(shared) if str(n) not in counted]
        bound = sum(sort.most for sort in outside) + sum(shared[int(n)].most for n in counted)
        for state, count in gpus.items():
            if state[0] in chosen and (left or whole):
                bound += count * room(state, left, whole)
        best = min(best, bound)
    return best


def room(state: GpuState, shared: list[Sort], whole: list[Sort]) -> float:
    """How full one GPU can be, of these sorts; what it holds already it can hold."""
    kind, mem_mb, util, users, filled = state
    best = max(filled if shared or whole else 0.0, _packed(kind, shared, mem_mb, util))
    for sort in whole:
        need = sort.need
        idle_only = not need.gpu_mem_mb and not need.gpu_util
        enough = need.gpu_mem_mb <= mem_mb and need.gpu_util <= util
        fits = users == NOBODY if idle_only else users != OURS and enough
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
