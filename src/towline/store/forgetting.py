"""Jobs that are not to be remembered any more."""

import sqlite3
from collections.abc import Iterable

from towline.model.batch import BatchKey

#: Tables that say something of a job, and the column that tells of which.
_OF_A_JOB = (
    ("jobs", "id"),
    ("attempts", "job"),
    ("journal", "job"),
    ("brought", "job"),
    ("samples", "job"),
    ("services", "job"),
    ("forwards", "job"),
    ("shares", "unit"),
)
#: The highest number that a job ever had here.
LAST = "last"


def forget_jobs(db: sqlite3.Connection, ids: Iterable[int], batches: Iterable[BatchKey]) -> None:
    """Remove the rows of jobs and batches; their numbers are never given out again."""
    last = db.execute("SELECT max(id) FROM jobs").fetchone()[0] or 0
    db.execute("INSERT OR REPLACE INTO meta VALUES (?,?)", (LAST, str(max(last, last_id(db)))))
    rows = [(job_id,) for job_id in ids]
    for table, column in _OF_A_JOB:
        db.executemany(f"DELETE FROM {table} WHERE {column}=?", rows)
    db.executemany("DELETE FROM batches WHERE owner=? AND name=?", batches)


def last_id(db: sqlite3.Connection) -> int:
    row = db.execute("SELECT value FROM meta WHERE key=?", (LAST,)).fetchone()
    highest = db.execute("SELECT coalesce(max(id), 0) FROM jobs").fetchone()[0]
    return max(int(row[0]) if row else 0, int(highest))
