"""Run one program and answer with what it said; for the few commands that another queue has."""

import os
import signal

from ..loop import READ
from ..refusal import Refusal
from . import process, process_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..loop import Loop
    from ..typed import Done, Message, Reaped, Reply
    from .login import LoginShell

#: A queue says about a kilobyte of each of its nodes.
MOST_OUTPUT = 16 << 20
TIMEOUT_S = 60.0
#: What is asked to end, because it took too long, has so long to put things in order.
GRACE_S = 5.0
#: A login shell knows where the site keeps its commands; words go through it untouched.
BY_LOGIN_SHELL = [b"/bin/bash", b"-l", b"-c"]
RUN_WORDS = b'exec "$0" "$@"'


class CommandCall:
    """One run; `done(answer)` is called once, with its exit code and both texts."""

    def __init__(
        self,
        loop: "Loop",
        argv: "list[bytes]",
        timeout_s: float,
        done: "Done",
        out: "int | None" = None,
    ) -> None:
        self.loop = loop
        self.done: "Done | None" = done
        self.timeout_s = timeout_s
        self.texts = {"out": b"", "err": b""}
        self.open: "dict[str, int]" = {}
        self.status: "int | None" = None
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        ends = [null]
        try:
            write = self.pipe("out", ends) if out is None else out
            errors = self.pipe("err", ends)
            self.pid = process.start(argv, dict(os.environb), null, write, errors)
            loop.ours.add(self.pid)
        except (process.CannotStart, OSError):
            self.close()
            raise
        finally:
            for fd in ends:
                os.close(fd)
        for name in list(self.open):
            self.listen(name)
        self.timer = loop.later(timeout_s, self.too_long)

    def pipe(self, name: str, ends: "list[int]") -> int:
        read, write = os.pipe()
        self.open[name] = read
        ends.append(write)
        return write

    def listen(self, name: str) -> None:
        self.loop.watch(self.open[name], READ, lambda _: self.receive(name))

    def receive(self, name: str) -> None:
        data = os.read(self.open[name], 65536)
        if data and len(self.texts[name]) < MOST_OUTPUT:
            self.texts[name] += data
        elif not data:
            fd = self.open.pop(name)
            self.loop.unwatch(fd)
            os.close(fd)
            self.check()

    def ended(self, status: int) -> None:
        self.status = status
        self.check()

    def check(self) -> None:
        if self.done is not None and self.status is not None and not self.open:
            status = self.status
            code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
            self.finish(code)

    def too_long(self) -> None:
        self.end_all()
        self.texts["err"] += b"\ntimed out: no answer for %g s" % self.timeout_s
        self.finish(-signal.SIGKILL)

    def end_all(self) -> None:
        """A profile or a queue's own script may have begun something, and have locks to give back:
        ask first, and end what is left a little later."""
        begun = {pid: process_tree.start_of(pid) for pid in process_tree.below(self.pid)}
        begun[self.pid] = process_tree.start_of(self.pid)
        for pid in begun:
            process_tree.send(pid, signal.SIGTERM)
        self.loop.later(GRACE_S, lambda: self.kill_those_left(begun))

    def kill_those_left(self, begun: "dict[int, int]") -> None:
        for pid, start in begun.items():
            if process_tree.lives(pid, start):
                process_tree.send(pid, signal.SIGKILL)
        # Not before: what says something while it ends would end by that.
        self.close()

    def close(self) -> None:
        for fd in self.open.values():
            self.loop.unwatch(fd)
            os.close(fd)
        self.open = {}

    def finish(self, code: int) -> None:
        self.loop.cancel(self.timer)
        done, self.done = self.done, None
        texts = {name: text.decode("utf-8", "replace") for name, text in self.texts.items()}
        if done is not None:
            done(dict(texts, code=code))


class Calls:
    """Those under way; `reply(number, answer)` goes to whoever asked."""

    def __init__(self, loop: "Loop", reply: "Reply", login: "LoginShell") -> None:
        self.loop = loop
        self.reply = reply
        self.login = login
        self.running: "dict[int, CommandCall]" = {}
        loop.children_ended.append(self.children_ended)

    def call(self, request: "Message", _blob: bytes) -> None:
        number = request["id"]
        self.start(request, lambda answer: self.reply(number, answer))

    def start(self, request: "Message", done: "Done", out: "int | None" = None) -> None:
        """Run what is asked, once it is known what a login would find."""
        argv = checked_words(request.get("argv"))
        if request.get("login"):
            argv = by_login_shell(request["login"]) + argv
        timeout_s = request.get("timeout_s") or TIMEOUT_S
        if not self.login.is_pending:
            self.run(argv, timeout_s, done, out)
            return
        mine = None if out is None else os.dup(out)
        self.login.when_known(lambda: self.run(argv, timeout_s, done, mine, mine))

    def run(
        self,
        argv: "list[bytes]",
        timeout_s: float,
        done: "Done",
        out: "int | None",
        spare: "int | None" = None,
    ) -> None:
        """A command that is not there is an answer too."""
        try:
            call = CommandCall(self.loop, argv, timeout_s, done, out)
            self.running[call.pid] = call
        except process.CannotStart as problem:
            done({"code": problem.code, "out": "", "err": problem.text})
        except OSError as problem:  # too many processes just now
            done({"code": 126, "out": "", "err": "temporarily unavailable: %s" % problem})
        finally:
            if spare is not None:
                os.close(spare)

    def children_ended(self, ended: "Reaped") -> None:
        for pid, (status, _) in ended.items():
            call = self.running.pop(pid, None)
            if call is not None:
                call.ended(status)


def by_login_shell(setup: "Any") -> "list[bytes]":
    """`setup` may be shell text that the user wants to have run before."""
    text = setup.encode("utf-8", "surrogateescape") + b"\n" if isinstance(setup, str) else b""
    return BY_LOGIN_SHELL + [text + RUN_WORDS]


def checked_words(argv: "Any") -> "list[bytes]":
    if not isinstance(argv, list) or not argv or not all(isinstance(word, str) for word in argv):
        raise Refusal("bad_request", "`argv` is not a list of words")
    return [word.encode("utf-8", "surrogateescape") for word in argv]
