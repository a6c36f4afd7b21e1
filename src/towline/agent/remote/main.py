"""The agent: what Towline runs on a machine, spoken to over stdin and stdout."""

import collections
import errno
import gc
import os
import select
import signal
import sys
import time

from . import frames, machine, trouble
from .box.asking import WallsQuestions
from .clean.sweeping import Sweeping
from .commands.login import LoginShell
from .content.blobs import Blobs
from .content.files import FileOperations
from .content.gathering import Gathering
from .home import Home
from .jobs import guardian
from .jobs.registry import Jobs
from .jobs.supervisors import note
from .loop import READ, WRITE, Loop
from .node.handover import HandoverOperations
from .node.samples import Samples
from .refusal import Refusal
from .run.services import ServicePlaces
from .share import lingering
from .share.probing import Probes, free_port
from .wire import flows
from .wire.log_reads import Reads
from .wire.tunnels import Tunnels

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .typed import Message, Operation

PROTOCOL = 1
#: While more than this is waiting to go out, nothing more is taken in.
MOST_QUEUED = 8 << 20
#: So long an agent that leaves tries to say what it still has to.
LAST_WORDS_S = 5.0


class Agent:
    def __init__(self, home: "Home", stdin: int, stdout: int, login: bool = False) -> None:
        self.home = home
        self.stdin = stdin
        self.loop = Loop(lambda text: note(home, text))
        self.decoder = frames.Decoder()
        self.outbox = frames.FrameQueue(stdout)
        self.asked: "collections.deque[tuple[Any, bytes]]" = collections.deque()
        self.flows = flows.Flows()
        self.called = False
        self.clogged = False
        self.login = LoginShell(self.loop, lambda text: note(home, text))
        if login:
            self.login.read()
        self.jobs = Jobs(self.loop, home, self.woken, self.login)
        self.login.when_known(self.jobs.dispatch)
        self.reads = Reads(self.loop, home, self.reply, self.jobs.is_active, self.is_full)
        self.places = ServicePlaces(home)
        self.tunnels = Tunnels(
            self.loop, self.send, self.reply, self.refuse, lambda: self.clogged, self.places
        )
        self.operations = self.table()
        self.loop.after_turn.append(self.speak)
        self.loop.watch(stdin, READ, self.listen)

    def table(self) -> "dict[str, Operation]":
        jobs, reads, blobs = self.jobs, self.reads, Blobs(self.home)
        supervisors = lambda: list(jobs.supervisors.workers)  # noqa: E731
        probes = Probes(
            self.loop, self.home, self.reply, self.send, jobs.running, supervisors, self.login
        )
        jobs.refused = probes.claims_changed
        operations = [
            jobs.start, jobs.exec, jobs.go, jobs.stop, jobs.void, jobs.observe, jobs.forget,
            jobs.collecting.collect,
            reads.read, reads.cancel, self.flows.drop,
            blobs.missing, blobs.resume, blobs.blob, blobs.blobs,
            blobs.snapshot, blobs.have_snapshot,
            probes.probe, probes.watch, free_port, self.places.services,
            self.tunnels.dial, self.tunnels.frame, self.bye,
        ]  # fmt: skip
        table = {operation.__name__: operation for operation in operations}
        files = FileOperations(self.home)
        table.update(files.operations())
        table["gather"] = files.refusing(Gathering(self.home, files).gather)
        table.update(self.handing().operations())
        table["samples"] = Samples(self.home).samples
        table["walls"] = WallsQuestions(self.loop, self.home, self.reply).walls
        sweeping = Sweeping(self.loop, self.home, self.reply, self.refuse, jobs.has_company)
        table.update(sweeping.operations(table))
        return table

    def handing(self) -> "HandoverOperations":
        return HandoverOperations(
            self.loop, self.home, self.reply, self.send, self.woken, self.login
        )

    def woken(self, key: str) -> None:
        self.reads.woken(key)

    def hello(self) -> None:
        facts = machine.describe()
        facts.update(event="hello", protocol=PROTOCOL, time=time.time())
        facts["root"] = machine.to_text(self.home.root)
        facts["logout_ends_jobs"] = lingering.ends_jobs()
        self.send(facts)

    # In

    def listen(self, _events: int) -> None:
        try:
            asked = self.decoder.read(self.stdin, 1 << 18)
        except frames.BrokenFrame as problem:
            self.send({"event": "error", "code": "protocol", "text": str(problem)})
            self.loop.running = False
            return
        if asked is None:
            self.loop.running = False
            return
        self.asked.extend(asked)
        self.work()

    def work(self) -> None:
        """Answer what was asked, as long as the answers can go out."""
        self.called = False
        while self.asked and not self.is_full():
            request, blob = self.asked.popleft()
            if request is not None and isinstance(request.get("flow"), int):
                self.flows.add(request, blob)
            else:
                self.answer(request, blob)
        while self.flows and self.outbox.size < flows.FULL:
            self.answer(*self.flows.take())

    def work_soon(self) -> None:
        """In the next turn, so that whatever else happens comes in between."""
        if not self.called:
            self.called = True
            self.loop.later(0.0, self.work)

    def is_full(self) -> bool:
        return self.outbox.size > MOST_QUEUED

    def answer(self, request: "Message | None", blob: bytes) -> None:
        """One bad request never ends the agent."""
        if request is None:
            self.refuse(None, Refusal("bad_frame", "a frame's header is not a JSON object"))
            return
        number = request.get("id")
        try:
            operation = self.operations.get(request.get("op", "frame"))
            if operation is None:
                raise Refusal("bad_request", "unknown operation: %.80r" % (request.get("op"),))
            result = self.carry_out(operation, request, blob)
        except Refusal as refusal:
            self.refuse(number, refusal)
        except OSError as problem:
            full = problem.errno in (errno.ENOSPC, errno.EDQUOT)
            self.refuse(number, Refusal("no_space" if full else "failed", "%s" % problem))
        except Exception as problem:
            note(self.home, trouble.told())
            text = "%s: %s" % (type(problem).__name__, problem)
            self.refuse(number, Refusal("bad_request", text[:500]))
        else:
            if isinstance(result, tuple):
                self.reply(number, *result)
            elif result is not None:
                self.reply(number, result)

    def carry_out(self, operation: "Operation", request: "Message", blob: bytes) -> "Any":
        if not self.home.is_there():
            self.home.make()  # somebody tidied up here
        return operation(request, blob)

    def bye(self, request: "Message", _blob: bytes) -> "Message":
        self.loop.running = False
        return {}

    # Out

    def reply(self, number: "Any", header: "Message", blob: bytes = b"") -> None:
        self.send(dict(header, re=number), blob)

    def refuse(self, number: "Any", refusal: "Refusal") -> None:
        self.send({"re": number, "error": refusal.as_reply()})

    def send(self, header: "Message", blob: bytes = b"") -> None:
        self.outbox.add_frame(header, blob)

    def speak(self) -> None:
        """Once per turn: everything that happened in it."""
        event = self.jobs.take_events()
        if event is not None:
            self.send(event)
        if self.outbox.parts:
            self.flush()

    def flush(self, _events: int = 0) -> None:
        try:
            done = self.outbox.flush()
        except OSError:
            self.loop.running = False
            return
        if done == self.clogged:
            self.clogged = not done
            self.loop.watch(self.outbox.fd, 0 if done else WRITE, self.flush)
            self.tunnels.unclogged()
        full = self.is_full()
        if full == (self.stdin in self.loop.calls):
            self.loop.watch(self.stdin, 0 if full else READ, self.listen)
        if (self.asked and not full) or (self.flows and self.outbox.size < flows.FULL):
            self.work_soon()

    def run(self, early: bytes = b"") -> None:
        """`early`: what was asked before we were here."""
        self.hello()
        self.asked.extend(self.decoder.feed(early))
        self.work()
        self.speak()
        self.loop.run()
        self.last_words()
        left = self.jobs.left_to_us()
        if left:
            guardian.become(self.home, left)

    def last_words(self) -> None:
        """Supervisors may be killed meanwhile, and their commands are ours then; so it takes no
        longer than it must, and nothing is missed while nobody reads."""
        until = time.monotonic() + LAST_WORDS_S
        waits = select.poll()
        waits.register(self.loop.wake_read, select.POLLIN)
        waits.register(self.outbox.fd, select.POLLOUT)
        while True:
            self.loop.woken(0)
            event = self.jobs.take_events()
            if event is not None:
                self.send(event)
            try:
                said = self.outbox.flush()
            except OSError:
                said = True  # nobody hears it
            left = until - time.monotonic()
            if said or left <= 0:
                return
            waits.poll(int(left * 1000) + 1)


def main(root: str, login: bool = False, early: bytes = b"") -> None:
    """Serve on stdin and stdout until the connection is gone; the jobs go on without us.

    `login`: they get the environment that logging in gives, not what sshd gave us.
    """
    stdin, stdout = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    os.set_blocking(stdout, False)
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    # Meant for the supervisor in whose place we may be; we look for it anyway.
    signal.signal(signal.SIGUSR1, lambda *_: None)
    home = Home(root)
    try:
        home.make()
    except OSError as problem:
        sys.stderr.write("towline: cannot make %s: %s\n" % (home.root, problem))
        sys.exit(73)
    machine.become_subreaper()
    machine.set_name(b"tow-agent")
    machine.reuse_memory()
    if hasattr(gc, "freeze"):
        gc.freeze()
    agent = Agent(home, stdin, stdout, login)
    # Leave as if the connection was gone: there may be something to see to before.
    signal.signal(signal.SIGTERM, lambda *_: agent.loop.stop())
    agent.run(early)
    os._exit(0)
