"""How often a queue is asked. Pure but for the chance that keeps many users apart."""

import math
import random

from towline.backends.queue.times import Times


class Pace:
    """Quick after a change, then slower and slower; slower still where no answer comes."""

    def __init__(self, times: Times, chance: random.Random) -> None:
        self.times = times
        self._chance = chance
        self._pause_s = times.soon_s
        self._asked = -math.inf
        self._due = math.inf

    def soon(self, now: float) -> None:
        """Something changed."""
        self._pause_s = self.times.soon_s
        self._due = min(self._due, now + self.times.soon_s)

    def idle(self) -> None:
        """There is nothing to ask until something changes."""
        self._due = math.inf

    def asking(self, now: float) -> None:
        self._asked = now
        self._due = now + self._pause_s * self._chance.uniform(1.0, 1.2)

    def answered(self) -> None:
        self._pause_s = min(self._pause_s * 2, self.times.seldom_s)

    def silent(self, now: float) -> None:
        """It gave no answer: leave it alone for longer each time."""
        self._pause_s = min(max(self._pause_s, self.times.often_s) * 2, self.times.longest_s)
        self._due = now + self._pause_s * self._chance.uniform(0.8, 1.2)

    def left_s(self, now: float) -> float:
        """How long to wait before the next question; may be for ever."""
        return max(self._due, self._asked + self.times.often_s) - now
