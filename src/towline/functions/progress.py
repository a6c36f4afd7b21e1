"""How far the calls of an executor are: a bar in terminals and notebooks, lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable

#: Lines are for logs: one now and then is enough.
_EVERY_S = 10.0


class CallDisplay(Protocol):
    """What shows numbers to people."""

    def show(self, done: int, failed: int, total: int) -> None: ...

    def close(self) -> None: ...


class CallProgress:
    """Counts calls; shown from the first one until all that there are have been done."""

    def __init__(self, open_display: Callable[[], CallDisplay]) -> None:
        self._open = open_display
        self._display: CallDisplay | None = None
        self._lock = threading.Lock()
        self.done = self.failed = self.total = 0

    def came(self, count: int) -> None:
        with self._lock:
            self.total += count
            self._show()

    def went(self, count: int, failed: int) -> None:
        """So many are over, of which some failed."""
        with self._lock:
            self.done += count
            self.failed += failed
            self._show()
            if self.done >= self.total:
                self._close()

    def close(self) -> None:
        with self._lock:
            self._close()

    def _show(self) -> None:
        if self._display is None:
            self._display = self._open()
        self._display.show(self.done, self.failed, self.total)

    def _close(self) -> None:
        if self._display is not None:
            self._display.close()
            self._display = None
            # What comes later is counted anew.
            self.done = self.failed = self.total = 0


class ProgressBar:
    """A bar of rich, which draws in terminals and in notebooks alike."""

    def __init__(self, title: str, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[failed]}", style="red"),
            TimeRemainingColumn(),
            console=Console(file=None if in_notebook() else stream),
            transient=False,
        )
        self._task = self._bar.add_task(title, total=None, failed="")
        self._bar.start()

    def show(self, done: int, failed: int, total: int) -> None:
        words = f"{failed} failed" if failed else ""
        self._bar.update(self._task, completed=done, total=total, failed=words)

    def close(self) -> None:
        self._bar.stop()


class ProgressLines:
    """Plain text: now and then, and at the end."""

    def __init__(
        self, title: str, stream: TextIO, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._title = title
        self._stream = stream
        self._clock = clock
        self._at = clock()
        self._words = ""

    def show(self, done: int, failed: int, total: int) -> None:
        words = f"{self._title}: {done} of {total} done"
        self._words = words + (f", {failed} of them failed" if failed else "")
        if self._clock() - self._at >= _EVERY_S:
            self._at = self._clock()
            self._write()

    def close(self) -> None:
        self._write()

    def _write(self) -> None:
        self._stream.write(self._words + "\n")
        self._stream.flush()


def progress_of(title: str, stream: Any = None) -> CallProgress:
    """What is shown where the program runs."""
    stream = stream or sys.stderr
    kind = ProgressBar if in_notebook() or stream.isatty() else ProgressLines
    return CallProgress(lambda: kind(title, stream))


def in_notebook() -> bool:
    """Whether a kernel of Jupyter runs us."""
    shell = sys.modules.get("IPython")
    found = shell.get_ipython() if shell is not None else None
    return found is not None and type(found).__name__ == "ZMQInteractiveShell"
