"""Where a job goes: all of its processes at once or none; spread, or best fit first."""

from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import chain, islice
from operator import itemgetter

from msgspec.structs import replace

from towline.core.machines.levels import Level
from towline.core.machines.pool import Shelf, candidates
from towline.core.machines.room import Room
from towline.core.machines.want import Want
from towline.core.scheduling.spreading import Cost, cost, rounds, spreads
from towline.model.machine import Machine

#: (count, what each of them needs) per process group.
Groups = tuple[tuple[int, Want], ...]
#: One process: machine, need, GPU indexes.
Seat = tuple[Room, Want, tuple[int, ...]]

#: Rooms looked at for one process before giving up; reached only when thousands of machines
#: have room by level but not by the megabyte.
MOST_ROOMS = 1000


class Lacking:
    """How many processes found no place, what they need, and what was placed before them."""

    __slots__ = ("count", "harder", "want")

    def __init__(self, count: int, want: Want, harder: tuple[Want, ...] = ()) -> None:
        self.count = count
        self.want = want
        self.harder = harder


class Search:
    """Where one job may look: families, machines it is barred from, and what it must fit beside."""

    __slots__ = ("barred", "beside", "hindered", "pack", "shelves")

    def __init__(
        self,
        shelves: list[Shelf],
        barred: tuple[str, ...],
        beside: Callable[[Room], Room | None],
        pack: bool = True,
    ) -> None:
        self.shelves = shelves
        #: Somebody waits who needs more: look for the tightest fit, not for what is least used.
        self.pack = pack
        self.barred = barred
        #: For a machine that is kept for another job: what it will look like then.
        self.beside = beside
        #: A machine kept for another job was all that lacked; a time limit could have helped.
        self.hindered = False

    def may_use(self, room: Room) -> bool:
        return room.offered and room.family in self.shelves and room.name not in self.barred

    def rooms_for(self, want: Want) -> Iterator[Room]:
        rooms = candidates(self.shelves, want)
        if self.barred:
            rooms = (room for room in rooms if room.name not in self.barred)
        return islice(rooms, MOST_ROOMS)

    def choose(self, room: Room, want: Want) -> tuple[int, ...] | None:
        if room.kept is None:
            return room.choose(want, None, self.pack)
        beside = self.beside(room)
        gpus = room.choose(want, beside, self.pack)
        if gpus is None and beside is not None and room.choose(want) is not None:
            self.hindered = True
        return gpus

    def find(self, groups: Groups) -> list[Seat] | Lacking:
        """Seats for all processes in rank order, wherever they fit best."""
        if len(groups) == 1 and groups[0][0] == 1:
            want = groups[0][1]
            if not self.pack and spreads(want):
                return self._least_used(want)
            if not want.gpus or want.whole:
                return self._tightest(want)
            return self.first_of(want, self.rooms_for(want))
        return fill(groups, self.rooms_for, self._twins, self.choose)

    def find_among(self, want: Want, rooms: list[Room]) -> list[Seat] | Lacking:
        """A seat in one of these few rooms."""
        if not self.pack and spreads(want):
            return self._cheapest(want, rooms)
        return self.first_of(want, sorted(rooms, key=tightness))

    def _least_used(self, want: Want) -> list[Seat] | Lacking:
        for rooms in rounds(self.shelves, want):
            found = self._cheapest(want, rooms)
            if not isinstance(found, Lacking):
                return found
        # What was compared are some rooms of each family only.
        return self.first_of(want, self.rooms_for(want))

    def _cheapest(self, want: Want, rooms: Iterable[Room]) -> list[Seat] | Lacking:
        best: tuple[Cost, list[Seat]] | None = None
        for room in rooms:
            if room.name not in self.barred:
                gpus = self.choose(room, want)
                if gpus is not None:
                    found = cost(room, want, gpus)
                    if best is None or found < best[0]:
                        best = found, [(room, want, gpus)]
        return best[1] if best is not None else Lacking(1, want)

    def first_of(self, want: Want, rooms: Iterable[Room]) -> list[Seat] | Lacking:
        for room in rooms:
            gpus = self.choose(room, want)
            if gpus is not None:
                return [(room, want, gpus)]
        return Lacking(1, want)

    def _tightest(self, want: Want) -> list[Seat] | Lacking:
        """As `first_of` all rooms, but each family is searched no further than it can win."""
        best: tuple[Level, list[Seat]] | None = None
        tried = 0
        for shelf in self.shelves:
            for over, room in shelf.free_rooms(want):
                if best is not None and over >= best[0]:
                    break
                if room.name not in self.barred:
                    gpus = self.choose(room, want)
                    if gpus is not None:
                        best = over, [(room, want, gpus)]
                        break
                    tried += 1
                    if tried > MOST_ROOMS:
                        break
        return best[1] if best is not None else Lacking(1, want)

    def _twins(self, room: Room) -> tuple[Room, Room | None]:
        beside = self.beside(room) if room.kept is not None else None
        return room.copy(), beside.copy() if beside is not None else None


def tightness(room: Room) -> Level:
    """Sorts machines as a search through the index would find them."""
    shelf, free = room.family, room.free_level
    return shelf.over(free) if isinstance(shelf, Shelf) and free is not None else ()


def fill(
    groups: Groups,
    rooms_for: Callable[[Want], Iterable[Room]],
    twins: Callable[[Room], tuple[Room, Room | None]],
    choose: Callable[[Room, Want], tuple[int, ...] | None],
) -> list[Seat] | Lacking:
    """Fill rooms one after the other, the hardest processes first, on twins of the rooms."""
    opened: dict[str, tuple[Room, Room, Room | None]] = {}
    seats: dict[int, list[Seat]] = {}
    for number in sorted(range(len(groups)), key=lambda n: groups[n][1].hardness(), reverse=True):
        count, want = groups[number]
        seated = seats[number] = []
        if not count:
            continue
        before = [room for room, _, _ in opened.values()]
        for room in chain(before, rooms_for(want)):
            if room.name not in opened:
                if choose(room, want) is None:
                    continue
                opened[room.name] = (room, *twins(room))
            _, twin, beside = opened[room.name]
            while len(seated) < count and (gpus := twin.choose(want, beside)) is not None:
                twin.take(0, want, gpus)
                if beside is not None:
                    beside.take(0, want, gpus)
                seated.append((room, want, gpus))
            if len(seated) == count:
                break
        else:
            harder = tuple(groups[before][1] for before in seats)
            return Lacking(count - len(seated), want, harder)
    return [seat for number in range(len(groups)) for seat in seats[number]]


def total_rooms(shelves: list[Shelf], want: Want) -> Iterator[Room]:
    """Rooms where a want may fit when they are empty, smallest first."""
    found = merge(*(shelf.total_rooms(want) for shelf in shelves), key=itemgetter(0))
    return (room for _, room in found)


def bare(machine: Machine) -> Machine:
    """The machine as if nobody used it."""
    gpus = tuple(
        replace(gpu, foreign_mem_mb=0, foreign_util=0.0, claimed_by="", reserved=False)
        for gpu in machine.gpus
    )
    return replace(machine, foreign_cpus=0.0, foreign_mem_mb=0, claimed_by="", gpus=gpus)


def bare_room(room: Room) -> Room:
    twin = Room(room.name)
    if room.machine is not None and room.family is not None:
        twin.measure(bare(room.machine), room.family)
    return twin


def ever_fits(
    shelves: list[Shelf], groups: Groups, accept: Callable[[Room], bool]
) -> Lacking | None:
    """None if machines that nobody used could take all processes; else what would lack."""

    def rooms_for(want: Want) -> Iterator[Room]:
        return filter(accept, total_rooms(shelves, want))

    found = fill(
        groups,
        rooms_for,
        lambda room: (bare_room(room), None),
        lambda room, want: bare_room(room).choose(want),
    )
    return found if isinstance(found, Lacking) else None
