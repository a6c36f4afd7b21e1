"""When jobs may start on a machine: it has starts in hand (pace.py), and is not set aside."""

from heapq import heappop, heappush

from towline.core.machines.pool import Pool
from towline.core.machines.room import Room
from towline.core.scheduling.pace import Pace


class Gates:
    """Opens and closes the rooms of a pool."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self._paces: dict[str, Pace] = {}
        #: (when its next start is in hand, machine); one that is not paced any more is skipped.
        self._due: list[tuple[float, str]] = []

    def started(self, room: Room, job_id: int, now: float) -> bool:
        """A job was placed on a room; False if that set it aside again."""
        if room.machine is not None and room.machine.stagger_s:
            pace = self._pace(room) or self._paces.setdefault(
                room.name, Pace(room.machine.stagger_s)
            )
            if not pace.start(now):
                room.paced = True
                heappush(self._due, (pace.due(), room.name))
                self.pool.gate(room)
        if room.one_only:
            room.aside, room.one_only = room.one_only.replace("one job", f"job {job_id}"), ""
            self.pool.gate(room)
            return False
        return True

    def ended(self, room: Room, ran_s: float, well: bool, now: float) -> None:
        """A job that was placed on a room ended."""
        pace = self._pace(room)
        if pace is not None:
            pace.end(now, ran_s, well)
            if room.paced:
                self._look(room, pace, now)

    def open_due(self, now: float) -> None:
        """Open the rooms whose next start is in hand."""
        while self._due and self._due[0][0] <= now:
            _, name = heappop(self._due)
            room = self.pool.rooms.get(name)
            if room is not None and room.paced:
                pace = self._pace(room)
                self._look(room, pace, now)
                if room.paced and pace is not None:
                    heappush(self._due, (max(pace.due(), now + 1e-3), name))

    def wake_at(self) -> float | None:
        """When a paced start is due."""
        while self._due:
            room = self.pool.rooms.get(self._due[0][1])
            if room is not None and room.paced:
                return self._due[0][0]
            heappop(self._due)
        return None

    def forget(self, name: str) -> None:
        self._paces.pop(name, None)

    def _pace(self, room: Room) -> Pace | None:
        pace = self._paces.get(room.name)
        if pace is not None and room.machine is not None:
            pace.stagger_s = room.machine.stagger_s
        return pace

    def _look(self, room: Room, pace: Pace | None, now: float) -> None:
        if pace is None or pace.ready(now):
            room.paced = False
            self.pool.gate(room)
