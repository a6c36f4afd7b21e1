"""The agent's one loop: file descriptors, timers, ended children."""

import collections
import heapq
import itertools
import os
import selectors
import signal
import time

from . import machine, trouble

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from .typed import Reaped, Timer, Told

READ = selectors.EVENT_READ
WRITE = selectors.EVENT_WRITE
RECENT = 256


class Loop:
    """`noted(text)` is told what went wrong inside."""

    def __init__(self, noted: "Told") -> None:
        self.noted = noted
        self.selector = selectors.DefaultSelector()
        self.calls: "dict[int, Callable[[int], Any]]" = {}
        self.timers: "list[Timer]" = []
        self.order = itertools.count()
        self.running = True
        self.after_turn: "list[Callable[[], Any]]" = []
        self.children_ended: "list[Callable[[Reaped], Any]]" = []
        #: Told of each of them that is not our own, while it can still be looked at.
        self.before_reaping: "list[Callable[[int], Any]]" = []
        #: The last children that ended: a killed supervisor's command may be seen to end before it.
        self.recent: "collections.OrderedDict[int, Any]" = collections.OrderedDict()
        #: Children that we started for ourselves, not for a job.
        self.ours: "set[int]" = set()
        self.wake_read, self.wake_write = os.pipe()
        os.set_blocking(self.wake_read, False)
        os.set_blocking(self.wake_write, False)
        signal.set_wakeup_fd(self.wake_write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.watch(self.wake_read, READ, self.woken)

    def watch(self, fd: int, events: int, call: "Callable[[int], Any]") -> None:
        """Call `call(events)` whenever `fd` is ready; no events at all means not to look."""
        known = fd in self.calls
        if not events:
            if known:
                self.unwatch(fd)
            return
        self.calls[fd] = call
        if known:
            self.selector.modify(fd, events)
        else:
            self.selector.register(fd, events)

    def unwatch(self, fd: int) -> None:
        if self.calls.pop(fd, None) is not None:
            self.selector.unregister(fd)

    def later(self, seconds: float, call: "Callable[[], Any]") -> "Timer":
        """Call once after `seconds`; the returned timer can be given to `cancel`."""
        timer = [time.monotonic() + seconds, next(self.order), call]
        heapq.heappush(self.timers, timer)
        return timer

    @staticmethod
    def cancel(timer: "Timer | None") -> None:
        if timer is not None:
            timer[2] = None

    def stop(self) -> None:
        self.running = False

    def run(self) -> None:
        while self.running:
            self.turn()

    def turn(self) -> None:
        for key, events in self.selector.select(self.patience()):
            call = self.calls.get(key.fd)
            if call is not None:
                self.safely(call, events)
        now = time.monotonic()
        while self.timers and self.timers[0][0] <= now:
            due = heapq.heappop(self.timers)[2]
            if due is not None:
                self.safely(due)
        for after in self.after_turn:
            after()

    def safely(self, call: "Callable[..., Any]", *args: "Any") -> None:
        """What goes wrong for one job must not end the agent for all."""
        try:
            call(*args)
        except Exception:
            self.noted(trouble.told())

    def patience(self) -> "float | None":
        while self.timers and self.timers[0][2] is None:
            heapq.heappop(self.timers)
        if not self.timers:
            return None
        return max(0.0, float(self.timers[0][0]) - time.monotonic())

    def woken(self, _events: int) -> None:
        try:
            os.read(self.wake_read, 4096)
        except BlockingIOError:
            pass
        ended = machine.reap(self.look_at)
        if ended:
            self.recent.update(ended)
            while len(self.recent) > RECENT:
                self.recent.popitem(last=False)
            for call in self.children_ended:
                self.safely(call, ended)

    def look_at(self, pid: int) -> None:
        """At a child that has ended and was not waited for."""
        if pid in self.ours:
            self.ours.remove(pid)
            return
        for call in self.before_reaping:
            self.safely(call, pid)
