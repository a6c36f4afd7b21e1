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

from towline.core.machines.levels import Level, Levels
from towline.core.machines.room import Family, Room
from towline.core.machines.want import CPU_OVERLOAD, Want, level
from towline.model.machine import Gpu, Machine

Amount = TypeVar("Amount", int, float)

#: Foreign use that falls by less than this is not news; that it rises always is.
SLACK_CPUS = 0.25
SLACK_MEM_MB = 64
SLACK_UTIL = 0.05

#: Needs whose lowest level a family remembers.
MOST_LOWS = 10_000


class Shelf(Family):
    """A family with its machines in order."""

    def __init__(self, machine: Machine, number: int) -> None:
        super().__init__(machine, number)
        self.rooms: dict[str, Room] = {}
        #: By what is free now; by GPUs that are in use but not full; by what there is when empty.
        self.free = Levels()
        self.part = Levels()
        self.total = Levels()
        self._lows: dict[Want, Level | None] = {}

    def low(self, want: Want) -> Level | None:
        """The lowest level at which a want can fit; None if it never can in this family."""
        try:
            return self._lows[want]
        except KeyError:
            if len(self._lows) >= MOST_LOWS:
                self._lows.clear()
            return self._lows.setdefault(want, self._find_low(want))

    def _find_low(self, want: Want) -> Level | None:
        match = self.match(want)
        if match is None:
            return None
        low = [want.gpu_count, int(want.exclusive), level(want.cpu), level(want.mem)]
        if len(self.kinds) > 1:
            sure = [0] * len(self.kinds)
            for count, kinds in match:
                if len(kinds) == 1:
                    sure[next(iter(kinds))] += count
            low += sure
        return tuple(low)

    def free_rooms(self, want: Want) -> Iterator[tuple[Level, Room]]:
        """Rooms that may have this much free, with how much that would leave over."""
        low = self.low(want)
        if low is not None:
            for found, room in self.free.at_least(low):
                yield self.over(found), room

    def over(self, free: Level) -> Level:
        """The order of machines: those first that can do least, then those with least left over."""
        return (self.gpu_count, *free[:4], self.number)

    def part_rooms(self, want: Want) -> Iterator[tuple[Level, Room]]:
        if self.match(want) is not None:
            for found, room in self.part.at_least((level(want.gpu_mem), want.gpu_util // 100)):
                yield (self.gpu_count, *found, self.number), room

    def total_rooms(self, want: Want) -> Iterator[tuple[Level, Room]]:
        low = self.low(want)
        if low is not None:
            for found, room in self.total.at_least(low):
                yield (*found[:4], self.number), room


def candidates(shelves: list[Shelf], want: Want) -> Iterator[Room]:
    """Rooms where a want may fit now, best fit first; `Room.choose` has the last word."""
    free = (shelf.free_rooms(want) for shelf in shelves)
    if not want.gpus or want.whole:
        found = merge(*free, key=itemgetter(0))
        return (room for _, room in found)
    part = merge(*(shelf.part_rooms(want) for shelf in shelves), key=itemgetter(0))
    whole = merge(*free, key=itemgetter(0))
    # Shared work joins GPUs that are shared already; reserved work keeps away from busy ones.
    order = chain(whole, part) if want.reserved else chain(part, whole)
    return (room for _, room in order)


class Pool:
    """Every machine we know of, and what every job takes of it."""

    def __init__(self) -> None:
        self.rooms: dict[str, Room] = {}
        #: Machines that may fit more than when every waiting job was last looked at.
        self.freed: dict[str, Room] = {}
        #: Grows with every change of what machines are free; memos compare it.
        self.version = 0
        #: Grows when machines come, go or change in what they have.
        self.make_up = 0
        #: Grows whenever more fits somewhere.
        self.news = 0
        #: Grows whenever others use less, or machines are more.
        self.relief = 0
        self._shelves: dict[tuple[object, ...], Shelf] = {}
        self._usable: dict[tuple[str, str], list[Shelf]] = {}

    def shelves(self, cluster: str, owner: str) -> list[Shelf]:
        """The families an owner may use in a cluster."""
        key = (cluster, owner)
        if key not in self._usable:
            found = [s for s in self._shelves.values() if s.rooms and s.allows(cluster, owner)]
            # Owners with equal rights get the same list, so that rights compare by identity.
            same = (found_before for found_before in self._usable.values() if found_before == found)
            self._usable[key] = next(same, found)
        return self._usable[key]

    def all_shelves(self) -> Iterator[Shelf]:
        return iter(self._shelves.values())

    def ease(self, room: Room) -> None:
        """More may fit on a room than when every waiting job was last looked at."""
        if room.offered:
            self.freed[room.name] = room
            self.version += 1
            self.news += 1

    def gate(self, room: Room) -> None:
        """A room was opened to jobs or closed."""
        self.index(room)
        if room.offered:
            self.ease(room)
        else:
            self.freed.pop(room.name, None)

    def knows(self, cluster: str) -> bool:
        return any(s.rooms and cluster in s.clusters for s in self._shelves.values())

    def see(self, machine: Machine) -> Room | None:
        """Take over an observation; the room if that changed anything for placement."""
        room = self.rooms.get(machine.name)
        if room is None:
            room = self.rooms[machine.name] = Room(machine.name)
        old = room.machine
        if room.up and old is not None:
            if old is machine or old == machine:
                return None
            machine = calm(old, machine)
            if machine == old:
                return None
        better = not room.up or old is None or improves(old, machine)
        if old is None or room.family is None or make_up(old) != make_up(machine):
            self._reshelve(room, machine)
        elif not room.up or old.closed != machine.closed:
            self.make_up += 1
        assert room.family is not None
        room.up = True
        shrank = old is not None and not provides(machine, old)
        room.excused = bool(room.jobs) and (room.excused or old is None or shrank)
        room.measure(machine, room.family)
        self.index(room)
        if better:
            self.relief += 1
            self.ease(room)
        if not room.offered:
            self.freed.pop(room.name, None)
        return room

    def gone(self, name: str) -> Room | None:
        """No new placements there until it is seen again."""
        room = self.rooms.get(name)
        if room is None or not room.up:
            return None
        room.up = False
        self.freed.pop(name, None)
        self.make_up += 1
        self.index(room)
        return room

    def remove(self, name: str) -> Room | None:
        room = self.rooms.get(name)
        if room is None or room.family is None:
            return None
        self._unshelve(room)
        room.up = False
        room.machine = None
        room.gpus = []
        self.freed.pop(name, None)
        if not room.jobs:
            del self.rooms[name]
        return room

    def take(self, job_id: int, name: str, want: Want, gpus: tuple[int, ...]) -> Room:
        room = self.rooms.get(name)
        if room is None:
            room = self.rooms[name] = Room(name)
        room.take(job_id, want, gpus)
        self.index(room)
        return room

    def give(self, job_id: int, name: str) -> Room | None:
        """End a job's processes on one machine."""
        room = self.rooms.get(name)
        if room is None or not room.give(job_id):
            return None
        if room.family is None:
            if not room.jobs:
                del self.rooms[name]
            return room
        self.index(room)
        self.ease(room)
        return room

    def index(self, room: Room) -> None:
        """Put a room where what is free there belongs."""
        self.version += 1
        shelf = room.family
        if not isinstance(shelf, Shelf):
            return
        free = part = None
        if room.offered and not room.held:
            free, part = free_level(room, shelf), part_level(room)
        shelf.free.move(room, room.free_level, free)
        shelf.part.move(room, room.part_level, part)
        room.free_level, room.part_level = free, part

    def _reshelve(self, room: Room, machine: Machine) -> None:
        self._unshelve(room)
        models = tuple(sorted(gpu.model for gpu in machine.gpus))
        key = (machine.clusters, machine.owners, machine.aliases, models)
        if key not in self._shelves:
            self._shelves[key] = Shelf(machine, len(self._shelves))
        shelf = self._shelves[key]
        shelf.rooms[room.name] = room
        room.family = shelf
        room.total_level = total_level(machine, shelf)
        shelf.total.move(room, None, room.total_level)

    def _unshelve(self, room: Room) -> None:
        self.make_up += 1
        self._usable.clear()
        shelf = room.family
        if isinstance(shelf, Shelf):
            shelf.free.move(room, room.free_level, None)
            shelf.part.move(room, room.part_level, None)
            shelf.total.move(room, room.total_level, None)
            del shelf.rooms[room.name]
        room.family = room.free_level = room.part_level = room.total_level = None


def free_level(room: Room, shelf: Shelf) -> Level:
    empty = int(not room.processes)
    cpu, mem = level(room.cpu_free), level(room.mem_free)
    if len(shelf.kinds) < 2:
        return (room.idle if room.gpus else 0, empty, cpu, mem)
    idle = [0] * len(shelf.kinds)
    for gpu in room.gpus:
        if not gpu.users and not gpu.busy:
            idle[gpu.kind] += 1
    return (sum(idle), empty, cpu, mem, *idle)


def part_level(room: Room) -> Level | None:
    """The most that is left on any GPU in use; None if there is no such GPU."""
    mem = util = -1
    if len(room.gpus) == room.idle:
        return None
    for gpu in room.gpus:
        if (gpu.users or gpu.busy) and not gpu.held:
            mem, util = max(mem, gpu.mem_free), max(util, gpu.util_free)
    return None if mem < 0 or util < 0 else (level(mem), util // 100)


def total_level(machine: Machine, shelf: Shelf) -> Level:
    cpu, mem = level(round(machine.cpus * CPU_OVERLOAD)), level(machine.mem_mb)
    counts = tuple(shelf.counts) if len(shelf.kinds) > 1 else ()
    return (shelf.gpu_count, 1, cpu, mem, *counts)


def make_up(machine: Machine) -> tuple[object, ...]:
    """What of a machine changes only when somebody changes the machine."""
    gpus = tuple((gpu.index, gpu.model, gpu.mem_mb) for gpu in machine.gpus)
    return (
        machine.cpus,
        machine.mem_mb,
        gpus,
        machine.clusters,
        machine.owners,
        machine.aliases,
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
