"""Running jobs without a supervisor of ours: another agent's, or its supervisor was killed."""

import os
import signal
import time

from . import descendants, endings, machine, record
from .states import from_status, look, lost, result_of, settle

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


class Strays:
    def __init__(self, loop, home, has_started, has_ended):
        self.loop = loop
        self.home = home
        self.has_started = has_started
        self.has_ended = has_ended
        self.strays: "dict[str, Stray]" = {}

    def has(self, job):
        return job.key in self.strays

    def watch(self, job, seen):
        spec = record.read_spec(self.home.record(job.key)) or {}
        stray = Stray(job, seen, spec)
        self.strays[job.key] = stray
        self.again(stray, LOCK_EVERY_S)

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

    def take_down(self, stray, grace_s, now):
        if stray.takedown is None:
            find = lambda: descendants.marked(stray.job.key, stray.pid)  # noqa: E731
            stray.takedown = descendants.Takedown(stray.pid, grace_s, find, now)
        stray.takedown.kill_at = min(stray.takedown.kill_at, now + grace_s)

    def settle(self, stray):
        """Write the ending, unless somebody else did meanwhile."""
        place = self.home.place(stray.job.key)
        end = record.read_exit(place.record)
        fd = record.open_life(place.record, create=False)
        try:
            if end is None and fd is not None and record.lock(fd):
                life = record.read_life(fd)
                end = settle(place, fd, self.ending(stray, place, life), life).ending
        finally:
            if fd is not None:
                os.close(fd)
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
