"""Brings a sweep home that nobody waits for: `python -m towline.sweeps.home TOKEN`."""

from __future__ import annotations

import os
import sys

from towline.client.session import Session
from towline.sweeps.records import SweepRecords
from towline.sweeps.waiting import wait


def leave_behind(token: str) -> None:
    """Start it as a process of its own, which ends with the sweep."""
    command = [sys.executable, "-m", "towline.sweeps.home", token]
    nothing = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0)
    copies = [(os.POSIX_SPAWN_DUP2, 0, stream) for stream in (1, 2)]
    os.posix_spawn(command[0], command, os.environ, file_actions=[nothing, *copies], setsid=True)


def main(token: str) -> None:
    session = Session()
    if (sweep := SweepRecords(session).load(token)) is not None:
        wait(session, sweep)


if __name__ == "__main__":
    main(sys.argv[1])
