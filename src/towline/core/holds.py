"""What keeps jobs back besides other jobs: somebody who holds them, and a time to begin at. Pure.

A job or batch may begin once nobody holds it and its time has come. Whoever waits for others as
well (`chains`) begins when both say so.
"""

from towline.model.job import Unit

#: A clock of this machine may stand still while it sleeps: the time is looked at this often.
_LOOK_S = 60.0


class Holds:
    """All jobs and batches that are kept back in this way."""

    def __init__(self) -> None:
        self._held: set[Unit] = set()
        #: Who does not begin before a time, in seconds since 1970.
        self._begin: dict[Unit, float] = {}

    def __bool__(self) -> bool:
        return bool(self._held or self._begin)

    def __contains__(self, unit: Unit) -> bool:
        return unit in self._held or unit in self._begin

    def add(self, unit: Unit, held: bool, begin: float, now: float) -> None:
        """Keep one back, if there is a reason to."""
        self.leave(unit)
        if held:
            self._held.add(unit)
        if begin > now:
            self._begin[unit] = begin

    def hold(self, unit: Unit) -> None:
        self._held.add(unit)

    def let_go(self, unit: Unit) -> None:
        """Nobody holds it any more."""
        self._held.discard(unit)

    def leave(self, unit: Unit) -> None:
        """It is kept back no more, or needs not be."""
        self._held.discard(unit)
        self._begin.pop(unit, None)

    def due(self, now: float) -> list[Unit]:
        """Those that may begin because their time has come."""
        come = [unit for unit, begin in self._begin.items() if begin <= now]
        for unit in come:
            del self._begin[unit]
        return [unit for unit in come if unit not in self._held]

    def is_held(self, unit: Unit) -> bool:
        return unit in self._held

    def begin_of(self, unit: Unit) -> float | None:
        """The time it waits for; None if it does not."""
        return self._begin.get(unit)

    def wake_at(self, now: float) -> float | None:
        """When to look again though nothing happens before."""
        if not self._begin:
            return None
        return min(min(self._begin.values()), now + _LOOK_S)
