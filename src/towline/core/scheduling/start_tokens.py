"""Starts are paced per machine, so that a hundred jobs do not load the same files at once.

A machine has starts in hand. Some are there at first, one more comes every `stagger` seconds, and a
job that ends gives its start back, so that whoever comes in its place need not wait. A short job
that ended well adds one more where they had run out: short jobs soon start as fast as they
end, while those that stay are spread. What short jobs earned is forgotten when starts pause.
"""

#: Starts in hand on a machine where nothing has started lately.
AT_ONCE = 4.0
#: A job that ended well within this is a short one; for so long, what was earned is remembered.
SHORT_S = 5.0
#: Sums of parts of a start are a little off.
NEARLY_ONE = 0.999


class StartTokens:
    """The starts that one machine has in hand."""

    __slots__ = ("at", "last", "ran_out", "stagger_s", "starts")

    def __init__(self, stagger_s: float) -> None:
        self.stagger_s = stagger_s
        self.starts = AT_ONCE
        #: As of when; and when something started last.
        self.at = 0.0
        self.last = 0.0
        #: Whether the last start was the last in hand.
        self.ran_out = False

    def ready(self, now: float) -> bool:
        """Whether a job may start now."""
        self._gain(now)
        return not self.stagger_s or self.starts >= NEARLY_ONE

    def start(self, now: float) -> bool:
        """Count a start; whether another one may follow at once."""
        self._gain(now)
        self.last = now
        if not self.stagger_s:
            return True
        self.starts -= 1
        self.ran_out = self.starts < NEARLY_ONE
        return not self.ran_out

    def end(self, now: float, ran_s: float, well: bool) -> None:
        """A job that had been started ended."""
        self._gain(now)
        if well and ran_s <= max(SHORT_S, self.stagger_s):
            self.starts += 2 if self.ran_out else 1
        else:
            self.starts = max(self.starts, min(AT_ONCE, self.starts + 1))

    def due(self) -> float:
        """When the next start is in hand, if nothing ends before."""
        return self.at + max(0.0, 1 - self.starts) * self.stagger_s

    def _gain(self, now: float) -> None:
        """What time brings and takes."""
        self.at = min(self.at, now)
        if self.starts > AT_ONCE:
            if not self.last <= now <= self.last + max(SHORT_S, self.stagger_s):
                self.starts = AT_ONCE
        elif self.stagger_s:
            self.starts = min(AT_ONCE, self.starts + (now - self.at) / self.stagger_s)
        else:
            self.starts = AT_ONCE
        self.at = now
