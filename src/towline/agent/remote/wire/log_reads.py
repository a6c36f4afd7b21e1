"""Reading a job's output, and waiting for more of it."""

import ctypes
import os
import time

from ..home import checked_key
from ..loop import READ
from ..refusal import Refusal
from ..run.services import LOG

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable

    from ..home import Home
    from ..loop import Loop
    from ..typed import Message, Reply, Timer

MOST = 256 << 10
PATIENCE_S = 30.0
#: Looked at anyway; writes from another machine wake nobody.
SAFETY_S = 1.0
POLL_S = 0.05
#: Python's print writes a line and its end apart; read together, lines of out and err stay whole.
SETTLE_S = 0.002
#: So long errors wait for whoever reads the output to ask for what was printed before them.
OUT_FIRST_S = 0.03
MOST_TOLD = 1000
IN_MODIFY = 0x2
IN_ONESHOT = 0x80000000
IN_NONBLOCK = 0x800
IN_CLOEXEC = 0x80000


class Inotify:
    """Wakes once per watched file when it is written to."""

    def __init__(self) -> None:
        self.libc: "Any" = ctypes.CDLL(None, use_errno=True)
        self.fd = self.libc.inotify_init1(IN_NONBLOCK | IN_CLOEXEC)
        if self.fd < 0:
            raise OSError("no inotify")

    def add(self, path: str) -> bool:
        wanted = IN_MODIFY | IN_ONESHOT
        return bool(self.libc.inotify_add_watch(self.fd, os.fsencode(path), wanted) >= 0)

    def clear(self) -> None:
        try:
            while os.read(self.fd, 65536):
                pass
        except BlockingIOError:
            pass


class Wait:
    """One read that has found nothing yet."""

    def __init__(self, number: int, request: "Message") -> None:
        self.number = number
        self.request = request
        self.until = time.monotonic() + PATIENCE_S
        self.watched = False
        #: Once there are errors to tell: until when the output may come before them.
        self.out_first_until = 0.0


class Reads:
    """`reply` answers a read, unless `is_full`; `is_active(key)`: the job has not ended."""

    def __init__(
        self,
        loop: "Loop",
        home: "Home",
        reply: "Reply",
        is_active: "Callable[[str], bool]",
        is_full: "Callable[[], bool]",
    ) -> None:
        self.loop = loop
        self.home = home
        self.reply = reply
        self.is_active = is_active
        self.is_full = is_full
        self.waits: "dict[Any, Wait]" = {}
        self.by_key: "dict[str, set[Wait]]" = {}
        #: How much of the output of a job was told so far.
        self.told: "dict[str, int]" = {}
        self.timer: "Timer | None" = None
        self.looking: "Timer | None" = None
        self.inotify: "Inotify | None" = None
        try:
            self.inotify = Inotify()
            loop.watch(self.inotify.fd, READ, self.written)
        except (OSError, AttributeError):
            pass  # polling does it too

    def read(self, request: "Message", _blob: bytes) -> "tuple[Message, bytes] | None":
        check(request)
        wait = Wait(request["id"], request)
        found = self.look(request)
        if found is not None and not self.comes_second(wait, found[1]):
            self.note(request, found[1])
            return found
        self.waits[wait.number] = wait
        self.by_key.setdefault(request["key"], set()).add(wait)
        # Whoever waits for more output has what came before, and gets the rest before errors.
        self.note(request, b"")
        self.watch(wait)
        # What came between looking and watching would wake nobody.
        self.answer(wait)
        self.tick_later()
        return None

    def look(self, request: "Message", give_up: bool = False) -> "tuple[Message, bytes] | None":
        """(header, blob) when there is something to say."""
        active = self.is_active(request["key"])
        data, size = self.piece(request)
        reached = request["offset"] + len(data) >= size
        if data or not active or give_up or not request.get("wait"):
            return {"eof": not active and reached, "size": size}, data
        return None

    def piece(self, request: "Message") -> "tuple[bytes, int]":
        try:
            fd = os.open(self.path(request), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return b"", 0
        try:
            data = os.pread(fd, min(request["limit"], MOST), request["offset"])
            return data, os.fstat(fd).st_size
        finally:
            os.close(fd)

    def path(self, request: "Message") -> str:
        return "%s/%s" % (self.home.job(request["key"]), request["stream"])

    def watch(self, wait: "Wait") -> None:
        wait.watched = self.inotify is not None and self.inotify.add(self.path(wait.request))

    def answer(self, wait: "Wait", give_up: bool = False) -> bool:
        found = None if self.is_full() else self.look(wait.request, give_up)
        if found is None or self.comes_second(wait, found[1]):
            return False
        self.drop(wait)
        self.note(wait.request, found[1])
        self.reply(wait.number, *found)
        return True

    def note(self, request: "Message", data: bytes) -> None:
        """Errors of the same job that waited for this output may be told after it."""
        if request["stream"] != "out" or not request["limit"]:
            return
        key = request["key"]
        if len(self.told) >= MOST_TOLD:
            self.told.clear()
        self.told[key] = max(self.told.get(key, 0), request["offset"] + len(data))
        if any(wait.out_first_until for wait in self.by_key.get(key, ())):
            self.loop.later(0.0, lambda: self.woken(key))

    def comes_second(self, wait: "Wait", errors: bytes) -> bool:
        """Whether output is still to be told that the job may have printed before these errors."""
        key = wait.request["key"]
        if not errors or wait.request["stream"] != "err" or key not in self.told:
            return False
        try:
            if os.stat(self.home.job(key) + "/out").st_size <= self.told[key]:
                return False
        except OSError:
            return False
        now = time.monotonic()
        wait.out_first_until = wait.out_first_until or now + OUT_FIRST_S
        if now >= wait.out_first_until:
            return False
        self.look_later(wait.out_first_until - now)
        return True

    def drop(self, wait: "Wait") -> None:
        self.waits.pop(wait.number, None)
        same = self.by_key.get(wait.request["key"])
        if same is not None:
            same.discard(wait)
            if not same:
                del self.by_key[wait.request["key"]]

    def cancel(self, request: "Message", _blob: bytes) -> "Message":
        for number in request.get("ids") or ():
            wait = self.waits.get(number)
            if wait is not None:
                self.drop(wait)
        return {}

    def woken(self, key: str) -> None:
        """The job started or ended."""
        for wait in out_first(self.by_key.get(key, ())):
            if not wait.watched:
                self.watch(wait)
            self.answer(wait)

    def written(self, _events: int) -> None:
        """Something was: let the writer finish its line before it is read."""
        if self.inotify is not None:
            self.inotify.clear()
        self.look_later(SETTLE_S)

    def look_later(self, seconds: float) -> None:
        at = time.monotonic() + seconds
        if self.looking is None or at < self.looking[0]:
            self.loop.cancel(self.looking)
            self.looking = self.loop.later(seconds, self.look_at_all)

    def look_at_all(self) -> None:
        self.looking = None
        for wait in out_first(self.waits.values()):
            if not self.answer(wait):
                self.watch(wait)

    def tick_later(self) -> None:
        if self.timer is None and self.waits:
            all_watched = all(wait.watched for wait in self.waits.values())
            self.timer = self.loop.later(SAFETY_S if all_watched else POLL_S, self.tick)

    def tick(self) -> None:
        self.timer = None
        now = time.monotonic()
        for wait in out_first(self.waits.values()):
            if not self.answer(wait, now >= wait.until) and not wait.watched:
                self.watch(wait)
        self.tick_later()


def out_first(waits: "Iterable[Wait]") -> "list[Wait]":
    """What a job printed before an error is told before it."""
    return sorted(waits, key=lambda wait: wait.request["stream"] == "err")


def check(request: "Message") -> None:
    checked_key(request.get("key"))
    stream = request.get("stream")
    if stream not in ("out", "err") and not (isinstance(stream, str) and LOG.match(stream)):
        raise Refusal("bad_request", "`stream` is neither out nor err nor that of a service")
    request.setdefault("limit", MOST)
    for name in ("offset", "limit"):
        value = request.setdefault(name, 0)
        if not isinstance(value, int) or value < 0:
            raise Refusal("bad_request", "`%s` is not a size" % name)
