"""How long a machine has been silent, counted only while somebody listened. Pure.

A laptop that sleeps, an Engine that was stopped, a train without network: none of them says
anything about the machine at the other end. So silence is what passes between dials that were
really made and failed, by a clock that stands still while nobody is awake, and only where it cannot
be this side that has no network.
"""

#: Longer steps than this are none that somebody was awake in.
_LONGEST_STEP_S = 3.0
#: The clock must be looked at so often.
TICK_S = 2.0
#: Dials that must have failed before a machine counts as silent, however short the limit is.
FEWEST_DIALS = 2


class AwakeClock:
    """Seconds in which the Engine was awake, told by being looked at every `TICK_S`."""

    def __init__(self, now: float) -> None:
        self._last = now
        self._awake_s = 0.0

    def tick(self, now: float) -> float:
        """Look at it; `now` is a clock that never goes back."""
        self._awake_s += min(max(0.0, now - self._last), _LONGEST_STEP_S)
        self._last = now
        return self._awake_s


class Silence:
    """The silence of one machine, from the moment its channel broke."""

    def __init__(self) -> None:
        self.answered()

    def answered(self) -> None:
        self.for_s = 0.0
        self.dials = 0
        self._last: float | None = None

    def failed(self, awake_s: float, counts: bool) -> None:
        """The channel broke, or a dial failed; `counts` where this cannot be our own network."""
        if self._last is not None:
            self.dials += 1
            if counts:
                self.for_s += awake_s - self._last
        self._last = awake_s

    def exceeds(self, limit_s: float) -> bool:
        return self.dials >= FEWEST_DIALS and self.for_s >= limit_s
