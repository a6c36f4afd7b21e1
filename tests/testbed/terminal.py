"""`tow` on a terminal of its own, as a person has it: what it shows there, and what is typed."""

import codecs
import fcntl
import os
import struct
import subprocess
import termios
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from testbed.waiting import wait_until


class Program(Protocol):
    """What can be run on one: `tow`, or `pit`."""

    program: list[str]
    folder: Path
    env: dict[str, str]


class Terminal:
    """All of its streams are on the terminal, unless `stdout` says otherwise."""

    def __init__(
        self,
        tow: Program,
        *words: str,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdout: int | None = None,
        lines_and_columns: tuple[int, int] | None = None,
    ) -> None:
        self._ours, theirs = os.openpty()
        if lines_and_columns is not None:
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *lines_and_columns, 0, 0))
        os.set_blocking(self._ours, False)
        # A look may fall into the middle of a character.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""
        self.process = subprocess.Popen(
            [*tow.program, *words],
            cwd=cwd or tow.folder,
            env=tow.env | dict(env or {}),
            stdin=theirs,
            stdout=theirs if stdout is None else stdout,
            stderr=theirs,
            start_new_session=True,
            # Only the controlling terminal turns a typed Ctrl-C into a signal, and ssh asks on it.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait(timeout=10)
        if self.process.stdout is not None:
            self.process.stdout.close()
        if self._ours >= 0:
            os.close(self._ours)

    @property
    def seen(self) -> str:
        """All that it showed so far."""
        return self._text.replace("\r\n", "\n")

    def sees(self, text: str, timeout: float = 20) -> None:
        """Wait for `text` to appear."""
        wait_until(lambda: text in self._read(), timeout, on_timeout=lambda: self.seen)

    def becomes(self, lines: int, columns: int) -> None:
        """Somebody drags its corner."""
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def types(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def leaves(self, timeout: float = 20) -> int:
        """Wait until `tow` ended; its exit code, and all it still had to show was read."""
        wait_until(self._ended, timeout, on_timeout=lambda: self.seen)
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
                return self.seen
            self._text += self._decoder.decode(piece)
