"""How far away a machine is: how long word to it and back takes, at the least."""

from collections.abc import Callable
from math import inf

#: A change by less than this share, or by less than so many seconds, is not told.
_SHARE, _SLACK_S = 0.1, 0.001


class Distance:
    """`tell` hears of it when it is known, and when it has changed."""

    def __init__(self, tell: Callable[[float], None]) -> None:
        self._tell = tell
        self._told = -inf
        self._nearest = inf

    def forget(self) -> None:
        """The way may be another now."""
        self._nearest = inf

    def took(self, seconds: float) -> None:
        """An answer came after so long: it may have waited for something else besides."""
        self._nearest = min(self._nearest, seconds)
        if not abs(self._nearest - self._told) <= max(_SLACK_S, _SHARE * self._told):
            self._told = self._nearest
            self._tell(self._told)
