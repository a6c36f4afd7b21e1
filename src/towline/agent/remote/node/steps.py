"""The steps of a job with several processes, and what becomes of a job whose time was over."""

import json
import os
import signal
import subprocess
import time

from ..records import record
from . import site
from .attempt import read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .attempt import Attempt

LOOK_S = 0.5


class Steps:
    """The steps of a job with several processes, one per kind of process."""

    def __init__(self, attempt: "Attempt") -> None:
        self.attempt = attempt
        self.steps: "list[subprocess.Popen[bytes]]" = []
        self.stopping = False
        for number in (signal.SIGTERM, signal.SIGINT):
            # Its processes hear it themselves; they tell how they ended, and then the steps end.
            signal.signal(number, lambda *_: None)

    def run(self) -> int:
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

    def look(self) -> None:
        """When one fails, the others end with it."""
        if self.stopping:
            return
        for rank in range(self.attempt.order["processes"]):
            end = record.read_exit(self.attempt.home.record(self.attempt.rank_key(rank)))
            if end is not None and (end.get("code") != 0 or end.get("cause")):
                record.write_whole(self.attempt.folder + "/stop", b"another process failed")
                self.stopping = True
                return

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
