"""Batches in the store: one row for what its jobs share, and a short row for each job."""

import logging
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

import msgspec

from towline.errors import Damaged, NotFound
from towline.model.batch import Batch, Counts, Line
from towline.model.job import State
from towline.model.journal import Kind
from towline.store.journal import JournalRows
from towline.store.rows import encode

log = logging.getLogger("towline")

_decode = msgspec.json.Decoder(Batch).decode

_INSERT = (
    "INSERT INTO jobs (id, owner, cluster, title, state, submitted, spec, batch) "
    "VALUES (?,?,?,?,'queued',?,?,?)"
)


class BatchRows:
    """The part of the store that knows of batches."""

    def __init__(
        self,
        db: sqlite3.Connection,
        reader: sqlite3.Connection,
        transaction: Callable[[], AbstractContextManager[None]],
        journal: JournalRows,
    ) -> None:
        self._db = db
        self._reader = reader
        self._transaction = transaction
        self._journal = journal
        self._known: dict[str, Batch] = {}

    # --- writing -----------------------------------------------------------------------------

    def add(self, batch: Batch, lines: Iterable[Line], key: str = "") -> None:
        """All jobs of a batch at once, and the key they came under."""
        base = batch.base
        rows = (
            (
                batch.first + place,
                base.owner,
                base.cluster,
                line.title,
                batch.submitted,
                encode(line),
                batch.name,
            )
            for place, line in enumerate(lines)
        )
        with self._transaction():
            self._write(batch)
            self._db.executemany(_INSERT, rows)
            self._journal.note(
                Kind.BATCH_SUBMITTED,
                batch.submitted,
                owner=base.owner,
                batch=batch.name,
                first=batch.first,
                count=batch.count,
            )
            if key:
                row = (key, batch.first, batch.count)
                self._db.execute("INSERT OR IGNORE INTO submissions VALUES (?,?,?)", row)
        self._known[batch.name] = batch

    def change(self, batch: Batch, at: float) -> None:
        """What is known of a batch itself has changed."""
        about = {"owner": batch.base.owner, "batch": batch.name, "stopped": batch.stopped}
        with self._transaction():
            self._write(batch)
            self._journal.note(Kind.BATCH_CHANGED, at, **about)
        self._known[batch.name] = batch

    def note_trouble(self, batch: Batch, at: float, why: str) -> None:
        """Something went wrong with a batch in the Engine itself."""
        about = {"owner": batch.base.owner, "batch": batch.name, "why": why}
        with self._transaction():
            self._journal.note(Kind.BATCH_TROUBLE, at, **about)

    def forget(self, names: Iterable[str]) -> None:
        """Their rows are gone."""
        for name in names:
            self._known.pop(name, None)

    def _write(self, batch: Batch) -> None:
        self._db.execute(
            "INSERT OR REPLACE INTO batches VALUES (?,?,?,?)",
            (batch.name, batch.first, batch.count, encode(batch)),
        )

    # --- reading -----------------------------------------------------------------------------

    def named(self, name: str) -> Batch:
        if name not in self._known:
            row = self._reader.execute("SELECT body FROM batches WHERE name=?", (name,)).fetchone()
            if row is None:
                raise NotFound(f"there is no batch {name!r}", hint="`tow batch list` names them")
            try:
                self._known[name] = _decode(row[0])
            except (msgspec.MsgspecError, ValueError, TypeError) as error:
                raise Damaged(
                    f"the record of the batch {name!r} cannot be read: {error}",
                    hint="its jobs cannot be told of; the others are not affected",
                ) from error
        return self._known[name]

    def find(self, name: str) -> Batch | None:
        """The batch of this name, if there is one."""
        return self.named(name) if self.exists(name) else None

    def line(self, batch: Batch, number: int) -> int:
        """The job of one of its lines; 0 when there is none."""
        query = "SELECT id FROM jobs WHERE json_extract(CAST(spec AS TEXT), '$.number') = ? AND "
        # Lines are numbered as they stand in their file: mostly without a gap.
        for first, last in ((batch.first + number - 1,) * 2, (batch.first, batch.last)):
            row = self._reader.execute(
                f"{query} id BETWEEN ? AND ?", (number, max(first, batch.first), last)
            ).fetchone()
            if row and row[0] <= batch.last:
                job: int = row[0]
                return job
        return 0

    def exists(self, name: str) -> bool:
        query = "SELECT 1 FROM batches WHERE name=?"
        return self._reader.execute(query, (name,)).fetchone() is not None

    def of_job(self, job_id: int) -> str:
        row = self._reader.execute("SELECT batch FROM jobs WHERE id=?", (job_id,)).fetchone()
        return row[0] if row else ""

    def all(self) -> list[Batch]:
        """Every batch, the oldest first."""
        rows = self._reader.execute("SELECT name FROM batches ORDER BY first").fetchall()
        return self._readable(name for (name,) in rows)

    def unfinished(self) -> list[Batch]:
        """Batches with a job that has not ended."""
        rows = self._reader.execute("SELECT DISTINCT batch FROM jobs WHERE ended IS NULL")
        return self._readable(name for (name,) in rows.fetchall() if name)

    def _readable(self, names: Iterable[str]) -> list[Batch]:
        """Those whose rows are whole; one that is damaged does not hide the others."""
        found = []
        for name in names:
            try:
                found.append(self.named(name))
            except (Damaged, NotFound):
                log.exception("the record of the batch %s", name)
        return found

    def counts(self, batch: Batch) -> Counts:
        rows = self._reader.execute(
            "SELECT state, count(*) FROM jobs WHERE id BETWEEN ? AND ? GROUP BY state",
            (batch.first, batch.last),
        )
        return {State(state): count for state, count in rows}

    def states(self, ids: Iterable[int]) -> list[State]:
        """The states of some jobs, as they are written."""
        query = "SELECT state FROM jobs WHERE id=?"
        return [State(self._reader.execute(query, (job,)).fetchone()[0]) for job in ids]

    def ended_at(self, batch: Batch) -> float | None:
        """When its last job ended."""
        row = self._reader.execute(
            "SELECT max(ended) FROM jobs WHERE id BETWEEN ? AND ?", (batch.first, batch.last)
        ).fetchone()
        return row[0] if row else None

    def results_wanted(self, batch: Batch) -> int:
        """Jobs that have ended and whose results are not home."""
        row = self._reader.execute(
            "SELECT count(*) FROM jobs WHERE results='wanted' AND id BETWEEN ? AND ?",
            (batch.first, batch.last),
        ).fetchone()
        count: int = row[0]
        return count
