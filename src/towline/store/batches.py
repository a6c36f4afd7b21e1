"""Batches in the store: one row for what its jobs share, and a short row for each job."""

import logging
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

import msgspec

from towline.core.following import MOST
from towline.errors import Damaged, NotFound
from towline.model.batch import Batch, BatchKey, Counts, Line
from towline.model.job import State
from towline.model.journal import Kind
from towline.model.principal import Principal
from towline.store.journal import JournalRows
from towline.store.rows import encode

log = logging.getLogger("towline")

_decode = msgspec.json.Decoder(Batch).decode

#: Whose, what the submitter called it, and the first and the number of its jobs.
REMEMBER_KEY = "INSERT OR IGNORE INTO keys VALUES (?,?,?,?)"
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
        self._known: dict[BatchKey, Batch] = {}

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
                self._db.execute(REMEMBER_KEY, (base.owner, key, batch.first, batch.count))
        self._known[batch.key] = batch

    def change(self, batch: Batch, at: float) -> None:
        """What is known of a batch itself has changed."""
        about = {"owner": batch.base.owner, "batch": batch.name, "stopped": batch.stopped}
        with self._transaction():
            self._write(batch)
            self._journal.note(Kind.BATCH_CHANGED, at, **about)
        self._known[batch.key] = batch

    def note_trouble(self, batch: Batch, at: float, why: str) -> None:
        """Something went wrong with a batch in the Engine itself."""
        about = {"owner": batch.base.owner, "batch": batch.name, "why": why}
        with self._transaction():
            self._journal.note(Kind.BATCH_TROUBLE, at, **about)

    def forget(self, keys: Iterable[BatchKey]) -> None:
        """Their rows are gone."""
        for key in keys:
            self._known.pop(key, None)

    def _write(self, batch: Batch) -> None:
        self._db.execute(
            "INSERT OR REPLACE INTO batches VALUES (?,?,?,?,?)",
            (*batch.key, batch.first, batch.count, encode(batch)),
        )

    # --- reading -----------------------------------------------------------------------------

    def named(self, owner: str, name: str) -> Batch:
        """The batch of this name that belongs to somebody."""
        key = (owner, name)
        if key not in self._known:
            query = "SELECT body FROM batches WHERE owner=? AND name=?"
            row = self._reader.execute(query, key).fetchone()
            if row is None:
                raise NotFound(f"there is no batch {name!r}", hint="`tow batch list` names them")
            try:
                self._known[key] = _decode(row[0])
            except (msgspec.MsgspecError, ValueError, TypeError) as error:
                raise Damaged(
                    f"the record of the batch {name!r} cannot be read: {error}",
                    hint="its jobs cannot be told of; the others are not affected",
                ) from error
        return self._known[key]

    def find(self, who: Principal, name: str) -> Batch | None:
        """What somebody means by a name: an own batch, or where one sees all, anybody's newest."""
        query = "SELECT owner FROM batches WHERE name=? ORDER BY owner=? DESC, first DESC LIMIT 1"
        row = self._reader.execute(query, (name, who.name)).fetchone()
        return self.named(row[0], name) if row and who.owns(row[0]) else None

    def newest(self, name: str) -> Batch | None:
        """Anybody's newest batch of a name: chains know batches by their names alone."""
        return self.find(Principal("", administrator=True), name)

    def meant(self, who: Principal, name: str) -> Batch:
        """The same; there has to be one."""
        found = self.find(who, name)
        return self.named(who.name, name) if found is None else found

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

    def exists(self, owner: str, name: str) -> bool:
        query = "SELECT 1 FROM batches WHERE owner=? AND name=?"
        return self._reader.execute(query, (owner, name)).fetchone() is not None

    def of_job(self, job_id: int) -> Batch | None:
        """The batch that a job belongs to, if it does to one."""
        query = "SELECT owner, batch FROM jobs WHERE id=?"
        row = self._reader.execute(query, (job_id,)).fetchone()
        return self.named(*row) if row and row[1] else None

    def all(self, owner: str = "") -> list[Batch]:
        """Every batch, or those of one owner, the oldest first."""
        query = "SELECT owner, name FROM batches WHERE ? IN ('', owner) ORDER BY first"
        return self._readable(self._reader.execute(query, (owner,)).fetchall())

    def unfinished(self) -> list[Batch]:
        """Batches with a job that has not ended."""
        query = "SELECT DISTINCT owner, batch FROM jobs WHERE ended IS NULL"
        rows = self._reader.execute(query).fetchall()
        return self._readable((owner, name) for owner, name in rows if name)

    def _readable(self, keys: Iterable[BatchKey]) -> list[Batch]:
        """Those whose rows are whole; one that is damaged does not hide the others."""
        found = []
        for key in keys:
            try:
                found.append(self.named(*key))
            except (Damaged, NotFound):
                log.exception("the record of the batch %s", key[1])
        return found

    def counts(self, batch: Batch) -> Counts:
        rows = self._reader.execute(
            "SELECT state, count(*) FROM jobs WHERE id BETWEEN ? AND ? GROUP BY state",
            (batch.first, batch.last),
        )
        return {State(state): count for state, count in rows}

    def became(self, name: str) -> State | None:
        """`done` when all of its jobs are, `failed` when others ended; None: some have not."""
        batch = self.newest(name)
        if batch is None:
            return State.LOST

        def any_job(condition: str) -> bool:
            query = f"SELECT 1 FROM jobs WHERE id BETWEEN ? AND ? AND {condition} LIMIT 1"
            return self._reader.execute(query, (batch.first, batch.last)).fetchone() is not None

        if any_job("ended IS NULL"):
            return None
        return State.FAILED if any_job("state != 'done'") else State.DONE

    def lines(self, name: str) -> dict[int, State] | None:
        """Where each job of a batch stands, as that is written; None where there is no such batch,
        or they are too many."""
        batch = self.newest(name)
        if batch is None or batch.count > MOST:
            return None
        query = "SELECT id, state FROM jobs WHERE id BETWEEN ? AND ?"
        rows = self._reader.execute(query, (batch.first, batch.last))
        return {job: State(state) for job, state in rows}

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
            "SELECT count(*) FROM jobs WHERE results='pending' AND id BETWEEN ? AND ?",
            (batch.first, batch.last),
        ).fetchone()
        count: int = row[0]
        return count

    def some_wanted(self, batch: Batch, most: int) -> list[int]:
        """Some of those jobs."""
        rows = self._reader.execute(
            "SELECT id FROM jobs WHERE results='pending' AND id BETWEEN ? AND ? LIMIT ?",
            (batch.first, batch.last, most),
        )
        return [number for (number,) in rows]
