"""How far something is that travels: a line that is written anew, with its rate and the time left.

On a terminal only, and nothing of what takes less than a moment.
"""

from __future__ import annotations

import os
import time
from collections import deque

from towline.cli.terminal import write
from towline.cli.terminal.wording import about, size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

#: Of what takes less, nothing is shown.
MOMENT_S = 1.0
EVERY_S = 0.1
#: The rate is that of so many last seconds.
LATELY_S = 5.0
WIDEST_BAR, NARROWEST_BAR = 30, 8


class TransferRate:
    """How fast something travels, by how much of it had arrived when."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def at(self, now: float, done: int) -> None:
        self._seen.append((now, done))
        while self._seen[0][0] < now - LATELY_S and len(self._seen) > 2:
            self._seen.popleft()

    @property
    def rate(self) -> float:
        """Bytes per second, of late."""
        if not self._seen:
            return 0.0
        (first, before), (last, now) = self._seen[0], self._seen[-1]
        return (now - before) / (last - first) if last > first else 0.0


class Travel:
    """`what` is on its way; say with `at` how much of it has arrived, and at last `end`."""

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.what = what
        self.is_shown = False
        self._clock = clock
        self._draws = os.isatty(2) and os.environ.get("TERM") != "dumb"
        self._began = clock()
        self._drawn: float | None = None
        self._pace = TransferRate()

    def at(self, done: int, total: int) -> None:
        if not self._draws:
            return
        now = self._clock()
        if self._drawn is not None and now - self._drawn < EVERY_S:
            return
        self._drawn = now
        self._pace.at(now, done)
        if now - self._began >= MOMENT_S:
            line = travel_line(self.what, done, total, self._pace.rate, _width() - 1)
            write(2, f"\r{line}\x1b[K".encode())
            self.is_shown = True

    def end(self) -> None:
        if self.is_shown:
            write(2, b"\r\x1b[K")
            self.is_shown = False


def travel_line(what: str, done: int, total: int, rate: float, width: int) -> str:
    """`what ███░░ 12.0 MB of 40.0 MB · 9.1 MB/s · 3 s left`, as much of it as there is room for."""
    total = max(total, done)
    pace = [f"{size(int(rate))}/s"] if rate > 0 else []
    left_s = (total - done) / rate if rate > 0 else 0.0
    left = [f"{about(left_s)} left"] if rate > 0 and done < total else []
    parts = [f"{size(done)} of {size(total)}", *pace, *left]
    while len(parts) > 1 and len(what) + 1 + len(" · ".join(parts)) > width:
        parts.pop()
    words = " · ".join(parts)
    room = min(WIDEST_BAR, width - len(what) - len(words) - 2)
    if room >= NARROWEST_BAR:
        filled = room * done // max(1, total)
        words = "█" * filled + "░" * (room - filled) + " " + words
    return f"{what} {words}"[:width]


def _width() -> int:
    try:
        return int(os.environ.get("COLUMNS") or 0) or os.get_terminal_size(2).columns or 80
    except (OSError, ValueError):
        return 80
