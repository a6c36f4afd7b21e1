"""What is known of a job that went wrong: its row and history here, its record on its machine."""

import contextlib
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

#: Where Towline keeps its things on a host.
THERE = "home/worker/.towline"
MOST_TROUBLES = 60
_JOB = re.compile(r"job (\d+)")


def evidence(
    wrong: Iterable[str],
    home: Path,
    hosts: Iterable[Path],
    done_to: Callable[[int], Iterable[str]] = lambda job: (),
) -> list[str]:
    """Lines for whoever looks for the cause, in the order of the jobs; `hosts` are their disks,
    `done_to` tells what was done to a job."""
    jobs = sorted({int(found[1]) for text in wrong if (found := _JOB.match(text))})
    roots = [home / "machine", *(host / THERE for host in hosts)]
    lines = []
    for job in jobs:
        done = (f"  {line}" for line in done_to(job))
        lines += [f"job {job}:", *_told(home, job), *_written(roots, job), *done]
    if jobs:
        lines += [line for root in roots for line in _troubles(root)]
    return lines


def _troubles(root: Path) -> Iterator[str]:
    """What agents there noted of themselves."""
    with contextlib.suppress(OSError):
        lines = (root / "trouble.log").read_text().splitlines()[-MOST_TROUBLES:]
        yield from (f"{root}/trouble.log: {line}" for line in lines)


def _told(home: Path, job: int) -> Iterator[str]:
    with contextlib.closing(sqlite3.connect(home / "store.db")) as db:
        for row in db.execute("SELECT state, started, ended, attempt FROM jobs WHERE id=?", (job,)):
            yield f"  row {row}"
        for body in db.execute("SELECT body FROM attempts WHERE job=?", (job,)):
            yield f"  earlier attempt {body}"
        query = "SELECT at, kind, attempt, data FROM journal WHERE job=? ORDER BY seq"
        for at, *told in db.execute(query, (job,)):
            yield f"  {at:.3f} {told}"


def _written(roots: Iterable[Path], job: int) -> Iterator[str]:
    for root in roots:
        for record in sorted(root.glob(f"records/*-{job}-*-*")):
            yield f"  {record}: {sorted(file.name for file in record.iterdir())}"
            for name in ("life", "exit"):
                with contextlib.suppress(OSError):
                    yield f"  {name}: {' '.join((record / name).read_text().split())[:600]}"
