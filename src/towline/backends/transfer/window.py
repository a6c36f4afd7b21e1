"""How much may be on its way at a time: what the way to a machine carries, learnt as it is used.

A question, a wait, the next question: over a way of 50 ms that is 5 MB/s at best, however wide it
is. So pieces are asked for before earlier ones have arrived, up to twice the bandwidth times the
delay. Both are measured, as TCP's BBR does: the bandwidth as the most that arrived lately, the
delay as the shortest time that an answer took lately. Pure: time is an argument.
"""

from msgspec import Struct

LEAST = 2 << 20
MOST = 64 << 20
#: A way may change: what was measured longer ago than this does not count.
_RECENT_S = 10.0
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
        self._since = 0.0

    def asked(self, now: float) -> Asked:
        return Asked(now, self._arrived)

    def arrived(self, asked: Asked, size: int, now: float) -> None:
        """A piece is here."""
        self._arrived += size
        took = max(now - asked.at, 1e-5)
        if now - self._since > _RECENT_S:
            self._delays = [float("inf"), self._delays[0]]
            self._rates = [0.0, self._rates[0]]
            self._since = now
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
        return int(max(LEAST, min(MOST, carried)) / max(1, self.transfers))
