"""A person at a terminal: starts `tow` there, reads what it shows, types, presses Ctrl-C."""

from pathlib import Path

from testbed.terminal import Terminal
from testbed.tow import Tow
from testbed.waiting import wait_until

CTRL_C = "\x03"


class Person(Terminal):
    """Reads on from what was seen last."""

    def __init__(self, tow: Tow, *words: str, cwd: Path | None = None) -> None:
        super().__init__(tow, *words, cwd=cwd, env={"TERM": "dumb"})
        self._read_up_to = 0

    @property
    def shown(self) -> str:
        """What it showed after what was seen last."""
        return self.seen[self._read_up_to :]

    def sees(self, text: str, timeout: float = 20) -> None:
        """Wait for `text` to appear after what was seen before."""
        wait_until(lambda: self._shows(text), timeout, on_timeout=lambda: self.shown)
        self._read_up_to = self.seen.index(text, self._read_up_to) + len(text)

    def leaves(self, timeout: float = 30) -> int:
        """Wait until `tow` ended; its exit code, and all it still had to show is in `shown`."""
        return super().leaves(timeout)

    def _shows(self, text: str) -> bool:
        self._read()
        return text in self.shown
