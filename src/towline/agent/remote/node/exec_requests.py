"""Commands beside a job that another queue runs, where the queue itself has no way into one.

A wish is a file beside what was handed over: `handed/ATTEMPT/beside.KEY`, with KEY being that of
the process and one for the command. The runner on the node takes it away and has the command run
(`guest`); whoever removes the file decides: either it is run, or it never will be. Its folder and
its record are like those of a job, so its output and its end are read as a job's are.
"""

import json
import os
import time

from ..home import checked_key
from ..records import record
from ..records.endings import ending
from ..run.spec import exec_spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from ..home import Home
    from ..loop import Loop
    from ..typed import Message, Operation, Spec, Timer, Told

LOOK_S = 0.5
#: So long a wish waits for a runner, which looks every second; a host may be suspended or gone.
PATIENCE_S = 60.0
#: So long after its job's end a command may take to leave a record of its own.
AFTER_S = 15.0
UNHEARD = "nothing on its host answers: is the job suspended, or the host away?"
OVER = "the job ended before"
KILLED = "it was killed with its job"


def wish(folder: str, key: str) -> str:
    """The file that asks for a command of this key; `folder` is the attempt's."""
    return "%s/beside.%s" % (folder, key)


class Wished:
    """One command that was asked for."""

    def __init__(self, key: str, job: str, path: str) -> None:
        self.key = key
        self.job = job
        self.path = path
        self.until = time.monotonic() + PATIENCE_S
        #: Once its job has ended: until when its own record may come.
        self.record_until = 0.0


class ExecRequests:
    """Where the queue is reached. `prepare(spec)` makes folder and record, `woken(key)` tells those
    who wait for its output."""

    def __init__(
        self, loop: "Loop", home: "Home", prepare: "Callable[[Spec], None]", woken: "Told"
    ) -> None:
        self.loop = loop
        self.home = home
        self.prepare = prepare
        self.woken = woken
        self.wished: "dict[str, Wished]" = {}
        self.timer: "Timer | None" = None

    def operations(self) -> "dict[str, Operation]":
        return {"exec_handed": self.exec_handed, "dismiss": self.dismiss}

    def exec_handed(self, request: "Message", _blob: bytes) -> "Message":
        """Ask for a command beside a process of a job."""
        spec = exec_spec(self.home, request)
        key, job = spec["key"], spec["at"]
        self.prepare(spec)
        path = wish(self.home.handed(job.rpartition("-")[0]), key)
        self.wished[key] = Wished(key, job, path)
        record.write_whole(path, b"")
        if self.timer is None:
            self.timer = self.loop.later(LOOK_S, self.look)
        return {}

    def dismiss(self, request: "Message", _blob: bytes) -> "Message":
        """Nobody wants these commands any more: what has not begun never will."""
        for key in map(checked_key, request.get("keys") or ()):
            asked = self.wished.pop(key, None)
            folder = self.home.record(key)
            if asked is not None and taken_back(asked.path):
                self.write_down(key, OVER)
            elif os.path.isdir(folder) and record.read_exit(folder) is None:
                record.write_whole(folder + "/stop", b"1.0")
        return {}

    def look(self) -> None:
        self.timer = self.loop.later(LOOK_S, self.look) if self.wished else None
        for key, asked in list(self.wished.items()):
            if self.is_over(asked):
                del self.wished[key]
                self.woken(key)

    def is_over(self, asked: "Wished") -> bool:
        now = time.monotonic()
        if record.read_exit(self.home.record(asked.key)) is not None:
            return True
        job_is_over = record.read_exit(self.home.record(asked.job)) is not None
        if (job_is_over or now > asked.until) and taken_back(asked.path):
            self.write_down(asked.key, OVER if job_is_over else UNHEARD)
            return True
        if job_is_over:
            asked.record_until = asked.record_until or now + AFTER_S
            if now > asked.record_until:
                self.write_down(asked.key, KILLED)
                return True
        return False

    def write_down(self, key: str, text: str) -> None:
        folder = self.home.record(key)
        end = dict(ending("lost", text), spec=record.read_spec(folder))
        record.write_first(folder + "/exit", json.dumps(end).encode("ascii"))


def taken_back(path: str) -> bool:
    """False when a runner has it already."""
    try:
        os.unlink(path)
        return True
    except OSError:
        return False
