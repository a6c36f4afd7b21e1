"""The agent's side of its supervisors: fork, hand out jobs, hear what becomes of them."""

import gc
import os
import signal
import socket
import sys

from .. import frames, machine, trouble
from ..commands import process
from ..loop import READ, WRITE
from ..run.supervisor import Supervisor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from ..home import Home
    from ..loop import Loop
    from ..typed import Message, Reaped, Timer
    from .known_job import KnownJob

#: Forks per turn of the loop, so that a thousand starts do not make the agent deaf.
FORKS_PER_TURN = 4
IDLE_S = 5.0
MOST_NOTES = 1 << 20


class SupervisorHandle:
    """One supervisor as the agent sees it."""

    def __init__(self, pid: int, sock: "socket.socket") -> None:
        self.pid = pid
        self.sock = sock
        self.fd = sock.fileno()
        self.decoder = frames.Decoder()
        self.outbox = frames.FrameQueue(self.fd)
        self.clogged = False
        self.job: "KnownJob | None" = None
        #: What it failed by, in its own words.
        self.trouble = ""


class Supervisors:
    """`heard(job, message)` gets what a supervisor says, `died(job)` the job of a killed one."""

    def __init__(
        self,
        loop: "Loop",
        home: "Home",
        heard: "Callable[[KnownJob, Message], None]",
        died: "Callable[[KnownJob], None]",
    ) -> None:
        self.loop = loop
        self.home = home
        self.heard = heard
        self.died = died
        self.workers: "dict[int, SupervisorHandle]" = {}
        self.idle: "list[SupervisorHandle]" = []
        self.keep_idle = max(4, 2 * machine.usable_cpus())
        self.forks_left = FORKS_PER_TURN
        self.pruning: "Timer | None" = None
        loop.after_turn.append(self.new_turn)

    def new_turn(self) -> None:
        self.forks_left = FORKS_PER_TURN

    def take(self) -> "SupervisorHandle | None":
        """An idle supervisor, or a new one; None when this turn has forked enough."""
        if self.idle:
            return self.idle.pop()
        if self.forks_left <= 0:
            return None
        self.forks_left -= 1
        return self.fork()

    def fork(self) -> "SupervisorHandle":
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            become_supervisor(self.home, theirs)
        theirs.close()
        ours.setblocking(False)
        worker = SupervisorHandle(pid, ours)
        self.workers[pid] = worker
        self.watch(worker)
        return worker

    def watch(self, worker: "SupervisorHandle") -> None:
        events = READ | WRITE if worker.clogged else READ
        self.loop.watch(worker.fd, events, lambda events: self.ready(worker, events))

    def run(self, worker: "SupervisorHandle", job: "KnownJob", raw: bytes) -> None:
        worker.job = job
        job.worker = worker
        self.say(worker, {"run": job.key}, raw)

    def say(self, worker: "SupervisorHandle", message: "Message", blob: bytes = b"") -> None:
        worker.outbox.add(frames.encode(message, blob))
        self.flush(worker)

    def flush(self, worker: "SupervisorHandle") -> None:
        try:
            done = worker.outbox.flush()
        except OSError:
            return  # it was killed; the loop hears of it as an ended child
        if done == worker.clogged:
            worker.clogged = not done
            self.watch(worker)

    def ready(self, worker: "SupervisorHandle", events: int) -> None:
        if events & WRITE:
            self.flush(worker)
        if events & READ:
            self.receive(worker)

    def receive(self, worker: "SupervisorHandle") -> None:
        try:
            data = worker.sock.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.loop.unwatch(worker.fd)
            return
        for message, _ in worker.decoder.feed(data):
            job = worker.job
            worker.trouble = message.get("trouble", "")
            if "free" in message:
                self.idle.append(worker)
            if job is None or message.get("key") != job.key:
                continue
            if "ended" in message or "known" in message:
                worker.job = job.worker = None
                if "busy" not in message:
                    self.idle.append(worker)
            self.heard(job, message)
        if len(self.idle) > self.keep_idle and self.pruning is None:
            self.pruning = self.loop.later(IDLE_S, self.prune)

    def prune(self) -> None:
        """Let those go that have had nothing to do for a while."""
        self.pruning = None
        for worker in self.idle[: len(self.idle) - self.keep_idle]:
            self.idle.remove(worker)
            self.close(worker)

    def close(self, worker: "SupervisorHandle") -> None:
        self.loop.unwatch(worker.fd)
        worker.sock.close()
        self.workers.pop(worker.pid, None)

    def supervised(self) -> "dict[int, str]":
        """Those of ours -> their jobs, or ""."""
        workers = self.workers.values()
        return {worker.pid: worker.job.key if worker.job else "" for worker in workers}

    def children_ended(self, ended: "Reaped") -> None:
        for pid in ended:
            worker = self.workers.get(pid)
            if worker is None:
                continue
            while worker.fd in self.loop.calls:
                self.receive(worker)  # its last words, up to the end of the stream
            if worker in self.idle:
                self.idle.remove(worker)
            self.close(worker)
            if worker.job is not None:
                job, worker.job = worker.job, None
                job.worker = None
                job.trouble = worker.trouble
                self.died(job)


def become_supervisor(home: "Home", sock: "socket.socket") -> None:
    """Never returns: the agent's own objects stay as they are, only their file descriptors go."""
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        if hasattr(gc, "freeze"):
            gc.freeze()
        process.close_all_but(sock.fileno())
        machine.become_subreaper()
        machine.set_name(b"tow-supervisor")
        os.chdir("/")
        Supervisor(home, sock).serve()
    except BaseException as problem:
        note(home, trouble.told())
        confess(sock, "%s: %s" % (type(problem).__name__, problem))
    finally:
        os._exit(0)


def confess(sock: "socket.socket", text: str) -> None:
    """The agent is to know that nobody killed us."""
    try:
        sock.setblocking(False)
        sock.sendall(frames.encode({"trouble": text[:500]}))
    except OSError:
        pass


def note(home: "Home", text: str) -> None:
    """What went wrong inside, for whoever looks for it."""
    try:
        path = home.root + "/trouble.log"
        if os.path.exists(path) and os.path.getsize(path) > MOST_NOTES:
            return
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "a") as file:
            file.write("%s %s\n" % (sys.version.split()[0], text))
    except OSError:
        pass
