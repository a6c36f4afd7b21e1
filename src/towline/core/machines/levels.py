"""Machines grouped by coarse steps of what is free on them, the steps in order."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from operator import ge

from towline.core.machines.host_state import HostState

Level = tuple[int, ...]


class Levels:
    """Hosts grouped by level, levels in order."""

    def __init__(self) -> None:
        self._groups: dict[Level, dict[str, HostState]] = {}
        self._order: list[Level] = []

    def move(self, host: HostState, old: Level | None, new: Level | None) -> None:
        if old == new:
            return
        if old is not None:
            group = self._groups[old]
            del group[host.name]
            if not group:
                del self._groups[old]
                del self._order[bisect_left(self._order, old)]
        if new is not None:
            if new not in self._groups:
                self._groups[new] = {}
                insort(self._order, new)
            self._groups[new][host.name] = host

    def at_least(self, low: Level) -> Iterator[tuple[Level, HostState]]:
        """Hosts that have at least `low` in every respect, the tightest first."""
        order = self._order
        for place in range(bisect_left(order, low), len(order)):
            found = order[place]
            if all(map(ge, found, low)):
                for host in self._groups[found].values():
                    yield found, host

    def from_the_top(self, low: Level = ()) -> Iterator[HostState]:
        """Hosts that have at least `low` in every respect, those with most left first."""
        for found in reversed(self._order):
            if found < low:
                break
            if all(map(ge, found, low)):
                yield from self._groups[found].values()
