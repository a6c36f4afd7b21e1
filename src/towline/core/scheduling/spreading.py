"""Where jobs go while nobody waits for more: to what is least used, so that none slows another.

Shared GPUs are filled evenly: an idle one first, and of several that are in use the one that is
least so. Work without GPUs goes to the least used of the machines that have equally many GPUs.

Big jobs must still find room. So among idle GPUs it is those of the machine with the fewest left,
and big machines that nobody uses stay whole until GPUs that are shared already would be overloaded.
As soon as somebody waits who needs more than this job, the tightest fit is sought (placement.py).
"""

from collections.abc import Iterator
from itertools import chain, islice

from towline.core.machines.levels import Level
from towline.core.machines.pool import Shelf
from towline.core.machines.room import Room
from towline.core.machines.want import GPU_OVERLOAD, Want, level

#: Machines compared per family: all of a lab's, and of a pool of thousands enough.
MOST_COMPARED = 32
#: A machine of so many GPUs is big.
BIG = 4
#: All of a GPU's computing, in thousandths.
WHOLE = 1000

#: How much a placement is to be avoided; the least is the best.
Cost = tuple[float, ...]


def spreads(want: Want) -> bool:
    """Whether a process shares what it gets, so that it matters with how many."""
    return not want.exclusive and not (want.gpus and want.reserved)


def rounds(shelves: list[Shelf], want: Want) -> Iterator[Iterator[Room]]:
    """Rooms to compare with each other; the next round is only for those who fit in none before."""
    if want.gpus:
        yield chain.from_iterable(shared_rooms(shelf, want) for shelf in shelves)
        return
    for count in sorted({shelf.gpu_count for shelf in shelves}):
        alike = (shelf for shelf in shelves if shelf.gpu_count == count)
        yield chain.from_iterable(roomiest(shelf, want) for shelf in alike)


def roomiest(shelf: Shelf, want: Want) -> Iterator[Room]:
    low = shelf.low(want)
    if low is not None:
        yield from islice(shelf.free.from_the_top(low), MOST_COMPARED)


def shared_rooms(shelf: Shelf, want: Want) -> Iterator[Room]:
    """Some machines with idle GPUs, those with fewest first, and some whose GPUs are in use."""
    if shelf.match(want) is not None:
        idle = (room for _, room in shelf.free_rooms(want))
        least: Level = (level(want.gpu_mem), want.gpu_util // 100)
        yield from islice(idle, MOST_COMPARED)
        yield from islice(shelf.part.from_the_top(least), MOST_COMPARED)


def cost(room: Room, want: Want, gpus: tuple[int, ...]) -> Cost:
    """How little a room recommends itself for a process that would get these of its GPUs."""
    if not gpus:
        return (room.load,)
    given = [gpu for gpu in room.gpus if gpu.index in gpus]
    used = max(GPU_OVERLOAD - gpu.util_free for gpu in given)
    return (
        used + want.gpu_util > WHOLE,
        room.idle == len(room.gpus) >= BIG,
        max(gpu.load for gpu in given),
        max(gpu.users for gpu in given),
        len(room.gpus),
        room.idle,
        room.load,
    )
