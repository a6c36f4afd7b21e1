"""How much may be on its way at a time: what the way to a machine carries, learnt as it is used.

A question, a wait, the next question: over a way of 50 ms that is 5 MB/s at best, however wide it
is. So pieces are asked for before earlier ones have arrived, up to twice the bandwidth times the
delay. Both are measured, as TCP's BBR does: the bandwidth as the most that arrived lately, the
delay as the shortest time that an answer took lately. Pure: time is an argument.
"""

from msgspec import Struct

#: Before a way is known, and next door, where nobody waits behind it; and at least.
START = 2 << 20
LEAST = 512 << 10
MOST = 64 << 20
#: A way may change: what was measured longer ago than this does not count. That it carries less
#: is to be known soon: what is too much on it stands in front of every line of a log.
_RECENT_S = 10.0
_RATE_S = 2.0
#: Much of what is on its way may be small, so that delay counts and not bandwidth.
_HEADROOM = 2.0
#: A machine that answers so quickly is near, whatever came from it so far.
_NEAR_S = 0.01
#: On a way that carries more than this, compressing takes longer than it saves.
_FAST_BYTES_PER_S = 30e6


class Asked(Struct, frozen=True):
    """The moment a piece was asked for, and how much had arrived until then."""

    at: float
    arrived: int


class Path:
    """The way to one machine, shared by all that travels on it."""

    def __init__(self) -> None:
        self.transfers = 0
        self._arrived = 0
        # Of this period and of the one before.
        self._delays = [float("inf"), float("inf")]
        self._rates = [0.0, 0.0]
        self._since = self._rated = self._empty_until = 0.0
        self._now = 0.0

    def asked(self, now: float) -> Asked:
        return Asked(now, self._arrived)

    def arrived(self, asked: Asked, size: int, now: float) -> None:
        """A piece is here."""
        self._now = now
        self._arrived += size
        took = max(now - asked.at, 1e-5)
        if now - self._since > _RECENT_S:
            self._delays = [float("inf"), self._delays[0]]
            self._since = now
            # With much on its way, every answer takes as long as that needs: to see how short
            # the way is, it has to be nearly empty for a moment.
            self._empty_until = now + 2 * self.delay_s
        if now - self._rated > _RATE_S:
            self._rates = [0.0, self._rates[0]]
            self._rated = now
        self._delays[0] = min(self._delays[0], took)
        self._rates[0] = max(self._rates[0], (self._arrived - asked.arrived) / took)

    @property
    def delay_s(self) -> float:
        """The shortest time that an answer took lately; 0 before any came."""
        shortest = min(self._delays)
        return shortest if shortest < float("inf") else 0.0

    @property
    def is_slow(self) -> bool:
        """Whether compressing costs less time than it saves."""
        return self.delay_s > _NEAR_S and max(self._rates) < _FAST_BYTES_PER_S

    @property
    def window(self) -> int:
        """So many bytes one of the transfers may have on their way."""
        carried = _HEADROOM * max(self._rates) * self.delay_s
        is_known = self._arrived > START and self.delay_s > _NEAR_S
        if is_known and self._now < self._empty_until:
            return LEAST // max(1, self.transfers)
        least = LEAST if is_known else START
        return int(max(least, min(MOST, carried)) / max(1, self.transfers))
