"""A command beside a job on its node, for somebody who asked for it by a file (`beside`).

It is a child of the job's runner and has an execution of its own, so it ends with the job.
"""

import json
import os
import shutil
import signal
import time

from .. import machine
from ..commands import process
from ..records import record
from ..run.execution import Execution
from ..run.station import Station
from .exec_requests import taken_back, wish

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

    from ..home import Home
    from ..run.execution import Surroundings
    from ..typed import Environ

LOOK_S = 1.0


class Place:
    """The node as the job beside us found it: nobody is to be met there again."""

    def __init__(self, node: "Surroundings") -> None:
        self.node = node

    def arrive(self, execution: "Execution") -> None:
        pass

    def adapt(self, environ: "Environ") -> None:
        self.node.adapt(environ)

    def names(self) -> "Iterable[bytes]":
        return self.node.names()


class Guest:
    """Has the command run; whoever asked for it reads its files."""

    def __init__(self, home: "Home", key: str, raw: bytes, node: "Surroundings") -> None:
        self.station = Station()
        self.execution = Execution(home, key, raw, self.station, self, Place(node))
        self.look_at = 0.0
        signal.signal(signal.SIGTERM, lambda *_: self.execution.stop(None))
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)

    def wait(self, seconds: float) -> None:
        self.station.wait(min(seconds, LOOK_S))
        if time.monotonic() >= self.look_at:
            self.look_at = time.monotonic() + LOOK_S
            self.execution.look_for_stop()

    def tell(self, **_message: "Any") -> None:
        pass

    def run(self) -> None:
        execution = self.execution
        life = record.open_life(execution.record, create=False)
        if life is None or record.read_exit(execution.record) is not None:
            return
        end, _ = execution.live(life)
        if record.asked_to_stop(execution.record) is None:
            execution.write_down(life, end)
            return
        for folder in (execution.folder, execution.record):  # nobody asks for it any more
            shutil.rmtree(folder, ignore_errors=True)


def let_in(home: "Home", folder: str, names: "Iterable[str]", node: "Surroundings") -> None:
    """Have each command run whose wish is among these names of an attempt's folder."""
    for name in names:
        key = name.partition(".")[2]
        if taken_back(wish(folder, key)):
            spec = record.read_spec(home.record(key))
            if spec is not None:
                fork_guest(home, key, json.dumps(spec).encode("ascii"), node)


def fork_guest(home: "Home", key: str, raw: bytes, node: "Surroundings") -> None:
    if os.fork():
        return  # whoever follows the job's command reaps it
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        # Above all the lock of the job's record.
        process.close_all_but(-1)
        machine.become_subreaper()
        machine.set_name(b"tow-guest")
        Guest(home, key, raw, node).run()
    finally:
        os._exit(0)
