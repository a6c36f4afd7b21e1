"""How far a file is: the ancestor's bar, on a terminal."""

from __future__ import annotations

import os
import time

from towline.cli.terminal import write
from towline.cli.terminal.wording import size

_WIDTH = 40
_EVERY_S = 0.1


class TransferBar:
    """`  downloading [====      ] 45% 3 MB/s 2.1s`, written anew as it goes."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._draws = os.isatty(2)
        self._began = self._drawn = time.monotonic()
        self._from: int | None = None

    def at(self, done: int, total: int) -> None:
        now = time.monotonic()
        if self._from is None:
            self._from = done
        if self._draws and (now - self._drawn >= _EVERY_S or done == total):
            self._drawn = now
            passed = max(now - self._began, 0.001)
            line = bar(self._what, done, total, (done - self._from) / passed)
            write(2, f"\r{line}\x1b[K".encode())

    def end(self) -> None:
        if self._draws and self._from is not None:
            write(2, b"\n")


def bar(what: str, done: int, total: int, rate: float) -> str:
    share = done / total if total else 1.0
    filled = "=" * round(_WIDTH * share)
    left_s = (total - done) / rate if rate else 0.0
    return f"  {what} [{filled:<{_WIDTH}}] {share:.0%} {size(int(rate))}/s {left_s:.1f}s"
