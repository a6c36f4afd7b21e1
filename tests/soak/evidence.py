"""What is known of a job that went wrong: its row and history here, its record on its machine."""

import contextlib
import re
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path

from testbed.hosts import Hosts

#: Where Towline keeps its things on a host.
THERE = "home/worker/.towline"
_JOB = re.compile(r"job (\d+)")


def evidence(wrong: Iterable[str], home: Path, hosts: Hosts, names: Iterable[str]) -> list[str]:
    """Lines for whoever looks for the cause, in the order of the jobs."""
    jobs = sorted({int(found[1]) for text in wrong if (found := _JOB.match(text))})
    roots = [home / "machine", *(hosts.root(name) / THERE for name in names)]
    return [
        line for job in jobs for line in (f"job {job}:", *_told(home, job), *_written(roots, job))
    ]


def _told(home: Path, job: int) -> Iterator[str]:
    with contextlib.closing(sqlite3.connect(home / "store.db")) as db:
        for row in db.execute("SELECT state, started, ended, attempt FROM jobs WHERE id=?", (job,)):
            yield f"  row {row}"
        for body in db.execute("SELECT body FROM attempts WHERE job=?", (job,)):
            yield f"  earlier attempt {body}"
        for at, text in db.execute("SELECT at, text FROM events WHERE job=? ORDER BY seq", (job,)):
            yield f"  {at:.3f} {text}"


def _written(roots: Iterable[Path], job: int) -> Iterator[str]:
    for root in roots:
        for record in sorted(root.glob(f"records/*-{job}-*-*")):
            yield f"  {record}: {sorted(file.name for file in record.iterdir())}"
            for name in ("life", "exit"):
                with contextlib.suppress(OSError):
                    yield f"  {name}: {' '.join((record / name).read_text().split())[:600]}"
