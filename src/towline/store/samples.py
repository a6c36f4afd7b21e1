"""What jobs used, as the store remembers it: a row per stretch, and never many of one job."""

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

import msgspec

from towline.core.samples import MOST, SampleStretch, thinned

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(SampleStretch).decode
_MOST_COUNTED = 10_000
_INSERT = "INSERT OR REPLACE INTO samples VALUES (?,?,?)"


class SampleRows:
    """The part of the store that knows what jobs used."""

    def __init__(
        self,
        db: sqlite3.Connection,
        reader: sqlite3.Connection,
        transaction: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._db = db
        self._reader = reader
        self._transaction = transaction
        #: Job -> how many rows it has, as far as that was looked up.
        self._counts: dict[int, int] = {}

    def add(self, measured: Iterable[tuple[int, SampleStretch]]) -> None:
        """Write stretches of jobs, in one transaction; a job that was forgotten has none."""
        if len(self._counts) > _MOST_COUNTED:
            self._counts.clear()  # most of them have ended
        with self._transaction():
            for job, stretch in measured:
                if self._db.execute("SELECT 1 FROM jobs WHERE id=?", (job,)).fetchone() is None:
                    continue
                self._db.execute(_INSERT, (job, stretch.at, _encode(stretch)))
                self._counts[job] = self._counts.get(job) or self._count(job)
                self._counts[job] += 1
                if self._counts[job] > MOST:
                    self._thin(job)

    def of_job(self, job: int) -> list[SampleStretch]:
        """All that is known, the oldest first."""
        return _read(self._reader, job)

    def _count(self, job: int) -> int:
        # The row that was just written is counted by whoever asks.
        row = self._db.execute("SELECT count(*) FROM samples WHERE job=?", (job,)).fetchone()
        return max(0, int(row[0]) - 1)

    def _thin(self, job: int) -> None:
        fewer = thinned(_read(self._db, job))
        self._db.execute("DELETE FROM samples WHERE job=?", (job,))
        self._db.executemany(_INSERT, [(job, one.at, _encode(one)) for one in fewer])
        self._counts[job] = len(fewer)


def _read(db: sqlite3.Connection, job: int) -> list[SampleStretch]:
    rows = db.execute("SELECT body FROM samples WHERE job=? ORDER BY at", (job,))
    return [_decode(row[0]) for row in rows]
