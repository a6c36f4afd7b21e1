"""Runs the runs of one job of a sweep, some at a time, each in a process of its own.

A run that crashes fails alone. Whatever becomes of one is written down, signed, where the sweep's
folder is: in the sweep's own folder where this machine sees it, else in the job's, from which it
comes home. When a run begins and ends is noted there at once, so that whoever looks sees it; so is
what it prints, in a file of its own.
"""

import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from typing import Any

import towline_machine
from towline_remote.wire import VALUE, Forged, own_key, packed, unpacked

from .shares import Shares

#: Neither a value nor an exception: the process ended without a word.
GONE = b"G"
#: How often what the only run under way prints is passed on.
_LOOK_S = 0.5
#: A library that finds these believes to be one of several processes of one training.
_RANKS = ("LOCAL_RANK", "RANK")


def main(folder: str, number: int) -> None:
    with open(folder + "/plan", encoding="utf-8") as file:
        plan = json.load(file)
    # What is at home at the same path is found, too; what travelled comes first.
    sys.path += [path for path in plan["sys_path"] if path not in sys.path and os.path.isdir(path)]
    root = plan["sweep"] if os.path.exists(plan["mark"]) else os.path.join(os.getcwd(), "sweep")
    pack = Pack(folder, plan, root, numbers(sys.argv[5]), sys.argv[6].partition(".")[2])
    sys.exit(1 if pack.run() else 0)


def numbers(text: str) -> "list[int]":
    """Of `0-3,7` the numbers 0, 1, 2, 3 and 7."""
    spans = [span.partition("-") for span in text.split(",")]
    return [n for first, _, last in spans for n in range(int(first), int(last or first) + 1)]


class Pack:
    """The runs of this job, and which of them are under way."""

    def __init__(
        self, folder: str, plan: "dict[str, Any]", root: str, runs: "list[int]", name: str
    ) -> None:
        self.folder, self.plan, self.root = folder, plan, root
        self.key = own_key()
        self.results = f"{root}/{plan['results']}"
        os.makedirs(self.results, exist_ok=True)
        self.waiting = [run for run in runs if not self._is_done(run)]
        self.slots = max(1, min(plan["parallel"], len(runs)))
        self.shares = Shares(plan["resources"], self.slots)
        #: What it prints is the job's own output.
        self.alone = len(runs) == 1
        notes = f"{self.results}/runs.{name}"
        self.notes = os.open(notes, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o644)
        #: Process -> its run, its slot and its folder for what is temporary.
        self.under_way: dict[int, tuple[int, int, str]] = {}
        #: Run -> how much of what it printed was passed on.
        self.shown: dict[int, int] = {}
        self.failed = 0
        #: How often the kernel had killed for want of memory.
        self.oom_kills = towline_machine.oom_kills()
        # Loaded once, so that each run begins with it.
        self.program = importlib.import_module(plan["program"])
        self.words = self.program.prepare(folder, self.waiting)

    def run(self) -> int:
        """Run all of them; how many failed."""
        for word in [*self.shares.words, *self.words]:
            self.say(word)
        if self.plan["verbose"]:
            for slot in range(self.slots):
                self.say(f"slot {slot}: {self.shares.said(slot)}")
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        signal.signal(signal.SIGTERM, self._stop)
        delay = float((self.plan["resources"].get("stagger") or {}).get("delay") or 0)
        begin = time.monotonic()
        #: Slot -> when it may take a run: the first ones begin one after the other.
        free = {slot: begin + slot * delay for slot in range(self.slots)}
        while self.waiting or self.under_way:
            now = time.monotonic()
            # More slots may have become free at once than there are runs left.
            for slot in [slot for slot, at in free.items() if at <= now][: len(self.waiting)]:
                del free[slot]
                self._start(self.waiting.pop(0), slot)
            pause = min(free.values(), default=now + 60) - now if self.waiting else 60
            if self.slots == 1 and not self.alone:
                # One run after the other: what it prints can be followed in the job's output.
                pause = min(pause, _LOOK_S)
                for run, _, _ in self.under_way.values():
                    self._show(run)
            signal.sigtimedwait({signal.SIGCHLD}, max(0.01, pause))
            free.update(dict.fromkeys(self._reap(), 0.0))
        return self.failed

    def say(self, text: str) -> None:
        print(f"towline: {text}", flush=True)

    def note(self, run: int, **about: Any) -> None:
        """Write down what happens to a run, in one piece: its own process does so, too."""
        line = json.dumps({"run": run, "at": time.time(), **about}) + "\n"
        os.write(self.notes, line.encode())

    def _is_done(self, run: int) -> bool:
        try:
            with open(f"{self.results}/{run}", "rb") as file:
                return bool(unpacked(self.key, file.read())[0][0] == VALUE)
        except (OSError, Forged, IndexError):
            return False

    def _start(self, run: int, slot: int) -> None:
        place = tempfile.mkdtemp(prefix=f"run-{run}-")
        if self.plan["verbose"]:
            self.say(f"run {self.plan['first'] + run} begins in slot {slot}")
        self.note(run, host=os.uname()[1], slot=slot)
        # What an earlier try left says nothing about this one.
        _remove(f"{self.results}/{run}")
        sys.stdout.flush()
        pid = os.fork()
        if pid:
            self.under_way[pid] = (run, slot, place)
            return
        code = 1
        try:
            code = self._be(run, slot, place)
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 1
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            os._exit(code & 0xFF)

    def _be(self, run: int, slot: int, place: str) -> int:
        """In the process of the run."""
        os.setpgid(0, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        if not self.alone:
            how = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_TRUNC
            output = os.open(self._output(run), how, 0o644)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.close(output)
        os.makedirs(place + "/tmp")
        os.environ.update(dict.fromkeys(self.plan["tmpdir_vars"], place + "/tmp"))
        os.environ["TOWLINE_REPORTS"] = f"{self.results}/{run}.reports"
        tempfile.tempdir = None
        for name in _RANKS:
            os.environ.pop(name, None)
        self.shares.take(slot)
        said = self.shares.said(slot) if self.plan["verbose"] else ""
        kind, payload, words = self.program.run(self.folder, run, self.plan, self.root, said)
        self._write(run, kind, payload)
        if words:
            self.note(run, why=words)
        return 0 if kind == VALUE else 1

    def _write(self, run: int, kind: bytes, payload: bytes) -> None:
        path = f"{self.results}/{run}"
        with open(path + ".part", "wb") as file:
            file.write(packed(self.key, kind, run, payload))
        os.replace(path + ".part", path)

    def _reap(self) -> "list[int]":
        """The slots that are free again."""
        freed = []
        while self.under_way:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            if pid not in self.under_way:
                continue
            run, slot, place = self.under_way.pop(pid)
            try:
                # What it left behind does not share the slot with the next one.
                os.killpg(pid, signal.SIGKILL)
            except OSError:
                pass
            self._ended(run, status, place)
            freed.append(slot)
        return freed

    def _ended(self, run: int, status: int, place: str) -> None:
        if not self.alone:
            self._show(run)
            if not self.shown[run]:
                _remove(self._output(run))
        shutil.rmtree(place, ignore_errors=True)
        how: dict[str, Any] = {"code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else None}
        if os.WIFSIGNALED(status):
            how["signal"] = os.WTERMSIG(status)
            if how["signal"] == signal.SIGKILL and self._ran_out_of_memory():
                how["oom"] = True
        told = os.path.exists(f"{self.results}/{run}")
        if not told:
            self._write(run, GONE, json.dumps(how).encode())
        if status or not told:
            self.failed += 1
        self.note(run, ok=told and not status, **how)

    def _ran_out_of_memory(self) -> bool:
        """Whether the kernel killed for want of memory since it was last asked."""
        before, self.oom_kills = self.oom_kills, towline_machine.oom_kills()
        return bool(self.oom_kills > before)

    def _output(self, run: int) -> str:
        return f"{self.results}/{run}.out"

    def _show(self, run: int) -> None:
        """Pass on what a run printed: of several at a time only once it has ended, in one piece."""
        if run not in self.shown:
            title = " ".join(self.plan["titles"][run])
            print(f"--- run {self.plan['first'] + run}: {title}", flush=True)
        try:
            with open(self._output(run), "rb") as file:
                file.seek(self.shown.get(run, 0))
                shutil.copyfileobj(file, sys.stdout.buffer)
                self.shown[run] = file.tell()
        except OSError:
            self.shown.setdefault(run, 0)
        sys.stdout.flush()

    def _stop(self, *_: object) -> None:
        for pid in self.under_way:
            try:
                os.killpg(pid, signal.SIGTERM)
            except OSError:
                pass
        os._exit(128 + signal.SIGTERM)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
