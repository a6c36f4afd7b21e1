"""The Engine as a process: who it is, whether it serves, and killing it."""

import contextlib
import os
import signal
from pathlib import Path

from testbed.leftovers import belonging_to
from testbed.waiting import wait_until


def engine_pid(home: Path) -> int:
    """The process that holds the Engine's lock; 0 when none does."""
    try:
        file = os.stat(home / "engine.lock").st_ino
    except FileNotFoundError:
        return 0
    for line in Path("/proc/locks").read_text().splitlines():
        words = line.split()
        if "FLOCK" in words and "->" not in words and words[5].endswith(f":{file}"):
            return int(words[4])
    return 0


def engines(home: Path) -> list[int]:
    """Every process of this home that runs the Engine's program."""
    found = []
    for pid in belonging_to(home):
        with contextlib.suppress(OSError):
            if b"towline.server.laptop" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def serves(home: Path, pid: int) -> bool:
    """True once this Engine answers; it writes its number down last."""
    try:
        return (home / "engine.pid").read_text() == f"{pid}\n"
    except FileNotFoundError:
        return False


def kill_engine(home: Path) -> int:
    """Kill -9 the Engine once it is there; its process number."""
    pid = wait_until(lambda: engine_pid(home))
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: engine_pid(home) != pid)
    return pid
