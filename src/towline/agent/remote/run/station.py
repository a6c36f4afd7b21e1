"""What a process needs that runs jobs, one after the other: ears, and what is slow to make."""

import os
import select
import signal

from ..content import trees
from ..records import endings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..home import Home


class Station:
    def __init__(self) -> None:
        #: Never changes, and is slow to copy from `os`.
        self.own_environ = dict(os.environb)
        self.null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self.kills = endings.Kills()
        self.snapshot: "tuple[str, list[Any]]" = ("", [])
        #: The pid and the start of who has our commands when we are killed, where that is known.
        self.heir: "list[int]" = []
        self.poll = select.poll()
        self.listen_to_signals()

    def listen_to_signals(self) -> None:
        """Every signal with a handler ends a wait, also one that came just before it."""
        self.wake, wake_write = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write)
        self.poll.register(self.wake, select.POLLIN)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def wait(self, seconds: "float | None") -> "list[int]":
        """Until something happened, or the time is over; which files besides have news."""
        if seconds is not None:
            seconds = int(seconds * 1000) + 1 if seconds > 0 else 0
        ready = [fd for fd, _ in self.poll.poll(seconds)]
        if self.wake in ready:
            os.read(self.wake, 4096)
            ready.remove(self.wake)
        return ready

    def load_snapshot(self, home: "Home", digest: str) -> "list[Any]":
        """The same one is asked for by many jobs in turn."""
        if self.snapshot[0] != digest:
            self.snapshot = (digest, trees.load_snapshot(home, digest))
        return self.snapshot[1]
