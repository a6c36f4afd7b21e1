"""The steps of a job with several processes, and what becomes of a job whose time was over."""

import json
import os
import signal
import subprocess
import sys
import time

from ..records import record
from . import site
from .attempt import listen, read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..typed import Ending
    from .attempt import Attempt

LOOK_S = 0.5
#: So long after the program that started it a process may seem to have left no record.
RECORD_S = 5.0


class Steps:
    """The programs that start the processes of a job, and that one's failure ends the others."""

    def __init__(self, attempt: "Attempt") -> None:
        self.attempt = attempt
        self.steps: "list[tuple[subprocess.Popen[bytes], range]]" = []
        self.stopping = False
        #: When a program was first seen to have failed before its processes left a record.
        self.failed_at: "dict[int, float]" = {}
        for number in (signal.SIGTERM, signal.SIGINT):
            # Its processes hear it themselves; they tell how they ended, and then the steps end.
            signal.signal(number, lambda *_: None)
        listen()

    def run(self) -> int:
        shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
        attempt = self.attempt
        command = [shell, attempt.folder + "/script", attempt.home.root, attempt.key]
        for words, ranks in site.steps(attempt.order["parts"], command):
            try:
                self.steps.append((subprocess.Popen(words, env=site.step_environ()), ranks))
            except OSError as problem:
                sys.stderr.write("towline: %s cannot be started: %s\n" % (words[0], problem))
                self.stop()
        while any(step.poll() is None for step, _ in self.steps):
            self.look()
            time.sleep(LOOK_S)
        return self.result()

    def look(self) -> None:
        """When one fails, the others end with it."""
        if self.stopping:
            return
        ends = {rank: self.end_of(rank) for rank in range(self.attempt.order["processes"])}
        for end in ends.values():
            if end is not None and (end.get("code") != 0 or end.get("cause")):
                self.stop()
                return
        for step, ranks in self.steps:
            if step.poll() and any(ends[rank] is None for rank in ranks):
                # A network file system may show a record late.
                since = self.failed_at.setdefault(step.pid, time.monotonic())
                if time.monotonic() > since + RECORD_S:
                    self.stop()
                    return

    def end_of(self, rank: int) -> "Ending | None":
        return record.read_exit(self.attempt.home.record(self.attempt.rank_key(rank)))

    def stop(self) -> None:
        record.write_whole(self.attempt.folder + "/stop", b"another process failed")
        self.stopping = True

    def result(self) -> int:
        count = self.attempt.order["processes"]
        folders = [self.attempt.home.record(self.attempt.rank_key(n)) for n in range(count)]
        return 0 if all(went_well(folder) for folder in folders) else 1


def went_well(folder: str) -> bool:
    """One that left no record was killed with its step, unless it is to go on."""
    end = record.read_exit(folder)
    if end is None:
        return os.path.exists(folder + "/again")
    return not (end.get("code") or end.get("cause"))


def go_on(attempt: "Attempt") -> None:
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


def give_up(attempt: "Attempt", key: str) -> None:
    folder = attempt.home.record(key)
    end = json.loads(read(folder + "/again"))
    end["text"] += "; %s did not take it into its queue again" % site.TITLE
    record.write_whole(folder + "/exit", json.dumps(end).encode("ascii"))
    record.write_whole(attempt.home.news(key) + "/%s.%d" % (key, 2 * attempt.run + 1), b"")
