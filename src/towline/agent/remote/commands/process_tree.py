"""Which processes belong to a job, and how they are brought to an end."""

import os
import signal
import time

from ..machine import read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterable

    from ..typed import Message

#: In the environment of every process of a job.
MARK = "TOWLINE_KEY"
HAS_CHILDREN_FILE = os.path.exists("/proc/self/task/%d/children" % os.getpid())
PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024
TICKS = os.sysconf("SC_CLK_TCK")


class Stat:
    """The few fields of /proc/PID/stat that matter here."""

    __slots__ = ("cpu_s", "group", "parent", "rss_kb", "session", "start", "state")

    def __init__(self, fields: "list[str]") -> None:
        self.state = fields[0]
        self.parent = int(fields[1])
        self.group = int(fields[2])
        self.session = int(fields[3])
        #: Its own and that of children it has reaped: a job of many short programs is one job.
        self.cpu_s = sum(int(field) for field in fields[11:15]) / TICKS
        self.start = int(fields[19])
        self.rss_kb = int(fields[21]) * PAGE_KB


def stat(pid: int) -> "Stat | None":
    """None when there is no such process."""
    try:
        fd = os.open("/proc/%d/stat" % pid, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        text = os.read(fd, 4096)
    except OSError:
        return None
    finally:
        os.close(fd)
    # The command's name is in parentheses and may itself hold some.
    return Stat(text[text.rindex(b")") + 2 :].decode("ascii").split())


def start_of(pid: int) -> int:
    """When it started, in ticks since boot; with the pid, the identity of a process."""
    found = stat(pid)
    return found.start if found else 0


def lives(pid: int, start: int) -> bool:
    found = stat(pid)
    return found is not None and found.start == start and found.state != "Z"


def began_at(pid: int) -> float:
    """When it started, as `time.time` would have told, but for a few ticks."""
    uptime = float(read_text("/proc/uptime").split()[0])
    return time.time() - uptime + start_of(pid) / TICKS


def children(pid: int) -> "list[int]":
    found = []
    try:
        for task in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/children" % (pid, task)) as file:
                found += [int(child) for child in file.read().split()]
    except OSError:
        pass
    return found


def children_of_ours() -> "list[int]":
    """Also those that have ended and were not waited for."""
    if HAS_CHILDREN_FILE:
        return children(os.getpid())
    seen = [(pid, stat(pid)) for pid in all_pids()]
    return [pid for pid, facts in seen if facts is not None and facts.parent == os.getpid()]


def below(pid: int) -> "list[int]":
    """Every living descendant of `pid`."""
    if not HAS_CHILDREN_FILE:
        return below_by_parents(pid)
    found = []
    todo = children(pid)
    while todo:
        child = todo.pop()
        found.append(child)
        todo += children(child)
    return [child for child in found if is_alive(child)]


def below_by_parents(pid: int) -> "list[int]":
    parents: "dict[int, list[int]]" = {}
    for other in all_pids():
        facts = stat(other)
        if facts is not None:
            parents.setdefault(facts.parent, []).append(other)
    found = []
    todo = list(parents.get(pid, ()))
    while todo:
        child = todo.pop()
        found.append(child)
        todo += parents.get(child, ())
    return [child for child in found if is_alive(child)]


def usage_of(pids: "Iterable[int]") -> "Message":
    """What these use now."""
    seen = [(pid, stat(pid)) for pid in pids]
    found = [(pid, facts) for pid, facts in seen if facts is not None and facts.state != "Z"]
    return {
        "rss_mb": sum(facts.rss_kb for _, facts in found) // 1024,
        "cpu_s": round(sum(facts.cpu_s for _, facts in found), 2),
        "pids": [pid for pid, _ in found],
    }


def is_alive(pid: int) -> bool:
    found = stat(pid)
    return found is not None and found.state != "Z"


def all_pids() -> "list[int]":
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def marked(key: str, session: int = 0) -> "list[int]":
    """Every living process with the job's mark or in its session, whoever its parent is."""
    mark = ("%s=%s" % (MARK, key)).encode("ascii")
    found = []
    for pid in all_pids():
        facts = stat(pid)
        if facts is None or facts.state == "Z":
            continue
        if (session and facts.session == session) or mark in environment(pid):
            found.append(pid)
    return found


def environment(pid: int) -> "list[bytes]":
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def may_look_into(pid: int) -> bool:
    """Whether its environment can be read; not where a program has other rights than we have."""
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            file.read(1)
    except PermissionError:
        return False
    except OSError:
        pass
    return True


class Takedown:
    """TERM to everything `find` names, KILL to what is left after the grace."""

    #: How often to look again when nothing wakes us.
    LOOK_S = 0.1

    def __init__(
        self, group: int, grace_s: float, find: "Callable[[], list[int]]", now: float
    ) -> None:
        self.group = group
        self.kill_at = now + max(0.0, grace_s)
        self.find = find
        self.asked: "set[int]" = set()
        self.killed = False

    def step(self, now: float) -> "float | None":
        """Signal what there is; the seconds until the next step, or None when nothing is left."""
        found = self.find()
        if not found:
            return None
        if now >= self.kill_at:
            self.killed = True
            for pid in found:
                send(pid, signal.SIGKILL)
            return self.LOOK_S
        self.ask([pid for pid in found if pid not in self.asked])
        self.asked.update(found)
        return min(self.kill_at - now, 1.0)

    def ask(self, pids: "list[int]") -> None:
        # The whole group in one call, so that none slips through by forking; nobody gets it twice.
        in_group = [pid for pid in pids if group_of(pid) == self.group]
        if in_group and not self.asked:
            try:
                os.killpg(self.group, signal.SIGTERM)
            except OSError:
                pass
        elif in_group:
            for pid in in_group:
                send(pid, signal.SIGTERM)
        for pid in set(pids).difference(in_group):
            send(pid, signal.SIGTERM)


def group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


def send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass
