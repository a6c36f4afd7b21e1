"""Fair share: who used much lately comes later, and what was used is forgotten with time.

An owner's usage u follows u' = rate - decay * u, with the rate of what runs now, so that it is
exact at any time without touching it in between. Its share of everybody's usage is turned into
seconds: to have used everything counts as if the job had come a day later. A job that has waited a
day longer than another therefore comes first whoever used what, and nobody waits for ever.
"""

from math import exp, log

HALF_LIFE_S = 86_400.0
#: What the whole usage of all costs, in seconds of waiting.
FULL_SHARE_S = 86_400.0
#: What starts now counts at once as if it had run for so long, so that owners take turns.
AHEAD_S = 60.0
#: Penalties are worked out anew after so long, or when the owner's jobs start or end.
FRESH_S = 1.0

_DECAY = log(2) / HALF_LIFE_S


class ShareAccount:
    """One owner's decayed usage and what it grows by each second."""

    __slots__ = ("at", "rate", "used")

    def __init__(self) -> None:
        self.used = 0.0
        self.rate = 0.0
        self.at = 0.0

    def move(self, now: float) -> None:
        """Bring the usage forward to now; time never goes back."""
        if now > self.at:
            left = exp(-_DECAY * (now - self.at))
            self.used = self.used * left + self.rate * (1 - left) / _DECAY
            self.at = now

    def change(self, weight: float, now: float) -> None:
        """Something of this weight starts, or ends when the weight is negative."""
        self.move(now)
        if weight > 0:
            self.used += weight * (self.at - now)
        self.rate = max(0.0, self.rate + weight)

    def weigh(self, now: float) -> float:
        self.move(now)
        return self.used + self.rate * AHEAD_S


class FairShares:
    """The accounts of all owners, and of all together."""

    def __init__(self) -> None:
        self._owners: dict[str, ShareAccount] = {}
        self._all = ShareAccount()

    def start(self, owner: str, weight: float, now: float) -> None:
        self._owners.setdefault(owner, ShareAccount()).change(weight, now)
        self._all.change(weight, now)

    def stop(self, owner: str, weight: float, now: float) -> None:
        self._owners.setdefault(owner, ShareAccount()).change(-weight, now)
        self._all.change(-weight, now)

    def penalty_s(self, owner: str, now: float) -> float:
        """How much later the owner's jobs count as submitted."""
        account = self._owners.get(owner)
        total = self._all.weigh(now)
        if account is None or total <= 0:
            return 0.0
        return FULL_SHARE_S * min(1.0, account.weigh(now) / total)


class Penalties(dict[str, float]):
    """Every owner's penalty as of about now, worked out when asked for."""

    def __init__(self, shares: FairShares) -> None:
        super().__init__()
        self._shares = shares
        self._since = 0.0
        self._now = 0.0

    def at(self, now: float) -> "Penalties":
        if not self._since <= now < self._since + FRESH_S:
            self.clear()
            self._since = now
        self._now = now
        return self

    def __missing__(self, owner: str) -> float:
        penalty = self[owner] = self._shares.penalty_s(owner, self._now)
        return penalty
