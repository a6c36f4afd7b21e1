"""What a queue runs on a node: one attempt of a job, as a supervisor would run it.

The files it writes are the truth about the job. It runs an attempt once, whatever the queue does:
the first run to make the `claim` counts. Only the same entry of the queue, started again by the
queue itself, may go on.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

from ..home import Home
from ..records import record
from ..run.supervisor import Supervisor
from . import rendezvous, site

LOOK_S = 0.5
SELDOM_S = site.SELDOM_S
#: So often a wish to stop is seen before it is followed without the queue: it may be slow.
LOOKS_BEFORE_STOP = 3
#: Exit code where the folder with the job cannot be seen.
GONE = 97
EVICTED = site.TITLE + " stopped it: cancelled, preempted, or its node went away"


class Attempt:
    """The attempt as it was handed over, and which run of it this is; of an array, one task."""

    def __init__(self, root, key):
        self.home = Home(root)
        self.order = json.loads(read(self.home.handed(key) + "/order"))
        if self.order.get("environ"):
            site.take_environ(self.home.handed(key))
        self.array = key if self.order.get("array") else ""
        self.id = site.entry(bool(self.array))
        if self.array:
            key = json.loads(read(self.home.handed(key) + "/tasks")).get(site.task(), "")
        self.key = key
        self.folder = self.home.handed(key)
        #: Counts how often the queue started it again.
        self.run = site.restarts(self.claimed_run)
        self.began = float(os.environ.setdefault("TOWLINE_BEGAN", "%f" % time.time()))

    def claimed_run(self):
        """Which run of this very entry has the claim; None where none does."""
        try:
            with open(self.folder + "/claim", "rb") as file:
                words = file.read().split()
        except OSError:
            return None
        mine = len(words) > 1 and words[0] == self.id.encode()
        return int(words[1]) if mine else None

    def claim(self):
        """True when this run is the one that counts."""
        path = self.folder + "/claim"
        mine = b"%s %d %s\n" % (self.id.encode(), self.run, self.array.encode())
        return record.write_first(path, mine) or self.claim_again(path, mine)

    def is_superseded(self):
        """The queue started it again while this run went on, cut off perhaps."""
        run = self.claimed_run()
        return run is not None and run > self.run

    def claim_again(self, path, mine):
        with open(path, "rb") as file:
            words = file.read().split()
        if len(words) < 2 or words[0] != self.id.encode() or int(words[1]) >= self.run:
            return False
        record.write_whole(path, mine)
        return True

    def rank_key(self, rank):
        return "%s-%d" % (self.key, rank)

    def asked_to_stop(self):
        """The grace to stop with, in a list: None is the job's own; nothing while it may run."""
        # Listed, not looked for: a network file system may remember what was not there.
        names = os.listdir(self.folder)
        return [0.0 if "now" in names else None] if "stop" in names else []

    def stop_word(self):
        """Why all its processes are to stop, where that was us."""
        try:
            with open(self.folder + "/stop") as file:
                return file.read().strip() or "stopped"
        except OSError:
            return ""


class Runner(Supervisor):
    """The supervisor of one process; it tells of it by files instead of a channel."""

    def __init__(self, attempt, rank):
        self.attempt = attempt
        self.rank = rank
        self.again = ""
        #: Another run of the same entry counts now: this one leaves nothing behind.
        self.superseded = False
        self.look_at = 0.0
        self.stop_looks = LOOKS_BEFORE_STOP
        self.found = {}
        self.ours, theirs = socket.socketpair()
        super().__init__(attempt.home, theirs)
        self.poll.unregister(theirs)
        self.agent_gone = True
        self.listen_for(attempt.order.get("signal") or "")

    def listen_for(self, name):
        """Pass a signal that the queue was asked to send on to the command."""
        word = name.partition("@")[0]
        number = (
            int(word) if word.isdigit() else getattr(signal, "SIG" + word, None) if word else None
        )
        if number:
            signal.signal(number, lambda *_: self.pass_on(number))
        else:
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)

    def pass_on(self, number):
        for pid in children():
            try:
                os.kill(pid, number)
            except OSError:
                pass

    # As a supervisor does it, with other words

    def wait(self, seconds):
        """Look at times whether we are to stop: for several processes a queue would kill their step
        at once, and one of a controller that was killed may be unknown to it."""
        several = self.attempt.order["processes"] > 1
        every_s = LOOK_S if several else site.LOOK_S
        super().wait(every_s if seconds is None else min(seconds, every_s))
        if self.key and time.monotonic() >= self.look_at:
            self.look_at = time.monotonic() + every_s
            for grace_s in self.attempt.asked_to_stop():
                # The queue's own cancel has the first turn: then it knows that it was cancelled.
                if self.stop_looks <= 0 or every_s < SELDOM_S or grace_s is not None:
                    self.stop(grace_s)
                self.stop_looks -= 1
            if not self.superseded and self.attempt.is_superseded():
                self.superseded = True
                self.stop(0.0)

    def terminated(self):
        """It may come before the job has begun, and only this one job ever will."""
        self.early_stops[self.attempt.rank_key(self.rank)] = None
        self.look_at, self.stop_looks = 0.0, 0
        super().terminated()

    def claim(self):
        """An attempt is claimed as a whole, before; one that has ended is not run again."""
        self.record = self.home.record(self.key)
        for folder in (self.record, self.folder):
            os.makedirs(folder, 0o700, exist_ok=True)
        if record.read_exit(self.record) is not None:
            return None
        life = record.open_life(self.record, create=True)
        try:
            record.lock(life)
        except OSError:
            pass  # not every shared file system has locks, and nobody relies on this one
        if os.path.exists(self.record + "/again"):
            os.unlink(self.record + "/again")
        shutil.rmtree(self.folder + "/src", ignore_errors=True)
        return life

    def make_folders(self, spec):
        """What an earlier run kept is carried over."""
        keep = self.folder + "/keep"
        before = keep + ".before"
        if os.path.isdir(keep):
            os.rename(keep, before)
        carried = os.path.isdir(before)
        super().make_folders(dict(spec, keep="") if carried else spec)
        if carried:
            os.rmdir(keep)
            os.rename(before, keep)

    def prepare(self, life, spec, raw):
        super().prepare(life, spec, raw)
        self.found = rendezvous.meet(self)
        if spec["time_s"]:
            # The queue counts from the start of the whole, not of the command.
            spec["time_s"] = max(1.0, spec["time_s"] - (time.time() - self.attempt.began))

    def environ(self, spec):
        environ = super().environ(spec)
        given = self.attempt.order.get("given") or ()
        for name, value in self.found.items():
            if name not in given:
                environ[name.encode()] = value.encode("utf-8", "surrogateescape")
        environ.pop(b"TOWLINE_BEGAN", None)
        rendezvous.own_tmp(environ)
        return environ

    def given(self, spec):
        found = {name.encode() for name in self.found}
        return site.variables().union(super().given(spec), found, [b"TMPDIR"])

    def keep(self, life, end, raw):
        if self.superseded:
            return
        if self.was_stopped(end):
            self.explain_stop(end)
        self.again = self.goes_on(end["cause"])
        if self.again:
            record.write_whole(self.record + "/again", json.dumps(end).encode("ascii"))
        else:
            super().keep(life, end, raw)

    def was_stopped(self, end):
        """A queue signals all processes of a job at once, so the command may be gone before us."""
        order = self.attempt.order
        asked = self.stop_grace is not None and end["started"] and not end["cause"]
        may_go_on = order.get("requeue") or order.get("on_timeout")
        return end["cause"] == "stopped" or (asked and (may_go_on or end["code"] != 0))

    def goes_on(self, cause):
        order = self.attempt.order
        if cause == "timeout" and order.get("on_timeout") == "resubmit":
            return "timeout"
        return "evicted" if cause == "evicted" and order.get("requeue") else ""

    def explain_stop(self, end):
        """Somebody sent TERM: us, or the queue for a reason of its own."""
        word = self.attempt.stop_word()
        if word:
            end["cause"], end["text"] = "stopped", word
            return
        limit = self.attempt.order.get("time_s") or 0
        if (
            time.time() >= self.attempt.began + limit - 1
            if limit
            else site.ran_out(self.attempt.id)
        ):
            end["cause"], end["text"] = "timeout", "stopped at its time limit"
        else:
            end["cause"], end["text"] = "evicted", EVICTED

    def tell(self, **message):
        if self.superseded:
            return
        if "started" in message:
            where = {"state": "running", "started": message["started"][1]}
            self.say(0, where)
        if "ended" in message and self.again:
            self.say(1, {"state": "waiting", "why": self.again})
        elif "ended" in message:
            self.say(1, {"state": "ended"})

    def say(self, number, where):
        """Write down where it stands, then tell that there is something to read."""
        run = self.attempt.run
        where.update(node=rendezvous.node_name(), run=run)
        try:
            record.write_whole(self.record + "/where", json.dumps(where).encode("ascii"))
            name = "%s.%d" % (self.key, 2 * run + number)
            record.write_whole(self.home.news(self.key) + "/" + name, b"")
        except OSError:
            pass  # whoever asks for it finds the ending all the same

    def result(self):
        """The exit code that the queue sees."""
        end = record.read_exit(self.record) or {}
        if end.get("signal"):
            return 128 + end["signal"]
        return site.exit_code(end["code"]) if end.get("code") is not None else 1


def run_rank(attempt, rank):
    runner = Runner(attempt, rank)
    key = attempt.rank_key(rank)
    spec = record.read_spec(attempt.home.record(key))
    if spec is None:
        sys.stderr.write("towline: the folder of job %s is gone\n" % key)
        return GONE
    runner.run(key, json.dumps(spec).encode("ascii"))
    return 0 if runner.again else runner.result()


class Steps:
    """The steps of a job with several processes, one per kind of process."""

    def __init__(self, attempt):
        self.attempt = attempt
        self.steps = []
        self.stopping = False
        for number in (signal.SIGTERM, signal.SIGINT):
            # Its processes hear it themselves; they tell how they ended, and then the steps end.
            signal.signal(number, lambda *_: None)

    def run(self):
        parts = self.attempt.order["parts"]
        for index, part in enumerate(parts):
            words = site.step_words(part, index, len(parts))
            shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
            command = [shell, self.attempt.folder + "/script", self.attempt.home.root]
            command += [self.attempt.key, str(part["first"])]
            self.steps.append(subprocess.Popen(words + command, env=site.step_environ()))
        while any(step.poll() is None for step in self.steps):
            self.look()
            time.sleep(LOOK_S)
        return self.result()

    def look(self):
        """When one fails, the others end with it."""
        if self.stopping:
            return
        for rank in range(self.attempt.order["processes"]):
            end = record.read_exit(self.attempt.home.record(self.attempt.rank_key(rank)))
            if end is not None and (end.get("code") != 0 or end.get("cause")):
                record.write_whole(self.attempt.folder + "/stop", b"another process failed")
                self.stopping = True
                return

    def result(self):
        count = self.attempt.order["processes"]
        folders = [self.attempt.home.record(self.attempt.rank_key(n)) for n in range(count)]
        return 0 if all(went_well(folder) for folder in folders) else 1


def went_well(folder):
    """One that left no record was killed with its step, unless it is to go on."""
    end = record.read_exit(folder)
    if end is None:
        return os.path.exists(folder + "/again")
    return not (end.get("code") or end.get("cause"))


def go_on(attempt):
    """Put the job into the queue again when its time was over; else say how it ended."""
    count = attempt.order["processes"]
    keys = [attempt.rank_key(rank) for rank in range(count)]
    waiting = [key for key in keys if os.path.exists(attempt.home.record(key) + "/again")]
    causes = [json.loads(read(attempt.home.record(key) + "/again"))["cause"] for key in waiting]
    if "timeout" not in causes:
        return
    if not site.requeue(attempt.id):
        for key in waiting:
            give_up(attempt, key)


def give_up(attempt, key):
    folder = attempt.home.record(key)
    end = json.loads(read(folder + "/again"))
    end["text"] += "; %s did not take it into its queue again" % site.TITLE
    record.write_whole(folder + "/exit", json.dumps(end).encode("ascii"))
    record.write_whole(attempt.home.news(key) + "/%s.%d" % (key, 2 * attempt.run + 1), b"")


def children():
    try:
        with open("/proc/self/task/%d/children" % os.getpid()) as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def read(path):
    with open(path) as file:
        return file.read()


def main(words):
    """`root key` for a whole attempt; `root key first` for a process of one of its steps."""
    attempt = Attempt(words[0], words[1])
    if len(words) > 2:
        sys.exit(run_rank(attempt, int(words[2]) + site.process()))
    if not attempt.key or attempt.stop_word() or not attempt.claim():
        sys.stderr.write("towline: stopped, or another entry of the queue runs it already\n")
        sys.exit(0)
    if attempt.order["processes"] == 1:
        code = run_rank(attempt, 0)
    else:
        code = Steps(attempt).run()
    go_on(attempt)
    sys.exit(code)
