"""What came home of jobs, as the tests look at it."""

import os
from pathlib import Path
from typing import Any

from e2e.jobs import show
from testbed.tow import Tow
from testbed.waiting import wait_until

#: Goes on until the file `go` is in its folder.
UNTIL_GO = "until [ -e go ]; do sleep 0.05; done"


def home_of(tow: Tow, job: int, folder: Path | None = None) -> Path:
    return (folder or tow.folder) / "job_results" / str(job)


def brought(folder: Path) -> list[str]:
    """Every file and every link below, and so nothing half-made."""
    found = []
    for place, folders, names in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        found += [os.path.relpath(os.path.join(place, name), folder) for name in names + links]
    return sorted(found)


def settled(tow: Tow, job: int, timeout: float = 60) -> dict[str, Any]:
    """The job, once it has ended and its results are home or cannot come."""

    def at_home() -> dict[str, Any] | None:
        found = show(tow, job)
        final = found["state"] in ("done", "failed", "stopped", "lost")
        return found if final and found["results"] != "wanted" else None

    return wait_until(at_home, timeout, on_timeout=lambda: show(tow, job), every=0.1)
