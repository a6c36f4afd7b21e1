"""End every process that belongs to one TOWLINE_HOME: its Engine, its jobs, its connections."""

import contextlib
import os
import signal
from pathlib import Path

from .waiting import wait_until


def stop_all(home: Path) -> None:
    """Ask the Engine of this home to end, then end it and all that came from it."""
    with contextlib.suppress(OSError, ValueError):
        engine = int((home / "engine.pid").read_text().split()[0])
        # A number left by a dead Engine may be another's by now.
        if engine in belonging_to(home):
            _signal(engine, signal.SIGTERM)
            with contextlib.suppress(AssertionError):
                wait_until(lambda: engine not in belonging_to(home), timeout=5)
    wait_until(lambda: not _killed(home), timeout=10, on_timeout=lambda: belonging_to(home))


def belonging_to(home: Path) -> list[int]:
    """The processes with this home in their environment or with their working folder below it."""
    variable = b"TOWLINE_HOME=" + os.fsencode(home)
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            with contextlib.suppress(OSError):
                environment = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
                # Both fail or are empty for one that has ended and was not yet waited for.
                folder = os.readlink(f"/proc/{entry}/cwd")
                if variable in environment or Path(folder).is_relative_to(home):
                    found.append(int(entry))
    return found


def _killed(home: Path) -> list[int]:
    found = belonging_to(home)
    for pid in found:
        _signal(pid, signal.SIGKILL)
    return found


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
