"""What the GPU tool says on a node, without anybody waiting for it: it may hang.

It is not our child: the end of a job waits for all of our children.
"""

import os
import signal
import time

from ..commands import process
from ..share.gpu_tool import FORMAT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable

TIMEOUT_S = 10.0
MOST_OUTPUT = 1 << 20


class Question:
    """One run of the tool; `text` is what it said, once it is over."""

    def __init__(self, tool: bytes, what: bytes) -> None:
        self.until = time.monotonic() + TIMEOUT_S
        self.said = b""
        self.is_over = False
        self.read, write = os.pipe()
        os.set_blocking(self.read, False)
        try:
            if not os.fork():
                become_tool(tool, what, write)
        finally:
            os.close(write)

    def look(self) -> None:
        """Take what it said so far; one that takes too long is ended."""
        try:
            while not self.is_over:
                data = os.read(self.read, 65536)
                self.said += data
                self.is_over = not data or len(self.said) > MOST_OUTPUT
        except BlockingIOError:
            pass
        if self.is_over:
            os.close(self.read)
        elif time.monotonic() > self.until:
            self.end()

    def end(self) -> None:
        """Nobody wants it any more."""
        if self.is_over:
            return
        self.is_over = True
        os.close(self.read)
        pid = self.said.partition(b"\n")[0]
        self.said = b""
        for kill in (os.kill, os.killpg):  # it has a session of its own, once it is the tool
            try:
                kill(int(pid), signal.SIGKILL)
            except (OSError, ValueError):
                pass

    @property
    def text(self) -> str:
        return self.said.partition(b"\n")[2].decode("utf-8", "replace")


def become_tool(tool: bytes, what: bytes, write: int) -> None:
    """In the child: have another process be the tool, which says first which one it is."""
    try:
        if not os.fork():
            os.write(write, b"%d\n" % os.getpid())
            null = os.open(os.devnull, os.O_RDWR)
            process.become(tool, [tool, what, FORMAT], dict(os.environb), null, write, null)
    finally:
        os._exit(127)


def used_by(pids: "Iterable[int]", gpus: str, apps: str) -> "tuple[float | None, float | None]":
    """Of the GPUs that these processes are on: the mean use of their compute from 0 to 1, and the
    MiB of their memory that is theirs; None where they are on none, or nobody knows."""
    util = {}
    for line in gpus.splitlines():
        words = [word.strip() for word in line.split(",")]
        if len(words) > 5 and words[-1].isdigit():
            util[words[1]] = int(words[-1]) / 100.0
    mine = set(pids)
    lines = [[word.strip() for word in line.split(",")] for line in apps.splitlines()]
    on = [words for words in lines if len(words) == 3 and words[1].isdigit()]
    on = [words for words in on if int(words[1]) in mine]
    if not on:
        return None, None
    known = [util[uuid] for uuid in {words[0] for words in on} if uuid in util]
    memory = float(sum(int(words[2]) for words in on if words[2].isdigit()))
    return (sum(known) / len(known) if known else None), memory
