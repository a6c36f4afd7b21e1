"""Fair share: who used much lately comes later, and what was used is forgotten with time.

An owner's usage u follows u' = rate - decay * u, with the rate of what runs now, so that it is
exact at any time without touching it in between. Its share of everybody's usage is turned into
seconds: to have used everything counts as if the job had come a day later. A job that has waited a
day longer than another therefore comes first whoever used what, and nobody waits for ever.

In a team, an owner's waiting counts only while nothing of theirs runs: thousands of jobs submitted
long ago gain nothing by their age as long as one after the other of them starts.
"""

from collections.abc import Iterable
from math import exp, log

from towline.core.scheduling.bucket import Bucket
from towline.model.team.rules import Share

HALF_LIFE_S = 86_400.0
#: What the whole usage of all costs, in seconds of waiting.
FULL_SHARE_S = 86_400.0
#: What starts now counts at once as if it had run for so long, so that owners take turns.
AHEAD_S = 60.0
#: Penalties are worked out anew after so long, or when the owner's jobs start or end.
FRESH_S = 1.0
#: Machines that are kept for a job of a team are left to another's when its turn is so much sooner.
SOONER_S = 10.0

_DECAY = log(2) / HALF_LIFE_S

#: Rank of a job, smaller goes first: priority, turn, place among its owner's (in a team), number.
Rank = tuple[int, float, float, int]


class ShareAccount:
    """One owner's decayed usage and what it grows by each second."""

    __slots__ = ("at", "ended", "kept_at", "rate", "running", "used")

    def __init__(self) -> None:
        self.used = 0.0
        self.rate = 0.0
        self.at = 0.0
        #: How many of the owner's jobs run, and when one last ended.
        self.running = 0
        self.ended = 0.0
        #: Until when the usage of jobs that ran before a restart is in it already.
        self.kept_at = 0.0

    def move(self, now: float) -> None:
        """Bring the usage forward to now; time never goes back."""
        if now > self.at:
            left = exp(-_DECAY * (now - self.at))
            self.used = self.used * left + self.rate * (1 - left) / _DECAY
            self.at = now

    def change(self, weight: float, now: float) -> None:
        """Something of this weight starts, or ends when the weight is negative."""
        self.move(now)
        if weight > 0 and now < self.at:
            self.used += weight * (1 - exp(-_DECAY * (self.at - now))) / _DECAY
        self.rate = max(0.0, self.rate + weight)

    def weigh(self, now: float) -> float:
        self.move(now)
        return self.used + self.rate * AHEAD_S


class FairShares:
    """The accounts of all owners, and of all together."""

    def __init__(self) -> None:
        self._owners: dict[str, ShareAccount] = {}
        self._all = ShareAccount()
        #: Whose accounts changed since they were last asked for.
        self._changed: dict[str, None] = {}

    def start(self, owner: str, weight: float, now: float) -> None:
        account = self._owners.setdefault(owner, ShareAccount())
        since = max(now, account.kept_at)
        account.change(weight, since)
        account.running += 1
        self._all.change(weight, since)
        self._changed[owner] = None

    def stop(self, owner: str, weight: float, now: float) -> None:
        account = self._owners.setdefault(owner, ShareAccount())
        account.change(-weight, now)
        account.running = max(0, account.running - 1)
        account.ended = max(account.ended, now)
        self._all.change(-weight, now)
        self._changed[owner] = None

    def penalty_s(self, owner: str, now: float) -> float:
        """How much later the owner's jobs count as submitted."""
        account = self._owners.get(owner)
        total = self._all.weigh(now)
        if account is None or total <= 0:
            return 0.0
        return FULL_SHARE_S * min(1.0, account.weigh(now) / total)

    def served_at(self, owner: str, now: float) -> float:
        """Until when something of an owner's ran; now, if something does."""
        account = self._owners.get(owner)
        if account is None:
            return 0.0
        return now if account.running else account.ended

    def changed(self) -> list[Share]:
        """The accounts that changed since this was last asked, to be written down."""
        found = []
        for owner in self._changed:
            account = self._owners[owner]
            found.append(Share(owner, account.used, account.at))
        self._changed.clear()
        return found

    def recall(self, shares: Iterable[Share]) -> None:
        """After a restart, before any job is found again: what had been used."""
        for share in shares:
            account = self._owners.setdefault(share.owner, ShareAccount())
            account.used, account.at = share.used, share.at
            account.kept_at = account.ended = share.at
            if share.at > self._all.at:
                self._all.move(share.at)
                self._all.used += share.used
            else:
                self._all.used += share.used * exp(-_DECAY * (self._all.at - share.at))


class Penalties(dict[str, float]):
    """Every owner's penalty as of about now, worked out when asked for."""

    def __init__(self, shares: FairShares) -> None:
        super().__init__()
        #: In a team: owners take turns, and priorities order their own jobs only.
        self.fair = False
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

    def turn(self, submitted: float, owner: str) -> float:
        """Where a job stands among those of all owners."""
        if self.fair:
            submitted = max(submitted, self._shares.served_at(owner, self._now))
        return submitted + self[owner]

    def rank(self, bucket: Bucket) -> Rank:
        """The rank of the first job of a bucket."""
        assert bucket.entry is not None
        turn = self.turn(bucket.submitted[bucket.start], bucket.owner)
        return (-bucket.priority, turn, bucket.entry[0] if self.fair else 0.0, bucket.entry[1])

    def outranks(self, bucket: Bucket, head: Bucket) -> bool:
        """Whether the machines kept for a job of a team are not kept from another's."""
        if bucket.entry is None or head.entry is None:
            return False
        if bucket.owner == head.owner:
            return bucket.own > head.own
        return self.rank(bucket)[1] + SOONER_S < self.rank(head)[1]
