"""The reserved heads of a cluster's queue, and who may still use the machines kept for them.

The highest-ranked job that fits nowhere gets a reservation (and so do some behind it in a cluster
of many machines, or big jobs would have their turns one by one): seats on machines as they will be
once the jobs that run there now have ended. For each such machine a ghost holds its processes and
those of every job placed there later. Another job may join only if it also fits on the ghost, or if
its time limit ends it before the head can start. So the head starts no later than when the last of
the jobs that ran before its reservation ends, however many small jobs come after it.
"""

from collections.abc import Callable, Iterator
from itertools import chain, islice
from math import inf

from towline.core.bucket import Bucket
from towline.core.placement import Lacking, Seat, fill, total_rooms
from towline.core.pool import Shelf
from towline.core.room import Room
from towline.core.want import GPU_WEIGHT, Want

#: Machines considered per family and process; enough to find a good one, too few to be slow.
CONSIDERED = 8
#: Up to so many machines, all are considered.
FEW = 12
#: Machines tried before a job is held to fit nowhere because of what others use.
MOST_TRIED = 200
#: Machines are kept for one job of a cluster, and for one more per so many machines of it.
MACHINES_PER_HEAD = 15
MOST_KEPT = 16
#: The head's own processes on a ghost; no job has this id.
HEAD = -1


class Reservation:
    """The seats kept for the first job of a bucket, and when it can start at the latest."""

    __slots__ = ("bucket", "ghosts", "seats", "start_at")

    def __init__(self, bucket: Bucket, seats: list[Seat], start_at: float) -> None:
        self.bucket = bucket
        self.seats = seats
        #: Infinite when a job without a time limit stands before it.
        self.start_at = start_at
        self.ghosts: dict[str, Room] = {}
        for room, want, gpus in seats:
            if room.name not in self.ghosts:
                self.ghosts[room.name] = room.emptied()
            self.ghosts[room.name].take(HEAD, want, gpus)

    def keep(self) -> None:
        for room in self.rooms():
            room.kept = self

    def rooms(self) -> list[Room]:
        return list({room.name: room for room, _, _ in self.seats}.values())

    def first_job(self) -> int:
        entry = self.bucket.entry
        return entry[1] if entry is not None else 0

    def binds(self, bucket: Bucket, limit_s: float, now: float) -> bool:
        """Whether a job must fit beside the head on the machines kept for it."""
        if bucket is self.bucket or bucket.priority > self.bucket.priority:
            return False
        return not limit_s or now + limit_s > self.start_at

    def ready(self) -> list[Seat] | None:
        """Its seats, if all of them are free now."""
        twins: dict[str, Room] = {}
        for room, want, gpus in self.seats:
            twin = twins.get(room.name) or twins.setdefault(room.name, room.copy())
            if not room.offered or not twin.accepts(want, gpus):
                return None
            twin.take(HEAD, want, gpus)
        return self.seats

    def see(self, room: Room) -> bool:
        """Follow a new observation of a kept machine; False if the head does not fit any more."""
        ghost = self.ghosts[room.name]
        if room.machine is None or room.family is None or not room.up or room.shut:
            return False
        if not room.family.allows(self.bucket.cluster, self.bucket.owner):
            return False
        ghost.give(HEAD)
        ghost.measure(room.machine, room.family)
        alone = room.emptied()
        moved: list[Seat] = []
        for seat in self.seats:
            if seat[0] is not room:
                moved.append(seat)
                continue
            gpus = alone.choose(seat[1], ghost) or alone.choose(seat[1])
            if gpus is None:
                return False
            alone.take(HEAD, seat[1], gpus)
            ghost.take(HEAD, seat[1], gpus)
            moved.append((room, seat[1], gpus))
        self.seats = moved
        return True

    def let_go(self) -> list[Room]:
        """End it; the machines that were kept."""
        rooms = self.rooms()
        for room in rooms:
            room.kept = None
        return rooms


Ends = Callable[[int], float]


def reserve(
    bucket: Bucket, shelves: list[Shelf], accept: Callable[[Room], bool], ends: Ends, now: float
) -> Reservation | None:
    """Seats where a bucket's first job can start soonest, or with the least to drain."""
    count = sum(count for count, _ in bucket.groups)

    def rooms_for(want: Want) -> Iterator[Room]:
        found = sorted(
            considered(shelves, want, accept, CONSIDERED + count),
            key=lambda room: to_drain(room, want),
        )
        close = sorted(
            found[: CONSIDERED + count], key=lambda room: free_at(room, [want], ends, now)
        )
        rest = (room for room in total_rooms(shelves, want) if accept(room))
        return chain(close, found[CONSIDERED + count :], islice(rest, MOST_TRIED + count))

    seats = fill(
        bucket.groups,
        rooms_for,
        lambda room: (room.emptied(), None),
        lambda room, want: room.emptied().choose(want),
    )
    if isinstance(seats, Lacking):
        return None
    wants: dict[str, tuple[Room, list[Want]]] = {}
    for room, want, _ in seats:
        wants.setdefault(room.name, (room, []))[1].append(want)
    start_at = max(free_at(room, here, ends, now) for room, here in wants.values())
    return Reservation(bucket, seats, start_at)


def considered(
    shelves: list[Shelf], want: Want, accept: Callable[[Room], bool], most: int
) -> Iterator[Room]:
    """Some machines of every family that can take a want when empty, those with most free first."""
    for shelf in shelves:
        if shelf.low(want) is None:
            continue
        if len(shelf.rooms) <= max(FEW, most):
            yield from filter(accept, shelf.rooms.values())
        else:
            yield from islice(filter(accept, shelf.free.from_the_top()), most)


def free_at(room: Room, wants: list[Want], ends: Ends, now: float) -> float:
    """When these wants fit by the time limits of what runs there; infinite if unknown."""
    until = sorted((ends(job), job) for job in room.jobs)
    if until and until[0][0] == inf:
        return inf
    twin = room.copy()
    at = now
    for end, job in [(now, 0), *until]:
        twin.give(job)
        at = max(at, end)
        if all_fit(twin, wants):
            return at
    return inf


def all_fit(room: Room, wants: list[Want]) -> bool:
    twin = room.copy() if len(wants) > 1 else room
    for want in wants:
        gpus = twin.choose(want)
        if gpus is None:
            return False
        if len(wants) > 1:
            twin.take(HEAD, want, gpus)
    return True


def to_drain(room: Room, want: Want) -> tuple[float, int]:
    """How much must end on a machine before a want fits, in CPUs or their worth."""
    if want.exclusive or room.held:
        return (float(room.processes), len(room.jobs))
    short = max(0, want.cpu - room.cpu_free) / 1000
    short += max(0, want.mem - room.mem_free) / 4096
    if want.gpus:
        free = sum(1 for gpu in room.gpus if gpu.takes(want))
        short += GPU_WEIGHT * max(0, want.gpu_count - free)
    return (short, len(room.jobs))
