"""What came home of jobs, as the store remembers it."""

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

from towline.store.journal import JournalRows, Note
from towline.store.rows import results_row

#: A job, and what was brought home of it (workspace/placing.py).
BroughtRow = tuple[int, bytes]
_UPDATE = "UPDATE jobs SET results=?, results_path=?, results_why=? WHERE id=? AND ended IS ?"
REMEMBER_BROUGHT = "INSERT OR REPLACE INTO brought VALUES (?,?)"


class ResultRows:
    """The part of the store that knows of results."""

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

    def note(self, notes: Iterable[Note]) -> None:
        """What came home of jobs that have ended; one that was started again since has other
        results, which are still to come."""
        with self._transaction():
            for note in notes:
                row = (*results_row(note.results), note.job.id, note.job.ended)
                still = self._db.execute(_UPDATE, row)
                if note.brought:
                    self._db.execute(REMEMBER_BROUGHT, (note.job.id, note.brought))
                if still.rowcount:
                    self._journal.note_results(note)

    def remember_brought(self, job_id: int, brought: bytes) -> None:
        with self._transaction():
            self._db.execute(REMEMBER_BROUGHT, (job_id, brought))

    def brought(self, job_id: int) -> bytes | None:
        """What was brought home of a job so far, as it was remembered."""
        row = self._reader.execute("SELECT body FROM brought WHERE job=?", (job_id,)).fetchone()
        return row[0] if row else None

    def wanted(self) -> list[int]:
        """The jobs whose results are to come home."""
        rows = self._reader.execute("SELECT id FROM jobs WHERE results='pending' ORDER BY id")
        return [row[0] for row in rows]
