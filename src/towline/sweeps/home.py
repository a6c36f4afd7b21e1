"""Brings a sweep home that nobody waits for: `python -m towline.sweeps.home NAME`."""

from __future__ import annotations

import os
import sys

from towline.client.session import Session
from towline.sweeps.sweep import remembered, wait


def leave_behind(name: str) -> None:
    """Start it as a process of its own, which ends with the sweep."""
    command = [sys.executable, "-m", "towline.sweeps.home", name]
    nothing = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0)
    copies = [(os.POSIX_SPAWN_DUP2, 0, stream) for stream in (1, 2)]
    os.posix_spawn(command[0], command, os.environ, file_actions=[nothing, *copies], setsid=True)


def main(name: str) -> None:
    session = Session()
    wait(session, remembered(session, name), lambda event: None)


if __name__ == "__main__":
    main(sys.argv[1])
