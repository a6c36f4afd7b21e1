"""A person at a terminal: starts `tow` there, reads what it shows, types, presses Ctrl-C."""

import fcntl
import os
import subprocess
import termios
from pathlib import Path
from types import TracebackType

from testbed.tow import Tow
from testbed.waiting import wait_until

CTRL_C = "\x03"


class Person:
    def __init__(self, tow: Tow, *words: str, cwd: Path | None = None) -> None:
        self._ours, theirs = os.openpty()
        os.set_blocking(self._ours, False)
        self.shown = ""
        self.process = subprocess.Popen(
            [*tow.program, *words],
            cwd=cwd or tow.folder,
            env=tow.env | {"TERM": "dumb"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            # Only the controlling terminal turns a typed Ctrl-C into a signal, and ssh asks on it.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)

    def __enter__(self) -> "Person":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait(timeout=10)
        if self._ours >= 0:
            os.close(self._ours)

    def sees(self, text: str, timeout: float = 20) -> None:
        """Wait for `text` to appear after what was seen before."""
        wait_until(lambda: text in self._read(), timeout, on_timeout=lambda: self.shown)
        self.shown = self.shown.partition(text)[2]

    def types(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def leaves(self, timeout: float = 30) -> int:
        """Wait until `tow` ended; its exit code, and all it still had to show is in `shown`."""
        wait_until(lambda: self._ended(), timeout, on_timeout=lambda: self.shown)
        self._read()
        return self.process.returncode

    def closes_the_terminal(self) -> None:
        """The window is gone; `tow` is told so by the kernel."""
        os.close(self._ours)
        self._ours = -1
        self.process.wait(timeout=20)

    def _ended(self) -> bool:
        # Reading on, or `tow` would wait for us.
        self._read()
        return self.process.poll() is not None

    def _read(self) -> str:
        while True:
            try:
                piece = os.read(self._ours, 65536)
            except OSError:
                # Nothing there now, or the last program on this terminal has ended.
                return self.shown
            self.shown += piece.decode(errors="replace").replace("\r\n", "\n")
