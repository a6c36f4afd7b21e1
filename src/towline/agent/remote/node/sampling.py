"""What a job uses on its node, by the minute: a line each, in a file that the access node reads.

A line is a list: when the minute began, how many seconds of it were measured; CPUs on average and
at most, MiB of memory at most; of its GPUs the use on average and at most, and MiB of memory.
"""

import json
import os
import time

from ..commands import process_tree
from ..records.record import write_all
from ..share import gpu_tool
from .gpu_questions import Question, used_by

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..typed import Ending

FILE = "/used"
#: It is looked so soon, then so often, at the GPUs so seldom; an answer of theirs comes soon.
FIRST_S, EVERY_S, GPUS_EVERY_S, ANSWER_S = 2.0, 10.0, 30.0, 0.5
#: So long is one line at first; after so many lines, twice as long, and so on.
STRETCH_S, MOST_ALIKE = 60.0, 1000
#: What is shorter says little: processes are charged in hundredths of seconds.
FEWEST_S = 1.0


class Stretch:
    """What was measured since it began."""

    def __init__(self, at: float, seconds: float) -> None:
        self.at = at
        self.until = at + seconds
        self.began = time.time()
        self.cpus: "list[float]" = []
        self.mem_mb = 0.0
        self.util: "list[float]" = []
        self.gpu_mem_mb: "float | None" = None

    def line(self) -> "list[Any]":
        return [
            round(self.at, 3),
            round(max(time.time() - self.began, 0.0), 1),
            round(sum(self.cpus) / len(self.cpus), 3) if self.cpus else 0.0,
            round(max(self.cpus or [0.0]), 3),
            round(self.mem_mb, 1),
            round(sum(self.util) / len(self.util), 3) if self.util else None,
            max(self.util) if self.util else None,
            self.gpu_mem_mb,
        ]


class Sampler:
    """`began` is when the whole attempt did, so that minutes of all its processes are the same."""

    def __init__(self, began: float, has_gpus: bool) -> None:
        self.began = began
        self.tool = gpu_tool.find() if has_gpus else None
        self.path = ""
        self.lines = 0
        #: When it is looked at the job next, and at its GPUs; never before it has started.
        self.look_at = self.gpus_at = float("inf")
        self.questions: "list[Question]" = []
        #: When it was looked last, and the CPU seconds until then.
        self.last = (0.0, 0.0)

    def begin(self, record: str, started: float) -> None:
        self.path = record + FILE
        self.last = (started, 0.0)
        self.stretch = self.new_stretch()
        self.look_at = self.gpus_at = time.monotonic() + FIRST_S

    def new_stretch(self) -> "Stretch":
        seconds = STRETCH_S * 2 ** (self.lines // MOST_ALIKE)
        return Stretch(self.began + (time.time() - self.began) // seconds * seconds, seconds)

    def wait_s(self) -> float:
        """Until there is something to do."""
        if self.questions:
            return ANSWER_S
        return max(0.0, self.look_at - time.monotonic())

    def look(self) -> None:
        if self.questions:
            self.hear()
        now = time.monotonic()
        if now < self.look_at:
            return
        self.look_at = now + EVERY_S
        use = process_tree.usage_of(process_tree.below(os.getpid()))
        self.take_cpu(time.time(), use["cpu_s"])
        self.stretch.mem_mb = max(self.stretch.mem_mb, use["rss_mb"])
        if self.tool is not None and now >= self.gpus_at and not self.questions:
            self.gpus_at = now + GPUS_EVERY_S
            self.ask(self.tool)
        if time.time() >= self.stretch.until:
            self.write()

    def take_cpu(self, at: float, cpu_s: float) -> None:
        before, spent_s = self.last
        if at - before >= FEWEST_S:
            # What ended in between took its part along.
            self.stretch.cpus.append(max(0.0, (cpu_s - spent_s) / (at - before)))
            self.last = (at, cpu_s)

    def ask(self, tool: bytes) -> None:
        try:
            for what in (gpu_tool.GPUS, gpu_tool.APPS):
                self.questions.append(Question(tool, what))
        except OSError:
            self.end_questions()  # too many processes: the job is what matters

    def hear(self) -> None:
        """Take what was answered, once both are."""
        for question in self.questions:
            if not question.is_over:
                question.look()
        if not all(question.is_over for question in self.questions):
            return
        gpus, apps = [question.text for question in self.questions]
        util, mem_mb = used_by(process_tree.below(os.getpid()), gpus, apps)
        if util is not None:
            self.stretch.util.append(util)
        if mem_mb is not None:
            self.stretch.gpu_mem_mb = max(self.stretch.gpu_mem_mb or 0.0, mem_mb)
        self.questions = []

    def end_questions(self) -> None:
        for question in self.questions:
            question.end()
        self.questions = []

    def write(self) -> None:
        """The stretch is over: what it was goes into the file."""
        try:
            fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                write_all(fd, json.dumps(self.stretch.line()).encode("ascii") + b"\n")
            finally:
                os.close(fd)
        except OSError:
            pass  # a full disk is no reason to stop looking
        self.lines += 1
        self.stretch = self.new_stretch()

    def conclude(self, end: "Ending", goes_on: bool) -> None:
        """The job is over: its last line goes with its ending, or into the file if it goes on."""
        self.end_questions()
        self.look_at = float("inf")
        if not self.path or end["ended"] - end["started"] < FEWEST_S:
            return
        if end["cpu_s"] > self.last[1]:
            self.take_cpu(end["ended"], end["cpu_s"])
        # Of one process alone, and with what it had of us before it became the command.
        self.stretch.mem_mb = self.stretch.mem_mb or end["max_rss_kb"] / 1024.0
        if goes_on:
            self.write()
            return
        end["used"] = self.stretch.line()
        end["lines"] = os.path.exists(self.path)
