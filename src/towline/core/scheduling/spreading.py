"""Where jobs go while nobody waits for more: to what is least used, so that none slows another.

Shared GPUs are filled evenly: an idle one first, and of several that are in use the one that is
least so. Work without GPUs goes to the least used of the machines that have equally many GPUs.

Big jobs must still find places. So among idle GPUs it is those of the machine with the fewest left,
and big machines that nobody uses stay whole until GPUs that are shared already would be overloaded.
As soon as somebody waits who needs more than this job, the tightest fit is sought (placement.py).
"""

from collections.abc import Iterator
from itertools import chain, islice

from towline.core.machines.demand import GPU_OVERLOAD, Demand, level
from towline.core.machines.host_state import HostState
from towline.core.machines.levels import Level
from towline.core.machines.machine_index import FamilyIndex

#: Machines compared per family: all of a lab's, and of thousands enough.
MOST_COMPARED = 32
#: A machine of so many GPUs is big.
BIG = 4
#: All of a GPU's computing, in thousandths.
WHOLE = 1000

#: How much a placement is to be avoided; the least is the best.
Cost = tuple[float, ...]


def spreads(demand: Demand) -> bool:
    """Whether a process shares what it gets, so that it matters with how many."""
    return not demand.exclusive and not (demand.gpus and demand.reserved)


def rounds(families: list[FamilyIndex], demand: Demand) -> Iterator[Iterator[HostState]]:
    """Hosts to compare with each other; the next round is only for those who fit in none before."""
    if demand.gpus:
        yield chain.from_iterable(shared_hosts(family, demand) for family in families)
        return
    for count in sorted({family.gpu_count for family in families}):
        alike = (family for family in families if family.gpu_count == count)
        yield chain.from_iterable(freest(family, demand) for family in alike)


def freest(family: FamilyIndex, demand: Demand) -> Iterator[HostState]:
    low = family.low(demand)
    if low is not None:
        yield from islice(family.free.from_the_top(low), MOST_COMPARED)


def shared_hosts(family: FamilyIndex, demand: Demand) -> Iterator[HostState]:
    """Some machines with idle GPUs, those with fewest first, and some whose GPUs are in use."""
    if family.match(demand) is not None:
        idle = (host for _, host in family.free_hosts(demand))
        least: Level = (level(demand.gpu_mem), demand.gpu_util // 100)
        yield from islice(idle, MOST_COMPARED)
        yield from islice(family.part.from_the_top(least), MOST_COMPARED)


def cost(host: HostState, demand: Demand, gpus: tuple[int, ...]) -> Cost:
    """How little a host recommends itself for a process that would get these of its GPUs."""
    if not gpus:
        return (host.load,)
    given = [gpu for gpu in host.gpus if gpu.index in gpus]
    used = max(GPU_OVERLOAD - gpu.util_free for gpu in given)
    return (
        used + demand.gpu_util > WHOLE,
        host.idle == len(host.gpus) >= BIG,
        max(gpu.load for gpu in given),
        max(gpu.users for gpu in given),
        len(host.gpus),
        host.idle,
        host.load,
    )
