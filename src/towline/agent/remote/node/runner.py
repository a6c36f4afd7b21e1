"""What a queue runs on a node: one attempt of a job, as a supervisor would run it.

The files it writes are the truth about the job: nobody else there tells of it.
"""

import json
import os
import shutil
import signal
import sys
import time
import traceback

from ..content import outside
from ..records import record
from ..run.execution import Execution, trouble
from ..run.station import Station
from . import following, rendezvous, site
from .attempt import Attempt, listen
from .guest import let_in
from .packer import Packer
from .sampling import Sampler
from .steps import Steps, go_on
from .surroundings import Node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..typed import Ending, Message

LOOK_S = 0.5
SELDOM_S = site.SELDOM_S
#: So often a wish to stop is seen before it is followed without the queue: it may be slow.
LOOKS_BEFORE_STOP = 3
#: Exit code where the folder with the job cannot be seen.
GONE = 97
EVICTED = site.TITLE + " stopped it: cancelled, preempted, or its node went away"


class Runner:
    """Has one process of an attempt run; it hears and tells by files."""

    def __init__(self, attempt: "Attempt", rank: int, raw: bytes) -> None:
        self.attempt = attempt
        self.rank = rank
        self.station = Station()
        self.node = Node(attempt, rank)
        self.execution = Execution(
            attempt.home, attempt.rank_key(rank), raw, self.station, self, self.node
        )
        self.has_started = False
        self.sampler = Sampler(attempt.began, self.node.has_gpus())
        #: Why the queue is to run it again, once this run is over.
        self.again = ""
        #: Another run of the same entry counts now: this one leaves nothing behind.
        self.superseded = False
        # The queue itself stops no single line of a pack.
        several = attempt.order["processes"] > 1 or attempt.order.get("pack")
        self.look_every_s = LOOK_S if several else site.LOOK_S
        self.look_at = 0.0
        self.stop_looks = LOOKS_BEFORE_STOP
        signal.signal(signal.SIGTERM, lambda *_: self.terminated())
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        self.listen_for(attempt.order.get("signal") or "")
        listen()

    # What comes from outside

    def listen_for(self, name: str) -> None:
        """Pass a signal that the queue was asked to send on to the command."""
        word = name.partition("@")[0]
        number = int(word) if word.isdigit() else getattr(signal, "SIG" + word, 0) if word else 0
        if number:
            signal.signal(number, lambda *_: pass_on(number))

    def terminated(self) -> None:
        self.look_at, self.stop_looks = 0.0, 0
        self.execution.stop(None)

    def wait(self, seconds: float) -> None:
        """Look at times whether we are to stop: for several processes a queue would kill their step
        at once, and one of a controller that was killed may be unknown to it."""
        self.station.wait(min(seconds, self.look_every_s, self.sampler.wait_s()))
        self.sampler.look()
        if time.monotonic() >= self.look_at:
            self.look_at = time.monotonic() + self.look_every_s
            self.look()

    def look(self) -> None:
        names = self.attempt.wishes()
        if "stop" in names:
            # The queue's own cancel has the first turn: then it knows that it was cancelled.
            if self.stop_looks <= 0 or self.look_every_s < SELDOM_S or "now" in names:
                self.execution.stop(0.0 if "now" in names else None)
            self.stop_looks -= 1
        elif self.has_started:
            guests = self.attempt.guests(self.rank, names)
            let_in(self.attempt.home, self.attempt.folder, guests, self.node)
        if not self.superseded and self.attempt.is_superseded():
            self.superseded = True
            self.execution.stop(0.0)

    # Its one process

    def run(self) -> int:
        """The exit code that the queue sees."""
        try:
            life = self.claim()
        except OSError as problem:
            self.tell(ended=trouble(problem))
            return self.result()
        if life is not None:
            end, pid = self.execution.live(life)
            self.keep(life, end)
            os.close(life)
            if pid:
                self.tell(started=[pid, end["started"]])
            self.tell(ended=end)
            if not self.again and not self.superseded:
                outside.collect(self.attempt.home, self.execution.key)
        return 0 if self.again else self.result()

    def claim(self) -> "Any":
        """The open `life`; the attempt is claimed as a whole, before, and a process of it that has
        ended is not run again: then it is None."""
        execution = self.execution
        folder = execution.record = self.attempt.home.record(execution.key)
        for place in (folder, execution.folder):
            os.makedirs(place, 0o700, exist_ok=True)
        if record.read_exit(folder) is not None:
            return None
        life = record.open_life(folder, create=True)
        try:
            record.lock(life)
        except OSError:
            pass  # not every shared file system has locks, and nobody relies on this one
        if os.path.exists(folder + "/again"):
            os.unlink(folder + "/again")
        shutil.rmtree(execution.folder + "/src", ignore_errors=True)
        return life

    def keep(self, life: int, end: "Ending") -> None:
        """Write down how it ended, or that it goes on."""
        self.sampler.end_questions()
        if self.superseded:
            return
        if self.was_stopped(end):
            self.explain_stop(end)
        self.again = self.goes_on(end["cause"])
        self.sampler.conclude(end, bool(self.again))
        if self.again:
            text = json.dumps(end).encode("ascii")
            record.write_whole(self.execution.record + "/again", text)
        else:
            self.execution.write_down(life, end)

    def was_stopped(self, end: "Ending") -> bool:
        """A queue signals all processes of a job at once, so the command may be gone before us."""
        order = self.attempt.order
        asked = self.execution.stop_grace is not None and end["started"] and not end["cause"]
        may_go_on = order.get("requeue") or order.get("on_timeout")
        return bool(end["cause"] == "stopped" or (asked and (may_go_on or end["code"] != 0)))

    def goes_on(self, cause: str) -> str:
        if cause == "timeout" and self.attempt.goes_on_at_limit():
            return "timeout"
        return "evicted" if cause == "evicted" and self.attempt.order.get("requeue") else ""

    def explain_stop(self, end: "Ending") -> None:
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

    # What is told

    def tell(self, **message: "Any") -> None:
        if self.superseded:
            return
        if "started" in message:
            self.has_started = True
            self.sampler.begin(self.execution.record, message["started"][1])
            self.say(0, {"state": "running", "started": message["started"][1]})
        if "ended" in message and self.again:
            self.say(1, {"state": "waiting", "why": self.again})
        elif "ended" in message:
            self.say(1, {"state": "ended"})

    def say(self, number: int, where: "Message") -> None:
        """Write down where it stands, then tell that there is something to read."""
        run, key = self.attempt.run, self.execution.key
        where.update(node=rendezvous.node_name(), run=run)
        try:
            text = json.dumps(where).encode("ascii")
            record.write_whole(self.execution.record + "/where", text)
            name = "%s.%d" % (key, 2 * run + number)
            record.write_whole(self.attempt.home.news(key) + "/" + name, b"")
        except OSError:
            pass  # whoever asks for it finds the ending all the same

    def result(self) -> int:
        end = record.read_exit(self.execution.record) or {}
        if end.get("signal"):
            return 128 + int(end["signal"])
        return site.exit_code(end["code"]) if end.get("code") is not None else 1


def pass_on(number: int) -> None:
    for pid in children():
        try:
            os.kill(pid, number)
        except OSError:
            pass


def children() -> "list[int]":
    try:
        with open("/proc/self/task/%d/children" % os.getpid()) as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def run_rank(attempt: "Attempt", rank: int) -> int:
    """Run one process of it: its exit code, for the queue."""
    key = attempt.rank_key(rank)
    spec = record.read_spec(attempt.home.record(key))
    if spec is None:
        sys.stderr.write("towline: the folder of job %s is gone\n" % key)
        return GONE
    return Runner(attempt, rank, json.dumps(spec).encode("ascii")).run()


def run_ranks(attempt: "Attempt", first: int, count: int) -> int:
    """Run so many processes of it on this node, each by a program of its own."""
    pids = []
    for index in range(count):
        pid = os.fork()
        if not pid:
            code = GONE
            try:
                site.become(index)
                code = run_rank(attempt, first + index)
            except Exception:
                traceback.print_exc()
            finally:
                os._exit(code)
        pids.append(pid)
    # They hear themselves that they are to stop, and tell how they ended.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    ends = [os.waitpid(pid, 0)[1] for pid in pids]
    return 1 if any(ends) else 0


def main(words: "list[str]") -> None:
    """`root key` for a whole attempt; `root key first` for a process of one of its steps, and
    `root key first count` for all of one that are on this node."""
    attempt = Attempt(words[0], words[1])
    if len(words) > 3:
        sys.exit(run_ranks(attempt, int(words[2]), int(words[3])))
    if len(words) > 2:
        sys.exit(run_rank(attempt, int(words[2]) + site.process()))
    if attempt.order.get("pack"):
        sys.exit(Packer(attempt, run_rank).run() if attempt.claim() else 0)
    if attempt.key and not attempt.stop_word() and not following.may_run(attempt):
        sys.stderr.write("towline: what it is to run after has not ended so\n")
        sys.exit(1)
    if not attempt.key or attempt.stop_word() or not attempt.claim():
        sys.stderr.write("towline: stopped, or another entry of the queue runs it already\n")
        sys.exit(0)
    if attempt.order["processes"] == 1:
        code = run_rank(attempt, 0)
    else:
        code = Steps(attempt).run()
    go_on(attempt)
    sys.exit(code)
