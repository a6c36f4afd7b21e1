"""Ways into a box that is there: for a command beside the job, a service, a connection."""

import array
import os
import signal
import socket

from .. import machine
from ..commands import process
from . import filter, keeper, namespaces

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..typed import Environ

#: Those that a command inside has in common with the job, but for the user's.
SHARED = (
    ("ipc", 0x08000000),
    ("uts", 0x04000000),
    ("cgroup", 0x02000000),
    ("net", namespaces.NET),
    ("pid", 0x20000000),
    ("mnt", 0x00020000),
)
PR_CAPBSET_DROP, MOST_CAPABILITIES = 24, 64
CONNECT_S = 5.0


class BoxVisitor:
    """A command that is to run in the box whose first process is `init`."""

    def __init__(
        self,
        init: int,
        argv: "list[bytes]",
        environ: "Environ",
        folder: bytes,
        with_us: bool = False,
    ) -> None:
        self.init = init
        self.argv = argv
        self.environ = environ
        self.folder = folder
        #: It cannot outlive whoever starts it.
        self.with_us = with_us
        self.gate = keeper.Gate()

    def start(self, stdin: int, stdout: int, stderr: int) -> int:
        """The pid of its usher, which waits for `release`, ends as the command does, and is asked
        to end with it. Raises OSError."""
        self.gate.make()
        pid = os.fork()
        if pid:
            self.gate.is_outside()
            return pid
        code = 126
        try:
            if self.with_us:
                machine.die_with_parent()
            keeper.close_all_but([stdin, stdout, stderr, self.gate.inside])
            code = self.usher(stdin, stdout, stderr) if self.gate.was_opened() else 0
        except OSError as problem:
            os.write(stderr, b"cannot enter the job's box: %s\n" % str(problem).encode("utf-8"))
        finally:
            os._exit(code)

    def release(self) -> None:
        self.gate.open()

    def usher(self, stdin: int, stdout: int, stderr: int) -> int:
        os.setsid()
        process.forget_signals()
        # Asked to end with the others, it waits for them.
        signal.signal(signal.SIGTERM, lambda *_: None)
        machine.set_name(b"tow-box")
        keeper.before_walls()
        join(self.init)
        # Only children are in the box's process namespace.
        pid = os.fork()
        if pid == 0:
            self.begin(stdin, stdout, stderr)
        while True:
            ended, status = os.wait()
            if ended == pid:
                break
        return keeper.ended_as(status)

    def begin(self, stdin: int, stdout: int, stderr: int) -> None:
        code = 126
        try:
            machine.die_with_parent()
            for number in range(MOST_CAPABILITIES):
                machine.prctl(PR_CAPBSET_DROP, number)
            filter.put_on()
            os.makedirs(self.folder, 0o755, exist_ok=True)
            os.chdir(self.folder)
            place = process.find_command(self.argv[0], self.environ)
            process.become(place, self.argv, self.environ, stdin, stdout, stderr)
        except process.CannotStart as problem:
            code = problem.code or code
            os.write(stderr, problem.text.encode("utf-8", "replace") + b"\n")
        except OSError as problem:
            os.write(stderr, b"%s\n" % str(problem).encode("utf-8", "replace"))
        finally:
            os._exit(code)


def join(init: int, only_network: bool = False) -> None:
    """Be where `init` is. Raises OSError."""
    shared = [pair for pair in SHARED if not only_network or pair[0] == "net"]
    opened = [(namespaces.of(init, name), kind, name) for name, kind in shared]
    inner = namespaces.of(init, "user")
    owner = namespaces.owner_of(opened[-1][0])
    for fd, kind, name in [(owner, namespaces.USER, "user")] + opened:
        if not namespaces.is_ours(fd, name):
            namespaces.enter(fd, kind, name)
    if not only_network and not os.path.samestat(os.fstat(inner), os.fstat(owner)):
        namespaces.enter(inner, namespaces.USER, "user")


def has_own_network(init: int) -> bool:
    try:
        return os.stat("/proc/%d/ns/net" % init).st_ino != os.stat("/proc/self/ns/net").st_ino
    except OSError:
        return False


def connected(init: int, address: "tuple[str, int]") -> "socket.socket":
    """A connection to a port inside, made by a child that goes there: a socket stays where it was
    made, whoever has it. Raises OSError."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        try:
            join(init, only_network=True)
            family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
            sock = socket.socket(family, socket.SOCK_STREAM)
            sock.settimeout(CONNECT_S)
            sock.connect(address)
            sock.settimeout(None)
            handed = array.array("i", [sock.fileno()])
            theirs.sendmsg([b"0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, handed)])
        except OSError as problem:
            theirs.sendall(b"%d" % (problem.errno or 110))
        finally:
            os._exit(0)
    theirs.close()
    try:
        said, passed, _, _ = ours.recvmsg(16, socket.CMSG_SPACE(4))
    finally:
        ours.close()
        try:
            os.waitpid(pid, 0)
        except ChildProcessError:
            pass  # the loop was quicker
    for _, _, data in passed:
        return socket.socket(fileno=array.array("i", data)[0])
    number = int(said or b"111")
    raise OSError(number, os.strerror(number))
