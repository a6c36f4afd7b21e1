"""Facts about this machine, and the few kernel calls Python has no name for."""

import ctypes
import os
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from .typed import Message, Reaped

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
MOST_REUSED = 16 << 20
MACHINE_IDS = ("/etc/machine-id", "/var/lib/dbus/machine-id")
#: The folder that holds our package: one version of the agent, named by its content.
PROGRAM = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
IDENTITY: "dict[str, Any]" = {}


def prctl(option: int, value: "Any") -> bool:
    """True when the kernel took it; a kernel or libc without it is no reason to stop."""
    try:
        return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def become_subreaper() -> bool:
    """Orphaned descendants become our children instead of init's."""
    return prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Be killed as soon as our parent is gone."""
    prctl(PR_SET_PDEATHSIG, 9)


def reuse_memory() -> None:
    """Take large blocks from memory that we have: fresh pages cost more than copying does."""
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, MOST_REUSED)
        libc.mallopt(M_TRIM_THRESHOLD, 2 * MOST_REUSED)
    except (OSError, AttributeError):
        pass  # another libc


def reap(look: "Callable[[int], None]" = lambda pid: None) -> "Reaped":
    """Every child that has ended, as {pid: (status, usage)}; `look` sees each while it can still be
    looked at."""
    ended: "dict[int, tuple[int, Any]]" = {}
    while True:
        try:
            seen = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return ended
        if seen is None:
            return ended
        look(seen.si_pid)
        pid, status, usage = os.wait4(seen.si_pid, 0)
        ended[pid] = (status, usage)


def leads_session(pid: int) -> bool:
    """Also of a child that has ended, until it was waited for."""
    try:
        return os.getsid(pid) == pid
    except OSError:
        return False


def set_name(name: bytes) -> None:
    prctl(PR_SET_NAME, ctypes.c_char_p(name))


def read_text(path: "str | bytes") -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def boot_id() -> str:
    return read_text("/proc/sys/kernel/random/boot_id").strip()


def identity() -> "Message":
    """What tells this machine, as it runs now, from every other; what is not known is empty."""
    if not IDENTITY:
        IDENTITY.update(host=os.uname().nodename, boot=boot_id(), pidns=0)
        ids = [read_text(path).strip() for path in MACHINE_IDS]
        IDENTITY["machine"] = next(filter(None, ids), "")
        try:
            IDENTITY["pidns"] = os.stat("/proc/self/ns/pid").st_ino
        except OSError:
            pass
    return IDENTITY


def who_we_are() -> "Message":
    """For whoever finds the record of a job: how to find its supervisor, or to know that it is
    elsewhere."""
    here = identity()
    return {"supervisor": os.getpid(), "boot": here["boot"], "identity": here}


def unique() -> str:
    """A part of a name that nobody else uses, also on no other machine with the same home."""
    return "%s-%d-%s" % (os.uname().nodename[:40], os.getpid(), os.urandom(4).hex())


def is_another(there: "Any") -> bool:
    """Whether an identity is certainly another machine's: one that restarted is still the same."""
    here = identity()
    if not isinstance(there, dict) or all(there.get(n) == here[n] for n in ("boot", "pidns")):
        return False
    ids = there.get("machine"), here["machine"]
    return there.get("host") != here["host"] or (all(ids) and ids[0] != ids[1])


def usable_cpus() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return os.cpu_count() or 1


def user_name() -> str:
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        return os.environ.get("USER", str(os.getuid()))


def home_folder() -> str:
    return os.path.expanduser("~")


def free_port(address: str = "") -> int:
    """A port that nothing listens on at this moment."""
    with socket.socket() as sock:
        sock.bind((address, 0))
        return int(sock.getsockname()[1])


def own_address() -> str:
    """The address the other side reached us at, as sshd tells it."""
    fields = os.environ.get("SSH_CONNECTION", "").split()
    return fields[2] if len(fields) > 2 else ""


def describe() -> "Message":
    return {
        "pid": os.getpid(),
        "python": "%d.%d.%d" % sys.version_info[:3],
        "hostname": socket.gethostname(),
        "boot": boot_id(),
        "identity": identity(),
        "user": user_name(),
        "home": to_text(home_folder()),
        "address": own_address(),
        "cpus": usable_cpus(),
    }


def to_text(path: str) -> str:
    """A file name as it travels: UTF-8, other bytes as surrogates, whatever the locale is here."""
    return os.fsencode(path).decode("utf-8", "surrogateescape")


def to_path(text: str) -> str:
    """The reverse of `to_text`."""
    return os.fsdecode(text.encode("utf-8", "surrogateescape"))


def oom_kills(groups: str = "/sys/fs/cgroup", proc: str = "/proc") -> int:
    """How often the kernel killed for want of memory so far.

    The count of our control group, where jobs are too; that of the whole machine only if the
    group has none: it also counts what is not ours.
    """
    for path in oom_counters(read_text(proc + "/self/cgroup"), groups) + [proc + "/vmstat"]:
        for line in read_text(path).splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def oom_counters(membership: str, groups: str) -> "list[str]":
    """The files in which the kernel counts for our control group, of the second version or the
    first; in a container the group itself may be mounted at the top."""
    found = []
    for line in membership.splitlines():
        _, controllers, group = line.split(":", 2)
        if not controllers:
            found += [groups + group + "/memory.events", groups + "/memory.events"]
        elif "memory" in controllers.split(","):
            top = groups + "/memory"
            found += [top + group + "/memory.oom_control", top + "/memory.oom_control"]
    return found
