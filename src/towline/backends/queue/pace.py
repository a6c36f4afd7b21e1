"""How often a queue is asked. Pure but for the chance that keeps many users apart."""

import math
import random

#: It is asked so soon after something changed, ...
SOON_S = 1.5
#: ... but never more often than this, ...
OFTEN_S = 5.0
#: ... and so seldom while nothing happens: less than twice a minute.
SELDOM_S = 32.0
#: So seldom at the most while it gives no answer.
LONGEST_S = 300.0


class Pace:
    """Quick after a change, then slower and slower; slower still where no answer comes."""

    def __init__(self, chance: random.Random | None = None) -> None:
        self._chance = chance or random.Random()
        self._pause_s = SOON_S
        self._asked = -math.inf
        self._due = math.inf

    def soon(self, now: float) -> None:
        """Something changed."""
        self._pause_s = SOON_S
        self._due = min(self._due, now + SOON_S)

    def idle(self) -> None:
        """There is nothing to ask until something changes."""
        self._due = math.inf

    def asking(self, now: float) -> None:
        self._asked = now
        self._due = now + self._pause_s * self._chance.uniform(1.0, 1.2)

    def answered(self) -> None:
        self._pause_s = min(self._pause_s * 2, SELDOM_S)

    def silent(self, now: float) -> None:
        """It gave no answer: leave it alone for longer each time."""
        self._pause_s = min(max(self._pause_s, OFTEN_S) * 2, LONGEST_S)
        self._due = now + self._pause_s * self._chance.uniform(0.8, 1.2)

    def left_s(self, now: float) -> float:
        """How long to wait before the next question; may be for ever."""
        return max(self._due, self._asked + OFTEN_S) - now


def backoff_s(tries: int) -> float:
    """How long to wait before a job is offered again that was not taken."""
    return min(SOON_S * 2.0**tries, LONGEST_S) * random.uniform(0.8, 1.2)
