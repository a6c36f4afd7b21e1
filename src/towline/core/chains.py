"""Who waits for whom. Pure.

A job (or a whole batch) that waits for others is not in the scheduler. It is found by what it waits
for, so that an end costs as much as it has followers, however many others wait.
"""

from collections.abc import Callable, Iterable

from towline.model.job import Awaited, State, Unit, is_met
from towline.model.reason import Reason, because_of

#: The final state of a job or a batch; None while it has not ended.
Became = Callable[[Unit], State | None]


class Chains:
    """All that wait for others, and what each of them still waits for."""

    def __init__(self) -> None:
        #: Who waits -> what for, and how that must end.
        self._open: dict[Unit, dict[Unit, str]] = {}
        #: What is waited for -> by whom, in the order they came.
        self._followers: dict[Unit, dict[Unit, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def __contains__(self, waiter: Unit) -> bool:
        return waiter in self._open

    def join(self, waiter: Unit, after: Iterable[Awaited], became: Became) -> Reason | None:
        """Let one wait for what has not ended yet; why it never will come true, if it cannot."""
        self.leave(waiter)
        waits: dict[Unit, str] = {}
        for awaited in after:
            state = became(awaited.unit)
            if state is None:
                waits[awaited.unit] = awaited.when
            elif not awaited.met_by(state):
                return because_of(awaited.unit, state)
        if waits:
            self._open[waiter] = waits
            for unit in waits:
                self._followers.setdefault(unit, {})[waiter] = None
        return None

    def leave(self, waiter: Unit) -> None:
        """It waits no more."""
        for unit in self._open.pop(waiter, ()):
            self._forget(unit, waiter)

    def ended(self, unit: Unit, state: State) -> list[tuple[Unit, Reason | None]]:
        """Those for which that decides it: they go on, or never will."""
        decided: list[tuple[Unit, Reason | None]] = []
        for waiter in self._followers.pop(unit, ()):
            waits = self._open[waiter]
            if not is_met(waits.pop(unit), state):
                self.leave(waiter)
                decided.append((waiter, because_of(unit, state)))
            elif not waits:
                del self._open[waiter]
                decided.append((waiter, None))
        return decided

    def waits_for(self, waiter: Unit) -> dict[Unit, str]:
        """What it still waits for, and how that must end."""
        return dict(self._open.get(waiter, {}))

    def followers(self, unit: Unit) -> list[Unit]:
        """Who waits for it."""
        return list(self._followers.get(unit, ()))

    def waiters(self) -> list[Unit]:
        return list(self._open)

    def _forget(self, unit: Unit, waiter: Unit) -> None:
        followers = self._followers.get(unit, {})
        followers.pop(waiter, None)
        if not followers:
            self._followers.pop(unit, None)
