"""The reserved heads of a cluster's queue, and who may still use the machines kept for them.

The highest-ranked job that fits nowhere gets a reservation (and so do some behind it in a cluster
of many machines, or big jobs would have their turns one by one): seats on machines as they will be
once the jobs that run there now have ended. For each such machine a ghost holds its processes and
those of every job placed there later. Another job may join only if it also fits on the ghost, or if
its time limit ends it before the head can start. So the head starts no later than when the last of
the jobs that ran before its reservation ends, however many small jobs come after it.

Machines are chosen by how many jobs must end there, not by how much is free: to empty a machine of
many small jobs leaves most of it idle for long, while one that a single big job has is free at once
when that ends, so big jobs follow each other. The head sits on whatever GPUs come free first there.
"""

from collections.abc import Callable, Iterator
from itertools import chain, islice
from math import ceil, inf

from towline.core.machines.pool import Shelf
from towline.core.machines.room import Room, pick
from towline.core.machines.want import Want
from towline.core.scheduling.bucket import Bucket
from towline.core.scheduling.placement import Lacking, Seat, fill, total_rooms

#: Machines considered per family and process; enough to find a good one, too few to be slow.
CONSIDERED = 8
#: Up to so many machines, all are considered.
FEW = 50
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
        return self._seat_anew(room, ghost)

    def freed(self, room: Room, job_id: int, ends: "Ends", now: float) -> bool:
        """A job left a kept machine: its GPUs may be the head's; False if that does not fit now."""
        ghost = self.ghosts[room.name]
        ghost.give(job_id)
        ghost.give(HEAD)
        self.start_at = min(self.start_at, latest(self.seats, ends, now))
        return self._seat_anew(room, ghost)

    def _seat_anew(self, room: Room, ghost: Room) -> bool:
        """Give the head's processes on a machine the GPUs that are free first."""
        alone, now = room.emptied(), room.copy()
        moved: list[Seat] = []
        for seat in self.seats:
            if seat[0] is not room:
                moved.append(seat)
                continue
            gpus = soonest(alone, seat[1], now, ghost) or soonest(alone, seat[1], now)
            if gpus is None:
                return False
            for twin in (alone, ghost, now):
                twin.take(HEAD, seat[1], gpus)
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
    found = Reservation(bucket, seats, latest(seats, ends, now))
    for room in found.rooms():
        found.see(room)
    return found


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


def latest(seats: list[Seat], ends: Ends, now: float) -> float:
    """When all of these seats are free by the time limits of what runs there."""
    wants: dict[str, tuple[Room, list[Want]]] = {}
    for room, want, _ in seats:
        wants.setdefault(room.name, (room, []))[1].append(want)
    return max(free_at(room, here, ends, now) for room, here in wants.values())


def soonest(
    alone: Room, want: Want, now: Room, beside: Room | None = None
) -> tuple[int, ...] | None:
    """GPUs of an emptied machine for a process, those first that are free on it as it is now."""
    if not want.gpus or alone.choose(want, beside) is None:
        return alone.choose(want, beside)
    assert alone.family is not None
    match = alone.family.match(want)
    assert match is not None
    ready = {gpu.index for gpu in now.gpus if gpu.takes(want)}
    held = {gpu.index for gpu in (beside or alone).gpus if not gpu.takes(want)}
    free = [gpu for gpu in alone.gpus if gpu.takes(want) and gpu.index not in held]
    return pick(sorted(free, key=lambda gpu: gpu.index not in ready), match)


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
    """How long until a want fits, in lengths of a job if all are alike; and GPUs idle till then.

    The first of n such jobs ends after 1/n of their length, the next 1/(n-1) of it later: one big
    job is over sooner than the last of many small ones, and leaves no GPU idle before.
    """
    jobs = len(room.jobs)
    must_end = jobs if want.exclusive or room.held else ceil(jobs * share_to_end(room, want))
    return (sum(1 / (jobs - ended) for ended in range(min(jobs, must_end))), room.idle)


def share_to_end(room: Room, want: Want) -> float:
    """How much of what our jobs have on a machine must be free before a want fits."""
    processes = [process for found in room.jobs.values() for process in found]
    cpu = (want.cpu - room.cpu_free) / (sum(used.cpu for used, _ in processes) or 1)
    mem = (want.mem - room.mem_free) / (sum(used.mem for used, _ in processes) or 1)
    share = max(cpu, mem, 0.0)
    if want.gpus:
        free = sum(1 for gpu in room.gpus if gpu.takes(want))
        in_use = sum(1 for gpu in room.gpus if gpu.users)
        share = max(share, (want.gpu_count - free) / (in_use or 1))
    return min(share, 1.0)
