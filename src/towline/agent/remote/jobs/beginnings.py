"""What a supervisor that was killed around the start of its command had come to.

It notes that it is about to start the command, starts it, and notes the command's number. Killed in
between, it leaves a record that does not say whether there is a command. Whoever started the
supervisor knows: what a process leaves behind becomes the child of that one in the moment it dies.
"""

import os

from .. import machine
from ..commands import process_tree
from ..records import record
from ..records.status import find_unnamed, is_elsewhere

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from ..home import Home
    from ..loop import Loop
    from ..typed import Message, Reaped

#: What the clocks that tell when a process began may differ by.
CLOCK_ERROR_S = 0.05
#: As a process is called that has not become the command yet.
SUPERVISOR = "tow-supervisor"


class Beginnings:
    """`known()` are the children that are something else; `bereft()` the jobs whose supervisors are
    dead, while it may not be known what these started."""

    def __init__(
        self,
        loop: "Loop",
        home: "Home",
        known: "Callable[[], set[int]]",
        bereft: "Callable[[], set[str]]",
    ) -> None:
        self.loop = loop
        self.home = home
        self.known = known
        self.bereft = bereft
        #: Children that ended, that nobody knew, and that led a session, as every command does ->
        #: when they began.
        self.leaders: "dict[int, float]" = {}
        loop.before_reaping.append(self.look_at)
        loop.children_ended.append(self.forget_old)

    def look_at(self, pid: int) -> None:
        """At a child that has ended; its number may have been another's before."""
        self.leaders.pop(pid, None)
        if machine.leads_session(pid) and pid not in self.known():
            self.leaders[pid] = process_tree.began_at(pid)

    def forget_old(self, _ended: "Reaped") -> None:
        """How those ended is not known any more."""
        self.leaders = {pid: at for pid, at in self.leaders.items() if pid in self.loop.recent}

    def settle(self, key: str) -> None:
        """Complete the record of `key`, where its supervisor was ours and it can be said by now."""
        folder = self.home.record(key)
        fd = None if is_elsewhere(folder) else record.open_life(folder, create=False)
        if fd is None:
            return
        try:
            # Somebody else may look at it just now: then another time.
            if record.lock(fd) and record.is_current(folder, fd):
                self.complete(key, fd)
        finally:
            os.close(fd)

    def complete(self, key: str, fd: int) -> None:
        life = record.read_life(fd)
        self.leaders.pop(life.get("pid", 0), None)
        if not self.is_unclear(life) or self.may_be_alive(key, life):
            return
        unknown = self.ended_unknown()
        # Clocks may be wrong: that only those which began later may be it, does not mean that none
        # is.
        begun = [pid for pid in unknown if self.leaders[pid] >= life["spawning"] - CLOCK_ERROR_S]
        if not unknown:
            del life["spawning"]  # there never was one: the job can be begun again
        elif len(begun) == 1 and not any(map(self.is_unclear_of, self.bereft() - {key})):
            (pid,) = begun
            del self.leaders[pid]
            status = self.loop.recent[pid][0]
            life.update(pid=pid, start=0, started=life["spawning"], status=status)
        else:
            return
        try:
            record.rewrite(fd, life)
        except OSError:
            pass  # it cannot be written down: then its end is not known

    def is_unclear(self, life: "Message") -> bool:
        """Whether it was about to start, under a supervisor of ours that is dead."""
        return (
            "spawning" in life
            and "pid" not in life
            and life.get("boot") == machine.boot_id()
            and life.get("supervisor") in self.loop.recent
        )

    def is_unclear_of(self, key: str) -> bool:
        return self.is_unclear(record.read(self.home.record(key)))

    def may_be_alive(self, key: str, life: "Message") -> bool:
        """Whether a child of ours may be it, or bears the job's mark and will be found by that."""
        found = dict(life)
        find_unnamed(key, found)
        known = self.known()
        unknown = [pid for pid in process_tree.children_of_ours() if pid not in known]
        return "pid" in found or any(map(may_be_command, unknown))

    def ended_unknown(self) -> "list[int]":
        """Children that ended, of which nobody knows what they were."""
        known = self.known()
        return [pid for pid in self.leaders if pid not in known]


def may_be_command(pid: int) -> bool:
    """Every command leads a session of its own, or has not come so far."""
    name = machine.read_text("/proc/%d/comm" % pid).strip()
    return machine.leads_session(pid) or name == SUPERVISOR
