"""The process that one job runs under: it outlives agent and connection, and records its ending.

It is forked by the agent, takes one job at a time from it through a socket, and then the next.
When the agent is gone it finishes its present job and exits.
"""

import errno
import json
import os
import select
import shutil
import signal
import time

from .. import frames, machine
from ..commands import missing, process, process_tree
from ..content import changes, outside, trees
from ..machine import to_path
from ..records import endings, record
from ..refusal import Refusal
from ..share import grants
from .execution import Run

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any, Iterable

    from ..home import Home
    from ..typed import Ending, Environ, Spec

HOLD_S = 600.0
LOOK_FOR_GO_S = 0.5
KEEP_TRIES = 60
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class Stopped(Exception):
    """The job is not to start any more."""

    def __init__(self, cause: str, text: str = "") -> None:
        super().__init__(cause)
        self.cause = cause
        self.text = text


class Supervisor:
    def __init__(self, home: "Home", sock: "socket.socket") -> None:
        self.home = home
        self.sock = sock
        self.decoder = frames.Decoder()
        self.todo: "list[tuple[str, bytes]]" = []
        self.agent_gone = False
        self.key = ""
        #: Its own folder, and the one with what is written down about it.
        self.folder = self.record = ""
        #: Grace in seconds once a stop of the present job was asked for.
        self.stop_grace: "float | None" = None
        #: Those of jobs that are still to begin, by key; None is the job's own grace.
        self.early_stops: "dict[str, float | None]" = {}
        self.grace_s = 10.0
        self.grant = grants.Grant()
        #: Never changes, and is slow to copy from `os`.
        self.own_environ = dict(os.environb)
        self.null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self.kills = endings.Kills()
        self.snapshot: "tuple[str, list[Any]]" = ("", [])
        self.poll = select.poll()
        self.poll.register(sock, select.POLLIN)
        self.listen_to_signals()

    def listen_to_signals(self) -> None:
        self.wake, wake_write = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write)
        self.poll.register(self.wake, select.POLLIN)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self.terminated())
        signal.signal(signal.SIGUSR1, lambda *_: self.look_for_stop())

    # What comes from outside

    def serve(self) -> None:
        while True:
            while self.todo:
                self.run(*self.todo.pop(0))
            if self.agent_gone:
                return
            self.wait(None)

    def wait(self, seconds: "float | None") -> None:
        """Until something happened, or the time is over."""
        if seconds is not None:
            seconds = int(seconds * 1000) + 1 if seconds > 0 else 0
        for fd, _ in self.poll.poll(seconds):
            if fd == self.wake:
                os.read(self.wake, 4096)
            else:
                self.receive()

    def receive(self) -> None:
        try:
            data = self.sock.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self.agent_gone = True
            self.poll.unregister(self.sock)
            return
        for header, blob in self.decoder.feed(data):
            if "run" in header:
                self.todo.append((header["run"], blob))
            elif header.get("stop") == self.key:
                self.stop(header["grace_s"])
            elif any(header.get("stop") == key for key, _ in self.todo):
                # Read together with its start: a busy machine let us not run in between.
                self.early_stops[header["stop"]] = header["grace_s"]

    def terminated(self) -> None:
        self.stop(None)

    def stop(self, grace_s: "float | None") -> None:
        grace_s = self.grace_s if grace_s is None else grace_s
        if self.stop_grace is None or grace_s < self.stop_grace:
            self.stop_grace = grace_s

    def look_for_stop(self) -> None:
        """Another agent than ours asks for a stop through a file."""
        grace_s = record.asked_to_stop(self.record)
        if grace_s is not None:
            self.stop(grace_s)

    def tell(self, **message: "Any") -> None:
        if self.agent_gone:
            return
        message["key"] = self.key
        try:
            self.sock.sendall(frames.encode(message))
        except OSError:
            self.agent_gone = True
            self.poll.unregister(self.sock)

    # One job

    def run(self, key: str, raw: bytes) -> None:
        self.key, self.folder, self.stop_grace = key, self.home.job(key), None
        self.record = self.home.new_record(key)
        if key in self.early_stops:
            self.stop(self.early_stops.pop(key))
        try:
            life = self.claim_here()
        except OSError as problem:
            self.tell(ended=trouble(problem))
            return
        if life is None:
            self.tell(known=True)
            return
        end, pid = self.live(life, raw)
        self.keep(life, end, raw)
        os.close(life)
        end.update(endings.said(end, self.folder))
        if pid:
            self.tell(started=[pid, end["started"]], ended=end)
        else:
            self.tell(ended=end)
        self.key = ""

    def keep(self, life: int, end: "Ending", raw: bytes) -> None:
        """Record the ending; a job that did run must not lose it to a moment without space."""
        for _ in range(KEEP_TRIES if end["started"] else 1):
            try:
                record.write_exit(self.record, life, end, raw)
                return
            except OSError:
                time.sleep(1.0 if end["started"] else 0.0)

    def claim_here(self) -> "Any":
        try:
            return self.claim()
        except FileNotFoundError:
            self.home.make()  # somebody removed it
            return self.claim()

    def claim(self) -> "Any":
        """The locked `life` of a job never started; None when somebody else has or had it."""
        try:
            # In this order: an older agent's record would be in the job's folder.
            os.mkdir(self.folder, 0o700)
            os.mkdir(self.record, 0o700)
        except FileExistsError:
            return self.claim_again()
        life = record.open_life(self.record, create=True)
        if record.lock(life) and not os.path.exists(self.record + "/exit"):
            return life
        os.close(life)
        return None

    def claim_again(self) -> "Any":
        self.record = self.home.record(self.key)
        if os.path.exists(self.record + "/exit"):
            return None
        for folder in (self.record, self.folder):
            os.makedirs(folder, 0o700, exist_ok=True)
        life = record.open_life(self.record, create=True)
        if (
            not machine.is_another(record.read_life(life).get("identity"))
            and record.lock(life)
            and record.is_current(self.record, life)
            and not os.path.exists(self.record + "/exit")
            and "spawning" not in record.read_life(life)
        ):
            self.look_for_stop()
            if record.released(self.record) != "void":
                for made in ("/src", "/keep"):
                    shutil.rmtree(self.folder + made, ignore_errors=True)
                return life
            record.write_exit(self.record, life, endings.ending("void", "it never started"), b"{}")
        os.close(life)
        return None

    def live(self, life: int, raw: bytes) -> "tuple[Ending, int]":
        """Prepare, start and await the command: its ending, and its pid if still to be told."""
        try:
            self.kills.refresh()
            spec = json.loads(raw.decode("utf-8"))
            self.grace_s = spec["grace_s"]
            record.reserve(life, raw)
            self.grant = grants.Grant(self.key, spec["claim"])
            self.grant.take(self.pause)
            self.prepare(life, spec, raw)
            return Run(self, life, spec, raw).to_the_end()
        except Stopped as stopped:
            return endings.ending(stopped.cause, stopped.text), 0
        except grants.Taken as taken:
            return dict(endings.ending("void", str(taken)), taken=True), 0
        except process.CannotStart as problem:
            return endings.ending(problem.cause, self.explain(problem, spec), problem.code), 0
        except trees.Absent as problem:
            return endings.ending("absent", str(problem)), 0
        except (trees.CannotMake, Refusal, ValueError) as problem:
            return endings.ending("snapshot", str(problem)), 0
        except OSError as problem:
            return trouble(problem), 0
        finally:
            self.grant.release()
            os.chdir("/")

    def prepare(self, life: int, spec: "Spec", raw: bytes) -> None:
        if not spec["at"]:
            self.make_folders(spec)
        if spec["hold"]:
            self.hold(life, spec["hold_s"], raw)
        self.look_for_stop()
        if self.stop_grace is not None:
            raise Stopped("stopped", "stopped before it started")

    def make_folders(self, spec: "Spec") -> None:
        """The job's own tree, what it keeps for the next one, and links to what is here already."""
        source, keep = self.folder + "/src", self.folder + "/keep"
        largest = 0
        changes.begin(self.record)
        os.mkdir(source, 0o755)
        os.mkdir(keep, 0o755)
        if spec["snapshot"] and not spec["folder"]:
            largest = self.make_source(spec["snapshot"], source)
        if spec["keep"]:
            trees.make_tree(
                self.home, trees.load_snapshot(self.home, spec["keep"]), keep, self.pause
            )
        trees.make_links(source, spec["links"])
        if outside.named(spec["links"]):
            outside.make_links(source, spec["links"], self.environ(spec))
        changes.complete(self.record, largest, self.pause)

    def make_source(self, digest: str, source: str) -> int:
        if self.snapshot[0] != digest:
            self.snapshot = (digest, trees.load_snapshot(self.home, digest))
        return trees.make_tree(self.home, self.snapshot[1], source, self.pause)

    def pause(self) -> None:
        """Between two files: hear a stop."""
        self.wait(0)
        self.grant.show(grants.SHOW_AFTER_S)
        if self.stop_grace is not None:
            raise Stopped("stopped", "stopped before it started")

    def hold(self, life: int, hold_s: float, raw: bytes) -> None:
        """Until released. The link `go` is made only once: it says either go or void, for ever."""
        about = dict(machine.who_we_are(), held=True)
        record.write_life(life, about, raw)
        self.grant.show()
        self.tell(held=True)
        until = time.monotonic() + hold_s
        word = record.released(self.record)
        while not word and self.stop_grace is None:
            left = until - time.monotonic()
            if left <= 0:
                record.release(self.record, "void")
            else:
                self.wait(min(left, LOOK_FOR_GO_S))
                self.look_for_stop()
            word = record.released(self.record)
        if word == "void":
            raise Stopped("void", "it was not released to start")

    def environ(self, spec: "Spec") -> "Environ":
        """The environment of the command, as bytes."""
        if spec["environ"] is None:
            environ = dict(self.own_environ)
        else:
            environ = as_bytes(spec["environ"])
        environ.update(outside.expanded(as_bytes(spec["env"]), environ))
        home = os.fsencode(self.home.job(spec["at"] or self.key))
        environ[b"JOB_DIR"] = home
        environ[b"SRC_DIR"] = os.fsencode(to_path(spec["folder"])) or home + b"/src"
        environ[b"KEEP_DIR"] = home + b"/keep"
        environ.setdefault(b"PYTHONUNBUFFERED", b"1")
        environ[process_tree.MARK.encode()] = self.key.encode()
        return environ

    def explain(self, problem: "process.CannotStart", spec: "Spec") -> str:
        if problem.cause != "not_found":
            return problem.text
        hint = self.where_else(spec)
        return problem.text if hint in problem.text else problem.text + hint

    def where_else(self, spec: "Spec") -> str:
        return missing.hint(spec["argv"], self.environ(spec), spec["environ"] is None)

    def given(self, spec: "Spec") -> "Iterable[bytes]":
        """Names of variables that are the job's own, whatever a profile says."""
        return as_bytes(spec["env"]).keys()


def as_bytes(variables: "dict[str, str]") -> "Environ":
    return {
        name.encode("utf-8", "surrogateescape"): value.encode("utf-8", "surrogateescape")
        for name, value in variables.items()
    }


def trouble(problem: "OSError") -> "Ending":
    """The ending of a job that could not even be prepared."""
    if problem.errno in NO_SPACE:
        return endings.ending("no_space", "no space left on the machine: %s" % problem)
    if problem.errno in process.NOT_NOW:
        return endings.ending("void", "nothing starts here just now: %s" % problem)
    return endings.ending("snapshot", "the job's folder could not be made: %s" % problem)
