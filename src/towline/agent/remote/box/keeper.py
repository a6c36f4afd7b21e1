"""The process that keeps one box: to whoever runs jobs, it is the job's command.

It starts bubblewrap and exits as the command inside did, once nothing of the box is left. Killed,
it takes all of it along: bubblewrap dies with it, the first process inside with bubblewrap, and
with that all the others. So neither bubblewrap nor that first process is ever asked to end.
"""

import json
import os
import resource
import signal

from .. import machine
from ..commands import process, process_tree
from ..records import record
from . import arguments, files, filter, keyring, network, system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .arguments import BoxPlan

NAME = b"tow-box"
#: A box that could not be made; what was wrong is in the mark.
NOT_MADE = 126
#: What the shell inside may say of the command.
WORDS = ("setup", "not_found", "not_executable")
MOST_SAID = 4096
#: More processes than this no job may have at a time: a fork bomb ends there.
MOST_PROCESSES = 8192
#: Signals by which programs end.
FATAL = frozenset(range(1, 32)).difference((17, 18, 19, 20, 21, 22, 23, 28))
#: Of two that want more memory than there is, it is a job that goes, not who watches it.
SOONER_KILLED = b"500"


class Gate:
    """Holds a child back until its parent has written down who it is."""

    def __init__(self) -> None:
        self.inside = self.outside = -1

    def make(self) -> None:
        self.inside, self.outside = os.pipe()

    def is_outside(self) -> None:
        os.close(self.inside)

    def open(self) -> None:
        try:
            os.write(self.outside, b"go")
        except OSError:
            pass  # it was killed
        os.close(self.outside)

    def was_opened(self) -> bool:
        """False when whoever was to open it is gone; nothing has begun then."""
        opened = bool(os.read(self.inside, 2))
        os.close(self.inside)
        return opened


class BoxKeeper:
    """`plan` is the box; `words` is what bubblewrap is told of it; `argv` runs inside."""

    def __init__(
        self, folder: str, bwrap: bytes, plan: "BoxPlan", words: "list[bytes]", argv: "list[bytes]"
    ) -> None:
        self.record = folder
        self.bwrap = bwrap
        self.plan = plan
        self.packed = arguments.packed(words)
        self.argv = [bwrap, b"--args", b"%d" % arguments.ARGUMENTS, b"--"]
        self.argv += arguments.inside(argv, plan.folder)
        self.gate = Gate()

    # In the process that runs the job

    def start(self, stdin: int, stdout: int, stderr: int) -> int:
        """The pid of the keeper, which waits for `release`: until it is written down who it is,
        nothing of the job runs. Raises OSError."""
        self.gate.make()
        pid = os.fork()
        if pid:
            self.gate.is_outside()
            return pid
        code = NOT_MADE
        try:
            close_all_but([self.gate.inside, stdin, stdout, stderr])
            code = self.keep(stdin, stdout, stderr)
        except Exception as problem:
            self.say("box %s" % problem)
        finally:
            os._exit(code)

    def release(self) -> None:
        self.gate.open()

    # In the keeper

    def keep(self, stdin: int, stdout: int, stderr: int) -> int:
        # Until then it leads no session: whoever buries it knows by that that nothing has begun.
        if not self.gate.was_opened():
            return 0
        self.settle_in()
        complaints, complain = os.pipe()
        marks, mark = os.pipe()
        statuses, status = os.pipe()
        blocked, unblock = os.pipe()
        given = {0: stdin, 1: stdout, 2: complain, arguments.MARK: mark, arguments.ERRORS: stderr}
        given.update({arguments.STATUS: status, arguments.BLOCK: blocked})
        given.update(self.texts())
        outer = self.start_bwrap(given)
        for fd in set(given.values()):
            os.close(fd)
        started = self.furnish(statuses, unblock, complaints)
        result = self.wait_for(outer)
        return self.tell(result, started, read_now(statuses), read_now(complaints), read_now(marks))

    def settle_in(self) -> None:
        os.setsid()
        signal.set_wakeup_fd(-1)
        # Asked to end with the others, it waits for them; by KILL it ends at once, and they do.
        signal.signal(signal.SIGTERM, lambda *_: None)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # What bubblewrap leaves behind for a moment is ours to wait for.
        machine.become_subreaper()
        machine.set_name(NAME)

    def texts(self) -> "dict[int, int]":
        passwd, group = system.account()
        texts = {
            arguments.ARGUMENTS: self.packed,
            arguments.PASSWD: passwd.encode(),
            arguments.GROUP: group.encode(),
            arguments.FILTER: filter.for_this_machine(),
        }
        if self.plan.own_network:
            texts[arguments.RESOLV] = network.RESOLV_CONF
        return {number: files.holding(self.record, text) for number, text in texts.items()}

    def start_bwrap(self, given: "dict[int, int]") -> int:
        keeper = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        try:
            machine.die_with_parent()
            if os.getppid() != keeper:
                os._exit(NOT_MADE)
            os.setsid()
            before_walls()
            files.give_out(given)
            process.forget_signals()
            os.chdir("/")
            # Nothing in its environment: that could be read from inside.
            os.execve(self.bwrap, self.argv, {})
        except OSError as problem:
            os.write(2, b"bwrap: %s" % str(problem).encode("utf-8", "replace"))
        finally:
            os._exit(NOT_MADE)

    def furnish(self, statuses: int, unblock: int, complaints: int) -> bool:
        """Once the namespaces are there, and before the command is: whether all could be done."""
        first = b""
        while not first.endswith(b"\n"):
            data = os.read(statuses, MOST_SAID)
            if not data:
                return False
            first += data
        init = json.loads(first.decode("ascii"))["child-pid"]
        null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        try:
            if self.plan.own_network:
                network.open_way_out(init, null)
            files.note_box(self.record, init)
        except (OSError, ValueError) as problem:
            self.say("box %s" % problem)
            process_tree.send(init, signal.SIGKILL)
            return False
        finally:
            os.close(null)
        os.write(unblock, b"x")
        os.close(unblock)
        return True

    def wait_for(self, outer: int) -> int:
        """The status of bubblewrap, which is that of the command; nothing is left then."""
        result = None
        while True:
            try:
                pid, status = os.wait()
            except ChildProcessError:
                return NOT_MADE << 8 if result is None else result
            if pid == outer:
                result = status
                # The way out, and what may be left inside.
                for child in process_tree.children(os.getpid()):
                    process_tree.send(child, signal.SIGKILL)

    def tell(
        self, result: int, started: bool, status: bytes, complaints: bytes, marks: bytes
    ) -> int:
        record.remove(self.record + files.BOX)
        if started and b"exit-code" not in status and os.WIFEXITED(result):
            text = complaints.decode("utf-8", "replace").strip() or "bubblewrap gave up"
            self.say("box " + text)
            return NOT_MADE
        said = marks.decode("ascii", "replace").split()
        if said and said[-1] in WORDS:
            self.say(said[-1])
        if not started and complaints:
            self.say("box " + complaints.decode("utf-8", "replace").strip())
        return ended_as(result) if started else NOT_MADE

    def say(self, text: str) -> None:
        """Why there is no command, for whoever writes down how the job ended."""
        try:
            record.write_whole(self.record + "/mark", text[:MOST_SAID].encode("utf-8", "replace"))
        except OSError:
            pass


def ended_as(status: int) -> int:
    """End by the signal that ended the command, or return its exit code. Bubblewrap tells of a
    signal as shells do, by a code above 128; no other sign of it comes out of a box."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
    else:
        number = os.WEXITSTATUS(status) - 128
    if number in FATAL:
        bound(resource.RLIMIT_CORE, 0)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + number


def before_walls() -> None:
    """What a job has of its account without a namespace of its own for it."""
    keyring.leave()
    bound(resource.RLIMIT_CORE, 0)
    bound(resource.RLIMIT_NPROC, MOST_PROCESSES)
    try:
        with open("/proc/self/oom_score_adj", "wb", 0) as file:
            file.write(SOONER_KILLED)
    except OSError:
        pass


def close_all_but(ours: "list[int]") -> None:
    """Above all the lock that says that a supervisor lives."""
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd > 2 and fd not in ours:
            files.close(fd)


def bound(what: int, most: int) -> None:
    _, hard = resource.getrlimit(what)
    if hard == resource.RLIM_INFINITY or hard > most:
        resource.setrlimit(what, (most, most))


def read_now(fd: int) -> bytes:
    """What is there to read of a pipe; the other end may be open in what we started."""
    os.set_blocking(fd, False)
    try:
        return os.read(fd, MOST_SAID)
    except OSError:
        return b""
    finally:
        os.close(fd)
