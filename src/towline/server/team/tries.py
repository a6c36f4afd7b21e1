"""How often somebody may try: passwords are not to be guessed."""

from collections import OrderedDict

from towline.errors import TooMany

_MOST_KNOWN = 100_000


class Tries:
    """So many tries, then one whenever some time has passed; for each who tries."""

    def __init__(self, burst: int, every_s: float) -> None:
        self.burst = burst
        self.every_s = every_s
        #: Who -> until when all of their tries are used up, counted as if they came evenly.
        self._until: OrderedDict[str, float] = OrderedDict()

    def take(self, who: str, now: float) -> None:
        """Count one try; TooMany when there is none left."""
        until = max(self._until.get(who, now), now) + self.every_s
        left = until - now - self.burst * self.every_s
        if left > 1e-9:
            raise TooMany("that was tried too often of late", max(1.0, left))
        self._until[who] = until
        self._until.move_to_end(who)
        while len(self._until) > _MOST_KNOWN:
            self._until.popitem(last=False)

    def give_back(self, who: str) -> None:
        """What succeeded does not count."""
        self._until.pop(who, None)
