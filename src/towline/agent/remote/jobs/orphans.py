"""Running jobs without a supervisor of ours: another agent's, or its supervisor was killed.

The command of a supervisor that was killed is its agent's own child from then on, and nobody else
can learn how it ends: that agent takes the supervisor's place. It locks the record, and when it has
to leave before the command ends, it becomes a supervisor altogether (guardian.py).
"""

import os
import signal
import time

from .. import machine
from ..commands import process_tree
from ..records import endings, record
from ..records.status import (
    HEIR_S,
    UNTOLD,
    began,
    fate,
    from_status,
    heir_lives,
    look,
    lost,
    settle,
)
from .beginnings import Beginnings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..home import Home, JobPlace
    from ..loop import Loop
    from ..records.status import Seen
    from ..typed import Ending, Message, Reaped, Spec, Timer
    from .known_job import KnownJob

LOCK_EVERY_S = 0.5
PID_EVERY_S = 1.0
#: So long whoever may know how a command ended has to write it down, where nobody is known to. One
#: that nobody has waited for may have a parent that is busy, or one that never does.
UNTOLD_S = 1.0
UNREAPED_S = 10.0


class Orphan:
    """One such job; `result` comes only if its command is our own child now."""

    def __init__(self, job: "KnownJob", seen: "Seen", spec: "Spec") -> None:
        self.job = job
        self.supervised = seen.supervised
        self.pid = seen.pid
        self.start = seen.start
        self.timer: "Timer | None" = None
        self.spec = spec
        self.cause = ""
        self.text = ""
        self.takedown: "process_tree.Takedown | None" = None
        self.result: "tuple[int, Any] | None" = None
        #: Since when it is over, while nobody has said how it ended.
        self.untold_since: "float | None" = None
        #: Its locked `life`, where we are in the place of its supervisor.
        self.life: "Any" = None


class Orphans:
    def __init__(
        self,
        loop: "Loop",
        home: "Home",
        has_started: "Callable[[KnownJob, Seen], None]",
        has_ended: "Callable[[str, Ending], None]",
        left_behind: "Callable[[str], object]",
        supervisors: "Callable[[], dict[int, str]]",
    ) -> None:
        self.loop = loop
        self.home = home
        self.has_started = has_started
        self.has_ended = has_ended
        #: Told of each that ended: there may be something to collect.
        self.left_behind = left_behind
        #: Those of ours -> their jobs, or "".
        self.supervisors = supervisors
        self.orphans: "dict[str, Orphan]" = {}
        self.beginnings = Beginnings(loop, home, self.known_children, self.bereft)

    def has(self, job: "KnownJob") -> bool:
        return job.key in self.orphans

    def watch(self, job: "KnownJob", seen: "Seen") -> None:
        orphan = self.add(job, seen)
        self.guard(orphan)
        self.again(orphan, LOCK_EVERY_S)

    def add(self, job: "KnownJob", seen: "Seen") -> "Orphan":
        spec = record.read_spec(self.home.record(job.key)) or {}
        orphan = self.orphans[job.key] = Orphan(job, seen, spec)
        return orphan

    # For whoever finds out what a killed supervisor had started

    def known_children(self) -> "set[int]":
        named = {orphan.pid for orphan in self.orphans.values()}
        return named.union(self.supervisors(), self.loop.ours)

    def bereft(self) -> "set[str]":
        dead = {key for pid, key in self.supervisors().items() if pid in self.loop.recent}
        unnamed = {key for key, orphan in self.orphans.items() if not orphan.pid}
        return (dead | unnamed) - {""}

    # From an agent that leaves to the guardian that it becomes

    def left_to_us(self) -> "list[Message]":
        """What there is to know of each job whose end nobody but us can see."""
        return [
            self.about(orphan) for orphan in self.orphans.values() if self.is_left_to_us(orphan)
        ]

    def is_left_to_us(self, orphan: "Orphan") -> bool:
        if orphan.job.host:
            return False
        is_ours = self.guard(orphan)
        if orphan.result is None:
            self.is_over(orphan)
        is_unnamed = not orphan.pid and not orphan.supervised
        return is_ours or is_unnamed or orphan.life is not None or orphan.result is not None

    def about(self, orphan: "Orphan") -> "Message":
        takedown, result = orphan.takedown, orphan.result
        return {
            "key": orphan.job.key,
            "life": orphan.life,
            "pid": orphan.pid,
            "start": orphan.start,
            "status": result[0] if result is not None else None,
            "cause": orphan.cause,
            "text": orphan.text,
            "kill_in": takedown.kill_at - time.monotonic() if takedown is not None else None,
        }

    def take_up(self, job: "KnownJob", seen: "Seen", about: "Message") -> None:
        """Go on with what `about` told, in the same process."""
        orphan = self.add(job, seen)
        orphan.life = about["life"]
        orphan.cause, orphan.text = about["cause"], about["text"]
        if about["status"] is not None:
            orphan.result = (about["status"], None)
        if about["kill_in"] is not None:
            self.take_down(orphan, about["kill_in"], time.monotonic())
        self.again(orphan, 0.0)

    # In the place of a supervisor

    def guard(self, orphan: "Orphan") -> bool:
        """Take the place of a supervisor that was killed, where the command is our own child, and
        tell whether it is."""
        facts = process_tree.stat(orphan.pid) if orphan.pid else None
        if facts is None or facts.start != orphan.start or facts.parent != os.getpid():
            return False
        # Whoever seemed to be it only looked.
        orphan.supervised = False
        locked = orphan.life is None and self.lock(orphan)
        if locked:
            life = record.read_life(orphan.life)
            self.note(orphan, machine.who_we_are(), pid=orphan.pid, start=orphan.start,
                      started=began(life))  # fmt: skip
        return True

    def lock(self, orphan: "Orphan") -> bool:
        """Have its record to ourselves; False while somebody else looks at it, and when it is over
        since."""
        folder = self.home.record(orphan.job.key)
        fd = record.open_life(folder, create=False)
        if fd is None:
            return False
        if not record.lock(fd) or not record.is_current(folder, fd):
            os.close(fd)
            return False
        orphan.life = fd
        return True

    def note(self, orphan: "Orphan", *several: "Any", **facts: "Any") -> None:
        """Write down what others must know should we be killed, too."""
        life = record.read_life(orphan.life)
        life.update(*several, **facts)
        try:
            record.rewrite(orphan.life, life)
        except OSError:
            pass  # then a stop that comes from elsewhere is seen later

    def is_over(self, orphan: "Orphan") -> bool:
        """Whether its command is; how it ended is remembered, where we can know it."""
        over, result = fate(orphan.pid, orphan.start, self.loop.recent)
        if result is not None:
            self.learn(orphan, result)
        return over

    def learn(self, orphan: "Orphan", result: "tuple[int, Any]") -> None:
        orphan.result = result
        if orphan.life is not None:
            self.note(orphan, status=result[0])

    def again(self, orphan: "Orphan", seconds: float) -> None:
        self.loop.cancel(orphan.timer)
        orphan.timer = self.loop.later(seconds, lambda: self.check(orphan))

    def check(self, orphan: "Orphan") -> None:
        """Look at one; called again until it has ended."""
        job = orphan.job
        if self.orphans.get(job.key) != orphan:
            return
        if not orphan.supervised and orphan.pid:
            self.check_alone(orphan)
            return
        never = endings.ending("void", "its supervisor was killed before it started")
        self.beginnings.settle(job.key)
        seen = look(self.home, job.key, self.loop.recent, never)
        if seen.state == "ended":
            self.end(orphan, seen.ending)
            return
        if seen.started and not job.started and not seen.host:
            self.has_started(job, seen)
        job.held, job.started, job.host = seen.state == "held", seen.started, seen.host
        job.pid = 0 if seen.host else seen.pid
        lost_its_supervisor = orphan.supervised and not seen.supervised
        orphan.supervised, orphan.pid, orphan.start = seen.supervised, seen.pid, seen.start
        if lost_its_supervisor and orphan.pid and job.stopping is not None:
            self.stop(job, *job.stopping)
            return
        self.again(orphan, LOCK_EVERY_S if orphan.supervised else process_tree.Takedown.LOOK_S)

    def check_alone(self, orphan: "Orphan") -> None:
        """Do what its supervisor would have done: the time limit, and nothing left behind."""
        now = time.monotonic()
        self.guard(orphan)
        self.look_for_stop(orphan, now)
        limit = orphan.spec.get("time_s", 0)
        over = orphan.result is not None or self.is_over(orphan)
        if not over and limit and not orphan.cause and time.time() > orphan.job.started + limit:
            orphan.cause, orphan.text = "timeout", "ran longer than its limit of %g s" % limit
            self.take_down(orphan, orphan.spec.get("grace_s", 10), now)
        if over:
            self.take_down(orphan, orphan.spec.get("grace_s", 10), now)
        left = orphan.takedown.step(now) if orphan.takedown is not None else PID_EVERY_S
        if over and left is None and not self.may_be_told(orphan, now):
            self.settle(orphan)
        else:
            self.again(orphan, process_tree.Takedown.LOOK_S if left is None else left)

    def may_be_told(self, orphan: "Orphan", now: float) -> bool:
        """Whether another may still write down how a command ended of which we cannot know it."""
        folder = self.home.record(orphan.job.key)
        if orphan.result is not None or record.read_exit(folder):
            return False
        if orphan.untold_since is None:
            orphan.untold_since = now
        patience = UNTOLD_S
        if heir_lives(record.read(folder)):
            patience = HEIR_S
        elif process_tree.stat(orphan.pid) is not None:
            patience = UNREAPED_S
        return now - orphan.untold_since < patience

    def look_for_stop(self, orphan: "Orphan", now: float) -> None:
        """Another agent asks for it through a file, as of any supervisor."""
        if orphan.life is None:
            return
        grace_s = record.asked_to_stop(self.home.record(orphan.job.key))
        if grace_s is not None:
            orphan.cause = orphan.cause or "stopped"
            self.take_down(orphan, grace_s, now)

    def take_down(self, orphan: "Orphan", grace_s: float, now: float) -> None:
        if orphan.takedown is None:
            find = lambda: process_tree.marked(orphan.job.key, orphan.pid)  # noqa: E731
            orphan.takedown = process_tree.Takedown(orphan.pid, grace_s, find, now)
        orphan.takedown.kill_at = min(orphan.takedown.kill_at, now + grace_s)

    def settle(self, orphan: "Orphan") -> None:
        """Write the ending, unless somebody else did meanwhile."""
        place = self.home.place(orphan.job.key)
        if orphan.life is None:
            self.lock(orphan)
        end = record.read_exit(place.record)
        if end is None and orphan.life is not None:
            life = record.read_life(orphan.life)
            end = settle(place, orphan.life, self.ending(orphan, place, life), life).ending
        if end is None:
            self.again(orphan, LOCK_EVERY_S)
        else:
            self.end(orphan, end)

    def ending(self, orphan: "Orphan", place: "JobPlace", life: "Message") -> "Ending":
        if orphan.result is not None:
            end = from_status(place, life, *orphan.result)
        else:
            end = lost(place, life, UNTOLD)
        if orphan.cause:
            end["cause"], end["text"] = orphan.cause, orphan.text
        return end

    def end(self, orphan: "Orphan", end: "Ending") -> None:
        del self.orphans[orphan.job.key]
        if orphan.life is not None:
            os.close(orphan.life)
        self.has_ended(orphan.job.key, end)
        self.left_behind(orphan.job.key)

    def children_ended(self, ended: "Reaped") -> None:
        for orphan in list(self.orphans.values()):
            if orphan.supervised or orphan.result is not None or orphan.pid not in ended:
                continue
            self.learn(orphan, ended[orphan.pid])
            self.again(orphan, 0.0)

    def stop(self, job: "KnownJob", grace_s: "float | None") -> None:
        orphan = self.orphans[job.key]
        if grace_s is None:
            grace_s = orphan.spec.get("grace_s", 10)
        if orphan.life is None:
            # Whoever has its record is to know why it ends.
            record.write_whole(self.home.record(job.key) + "/stop", b"%f" % grace_s)
        if orphan.supervised:
            self.nudge(job)
            return
        orphan.cause = orphan.cause or "stopped"
        self.take_down(orphan, grace_s, time.monotonic())
        self.again(orphan, 0.0)

    def nudge(self, job: "KnownJob") -> None:
        """Have another agent's supervisor look at its folder; the lock proves its pid, unless it is
        another machine's: there it looks by itself, after a while."""
        fd = record.open_life(self.home.record(job.key), create=False)
        if fd is None:
            return
        try:
            life = record.read_life(fd)
            pid = life.get("supervisor", 0)
            if pid and not machine.is_another(life.get("identity")) and not record.lock(fd):
                process_tree.send(pid, signal.SIGUSR1)
        finally:
            os.close(fd)
