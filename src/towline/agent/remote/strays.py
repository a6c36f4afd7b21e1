"""Running jobs without a supervisor of ours: another agent's, or its supervisor was killed.

The command of a supervisor that was killed is its agent's own child from then on, and nobody else
can learn how it ends: that agent takes the supervisor's place. It locks the record, and when it has
to leave before the command ends, it becomes a supervisor altogether (guardian.py).
"""

import json
import os
import signal
import time

from . import descendants, endings, machine, record
from .states import began, from_status, look, lost, result_of, settle

LOCK_EVERY_S = 0.5
PID_EVERY_S = 1.0


class Stray:
    """One such job; `result` comes only if its command is our own child now."""

    def __init__(self, job, seen, spec):
        self.job = job
        self.supervised = seen.supervised
        self.pid = seen.pid
        self.start = seen.start
        self.timer = None
        self.spec = spec
        self.cause = ""
        self.text = ""
        self.takedown = None
        self.result = None
        #: Its locked `life`, where we are in the place of its supervisor.
        self.life = None


class Strays:
    def __init__(self, loop, home, has_started, has_ended):
        self.loop = loop
        self.home = home
        self.has_started = has_started
        self.has_ended = has_ended
        self.strays: "dict[str, Stray]" = {}

    def has(self, job):
        return job.key in self.strays

    def watch(self, job, seen, life=None):
        """`life`: its locked record, where that is ours already."""
        spec = record.read_spec(self.home.record(job.key)) or {}
        stray = Stray(job, seen, spec)
        stray.life = life
        self.strays[job.key] = stray
        self.guard(stray)
        self.again(stray, LOCK_EVERY_S)

    def guarded(self):
        """Key -> locked `life` of the jobs in whose supervisors' place we are."""
        found = self.strays.items()
        return {key: stray.life for key, stray in found if stray.life is not None}

    def guard(self, stray):
        """Take the place of a supervisor that was killed, where the command is our own child."""
        if stray.life is not None or stray.supervised or not stray.pid:
            return
        facts = descendants.stat(stray.pid)
        if facts is None or facts.parent != os.getpid():
            return
        fd = record.open_life(self.home.record(stray.job.key), create=False)
        if fd is None:
            return
        if not record.lock(fd):  # somebody just looks at it
            os.close(fd)
            return
        stray.life = fd
        life = record.read_life(fd)
        spec = json.dumps(life.pop("spec", {})).encode("ascii")
        life.update(machine.who_we_are(), pid=stray.pid, start=stray.start, started=began(life))
        try:
            record.write_life(fd, life, spec)
        except OSError:
            pass  # then a stop that comes from elsewhere is seen later

    def again(self, stray, seconds):
        self.loop.cancel(stray.timer)
        stray.timer = self.loop.later(seconds, lambda: self.check(stray))

    def check(self, stray):
        """Look at one; called again until it has ended."""
        job = stray.job
        if self.strays.get(job.key) != stray:
            return
        if not stray.supervised and stray.pid:
            self.check_alone(stray)
            return
        never = endings.ending("void", "its supervisor was killed before it started")
        seen = look(self.home, job.key, self.loop.recent, never)
        if seen.state == "ended":
            self.end(stray, seen.ending)
            return
        if seen.started and not job.started and not seen.host:
            self.has_started(job, seen)
        job.held, job.started, job.host = seen.state == "held", seen.started, seen.host
        job.pid = 0 if seen.host else seen.pid
        lost_its_supervisor = stray.supervised and not seen.supervised
        stray.supervised, stray.pid, stray.start = seen.supervised, seen.pid, seen.start
        if lost_its_supervisor and stray.pid and job.stopping is not None:
            self.stop(job, *job.stopping)
            return
        self.again(stray, LOCK_EVERY_S if stray.supervised else descendants.Takedown.LOOK_S)

    def check_alone(self, stray):
        """Do what its supervisor would have done: the time limit, and nothing left behind."""
        now = time.monotonic()
        self.guard(stray)
        self.look_for_stop(stray, now)
        limit = stray.spec.get("time_s", 0)
        if stray.result is None:
            stray.result = result_of(stray.pid)
        gone = stray.result is not None or not descendants.lives(stray.pid, stray.start)
        if not gone and limit and not stray.cause and time.time() > stray.job.started + limit:
            stray.cause, stray.text = "timeout", "ran longer than its limit of %g s" % limit
            self.take_down(stray, stray.spec.get("grace_s", 10), now)
        if gone and stray.takedown is None:
            self.take_down(stray, stray.spec.get("grace_s", 10), now)
        left = stray.takedown.step(now) if stray.takedown is not None else PID_EVERY_S
        if gone and left is None:
            self.settle(stray)
        else:
            self.again(stray, descendants.Takedown.LOOK_S if left is None else left)

    def look_for_stop(self, stray, now):
        """Another agent asks for it through a file, as of any supervisor."""
        if stray.life is None:
            return
        grace_s = record.asked_to_stop(self.home.record(stray.job.key))
        if grace_s is not None:
            stray.cause = stray.cause or "stopped"
            self.take_down(stray, grace_s, now)

    def take_down(self, stray, grace_s, now):
        if stray.takedown is None:
            find = lambda: descendants.marked(stray.job.key, stray.pid)  # noqa: E731
            stray.takedown = descendants.Takedown(stray.pid, grace_s, find, now)
        stray.takedown.kill_at = min(stray.takedown.kill_at, now + grace_s)

    def settle(self, stray):
        """Write the ending, unless somebody else did meanwhile."""
        place = self.home.place(stray.job.key)
        end = record.read_exit(place.record)
        if stray.life is None and end is None:
            fd = record.open_life(place.record, create=False)
            if fd is not None and record.lock(fd):
                stray.life = fd
            elif fd is not None:
                os.close(fd)
        if stray.life is not None and end is None:
            life = record.read_life(stray.life)
            end = settle(place, stray.life, self.ending(stray, place, life), life).ending
        if end is None:
            self.again(stray, LOCK_EVERY_S)
        else:
            self.end(stray, end)

    def ending(self, stray, place, life):
        if stray.result is not None:
            end = from_status(place, life, *stray.result)
        else:
            end = lost(place, life, "its supervisor was killed, so its exit code is not known")
        if stray.cause:
            end["cause"], end["text"] = stray.cause, stray.text
        return end

    def end(self, stray, end):
        del self.strays[stray.job.key]
        if stray.life is not None:
            os.close(stray.life)
        self.has_ended(stray.job.key, end)

    def children_ended(self, ended):
        for stray in list(self.strays.values()):
            if stray.supervised or stray.result is not None or stray.pid not in ended:
                continue
            stray.result = ended[stray.pid]
            self.again(stray, 0.0)

    def stop(self, job, grace_s):
        stray = self.strays[job.key]
        if grace_s is None:
            grace_s = stray.spec.get("grace_s", 10)
        if stray.supervised:
            record.write_whole(self.home.record(job.key) + "/stop", b"%f" % grace_s)
            self.nudge(job)
            return
        stray.cause = stray.cause or "stopped"
        self.take_down(stray, grace_s, time.monotonic())
        self.again(stray, 0.0)

    def nudge(self, job):
        """Have another agent's supervisor look at its folder; the lock proves its pid, unless it is
        another machine's: there it looks by itself, after a while."""
        fd = record.open_life(self.home.record(job.key), create=False)
        if fd is None:
            return
        try:
            life = record.read_life(fd)
            pid = life.get("supervisor", 0)
            if pid and not machine.is_another(life.get("identity")) and not record.lock(fd):
                descendants.send(pid, signal.SIGUSR1)
        finally:
            os.close(fd)
