"""What a queue runs on a node for a pack: its lines, some of them at a time.

Each line stays an attempt of its own, with a claim, a record and a runner of its own; so whatever
holds for an attempt alone holds for it, and one that crashes ends alone. The packer claims the pack
as a whole before any of its lines: of two entries for it, one never begins anything.
"""

import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback

from ..commands import process_tree
from ..records import endings, record
from ..run.execution import Stopped
from ..share import grants
from . import following, site
from .attempt import Attempt, listen, read
from .shares import LineShares, gpus_here
from .steps import give_up

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..typed import Ending

    #: Runs one process of an attempt, and says which exit code the queue sees.
    RunRank = Callable[[Attempt, int], int]

#: So long at most until it is looked whether the time is over.
LOOK_S = 1.0
#: A library that finds these believes to be one of several processes of one training.
RANKS = ("LOCAL_RANK", "RANK", "WORLD_SIZE")
GONE = 97


class Packer:
    """The lines of a pack, and which of them are under way."""

    def __init__(self, pack: "Attempt", run_rank: "RunRank") -> None:
        self.pack = pack
        self.run_rank = run_rank
        self.order = pack.order["pack"]
        self.lines = pack.lines()
        self.waiting = [line for line in self.lines if end_of(line) is None]
        self.slots = max(1, min(self.order.get("parallel") or 1, len(self.waiting)))
        #: Process -> its line and its slot.
        self.under_way: "dict[int, tuple[Attempt, int]]" = {}
        #: The queue wants the allocation back.
        self.terminated = False
        self.claimant = Claimant(self)

    def run(self) -> int:
        """The exit code that the queue sees."""
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        signal.signal(signal.SIGTERM, lambda *_: self.terminate())
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)
        self.listen_for((self.pack.order.get("signal") or "").partition("@")[0])
        listen()
        wanted = self.order.get("shares")
        if wanted is None:
            wanted = {"cpu": [], "cuda": []}
        try:
            gpus = gpus_here(self.claimant, self.pack.order["gpus"][0])
        except Stopped as stopped:
            self.say(stopped.text)
            return 1
        self.shares = LineShares(wanted, self.slots, sorted(os.sched_getaffinity(0)), gpus)
        for word in self.shares.words:
            self.say(word)
        for slot in range(self.slots):
            self.say("slot %d: %s" % (slot, self.shares.said(slot)))
        self.run_all()
        self.leave_off()
        self.claimant.grant.release()
        return 0 if all(is_well(line) for line in self.lines) else 1

    def say(self, text: str) -> None:
        sys.stdout.write("towline: %s\n" % text)
        sys.stdout.flush()

    # Which line begins when

    def run_all(self) -> None:
        delay, begin = self.order.get("stagger_s") or 0.0, time.monotonic()
        #: Slot -> when it may take a line: the first ones begin one after the other.
        free = {slot: begin + slot * delay for slot in range(self.slots)}
        while self.under_way or (self.waiting and not self.is_over()):
            now = time.monotonic()
            for slot in [slot for slot, at in free.items() if at <= now]:
                if not self.is_over() and self.start_next(slot):
                    del free[slot]
            due = [at - now for at in free.values() if at > now] if self.waiting else []
            signal.sigtimedwait({signal.SIGCHLD}, max(0.01, min([LOOK_S] + due)))
            free.update(dict.fromkeys(self.reap(), 0.0))

    def is_over(self) -> bool:
        return self.terminated or self.time_is_over() or self.pack.is_superseded()

    def time_is_over(self) -> bool:
        limit = self.pack.order.get("time_s") or 0
        return bool(limit) and time.time() >= self.pack.began + limit

    def start_next(self, slot: int) -> bool:
        """Begin the next line that may; False where none is left."""
        began = False
        while self.waiting and not began:
            line = self.waiting.pop(0)
            began = not line.stop_word() and following.may_run(line) and line.claim()
            if began:
                self.start(line, slot)
            # A claim keeps back what would end us; whoever runs the line hears it from us now.
            listen()
        return began

    def start(self, line: "Attempt", slot: int) -> None:
        line.scratch = tempfile.mkdtemp(prefix="towline-", dir=scratch_folder())
        sys.stdout.flush()
        pid = os.fork()
        if pid:
            self.under_way[pid] = line, slot
            return
        code = GONE
        try:
            self.become(slot)
            code = self.run_rank(line, 0)
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(code)

    def become(self, slot: int) -> None:
        """In the process of a line, before anything of it is done."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        for name in RANKS:
            os.environ.pop(name, None)
        self.shares.take(slot)

    # What becomes of them

    def reap(self) -> "list[int]":
        """The slots that are free again."""
        freed = []
        while self.under_way:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            if pid in self.under_way:
                line, slot = self.under_way.pop(pid)
                self.ended(line, status)
                freed.append(slot)
        return freed

    def ended(self, line: "Attempt", status: int) -> None:
        # What it left behind does not share the slot with the next one.
        for pid in process_tree.marked(line.rank_key(0)):
            process_tree.send(pid, signal.SIGKILL)
        shutil.rmtree(line.scratch, ignore_errors=True)
        if end_of(line) is None and not goes_on(line) and not line.is_superseded():
            how = "signal %d" % os.WTERMSIG(status) if os.WIFSIGNALED(status) else "an error"
            end_without_record(line, "what ran it on its node was ended by %s" % how)

    def leave_off(self) -> None:
        """Lines whose time was over go into the queue again, or are told to be over."""
        if self.pack.is_superseded():
            return
        cut_short = [line for line in self.lines if goes_on(line) == "timeout"]
        left = self.waiting if self.time_is_over() or self.ran_out() else []
        if not (cut_short or left) or (self.pack.goes_on_at_limit() and site.requeue(self.pack.id)):
            return
        for line in cut_short:
            give_up(line, line.rank_key(0))
        for line in left:
            text = "the time of its allocation was over before it began"
            line.end_unrun(endings.ending("timeout", text))

    def ran_out(self) -> bool:
        return self.terminated and site.ran_out(self.pack.id)

    # What comes from outside

    def terminate(self) -> None:
        self.terminated = True
        self.pass_on(signal.SIGTERM)

    def listen_for(self, word: str) -> None:
        """Pass a signal on that the queue was asked to send before the limit."""
        number = int(word) if word.isdigit() else getattr(signal, "SIG" + word, 0) if word else 0
        if number:
            signal.signal(number, lambda *_: self.pass_on(number))

    def pass_on(self, number: int) -> None:
        for pid in list(self.under_way):
            process_tree.send(pid, number)


class Claimant:
    """Claims GPUs of the node for the pack as a whole, as an execution does for itself."""

    def __init__(self, packer: "Packer") -> None:
        self.packer = packer
        self.key = packer.pack.key
        self.grant = grants.Grant()

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def pause(self) -> None:
        if self.packer.terminated:
            raise Stopped("stopped", "stopped before any of its lines began")


def scratch_folder() -> "str | None":
    """Where temporary files of this node are; None: wherever they are usually."""
    for name in site.SCRATCH:
        folder = os.environ.get(name.decode("ascii"))
        if folder and os.path.isdir(folder) and os.access(folder, os.W_OK):
            return folder
    return None


def end_of(line: "Attempt") -> "Ending | None":
    return record.read_exit(line.home.record(line.rank_key(0)))


def goes_on(line: "Attempt") -> str:
    """Why a line that ran is to run again; empty where it is not."""
    path = line.home.record(line.rank_key(0)) + "/again"
    cause: str = json.loads(read(path))["cause"] if os.path.exists(path) else ""
    return cause


def is_well(line: "Attempt") -> bool:
    end = end_of(line)
    return end is not None and following.is_well(end)


def end_without_record(line: "Attempt", text: str) -> None:
    """Say that nobody knows how a line ended that began: what ran it is gone."""
    key = line.rank_key(0)
    folder = line.home.record(key)
    began: "Any" = record.read(folder).get("started") or 0.0
    end = dict(endings.ending("lost", text, started=began), spec=record.read_spec(folder))
    record.write_first(folder + "/exit", json.dumps(end).encode("ascii"))
    record.write_whole("%s/%s.%d" % (line.home.news(key), key, 2 * line.run + 1), b"")
