"""Which groups jobs are shared with, where that changed after they were submitted."""

import sqlite3
from collections.abc import Callable, Collection, Iterable

import msgspec

from towline.model.batch import Batch
from towline.model.job import Job
from towline.store.accounts import Transaction

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[str, ...]).decode


class ShareRows:
    """The part of the store that knows what is shared; a batch is shared as a whole."""

    def __init__(
        self,
        db: sqlite3.Connection,
        reader: sqlite3.Connection,
        transaction: Transaction,
        batch_of: Callable[[int], Batch | None],
    ) -> None:
        self._db = db
        self._reader = reader
        self._transaction = transaction
        self._batch_of = batch_of

    def groups_of(self, job: Job) -> tuple[str, ...]:
        """The groups that may look at a job, and stop it."""
        row = self._reader.execute(
            "SELECT groups FROM shares WHERE unit=?", (self._unit(job),)
        ).fetchone()
        return _decode(row[0]) if row else job.spec.groups

    def set_groups(self, job: Job, groups: Collection[str]) -> None:
        with self._transaction():
            self._set(self._unit(job), groups)

    def forget_group(self, group: str) -> None:
        """Take a group off all that is shared with it."""
        with self._transaction():
            for unit, groups in [*self._submitted_with(group), *self._changed()]:
                if group in groups:
                    self._set(unit, [one for one in groups if one != group])

    def _submitted_with(self, group: str) -> Iterable[tuple[int, tuple[str, ...]]]:
        like = f'%"groups":[%"{group}"%'
        for table, column, unit in (("jobs", "spec", "id"), ("batches", "body", "first")):
            rows = self._db.execute(
                f"SELECT {unit}, json_extract(CAST({column} AS TEXT), ?) FROM {table} "
                f"WHERE CAST({column} AS TEXT) LIKE ? AND {unit} NOT IN (SELECT unit FROM shares)",
                ("$.groups" if table == "jobs" else "$.base.groups", like),
            ).fetchall()
            yield from ((number, _decode(found)) for number, found in rows if found)

    def _changed(self) -> Iterable[tuple[int, tuple[str, ...]]]:
        rows = self._db.execute("SELECT unit, groups FROM shares").fetchall()
        return [(unit, _decode(groups)) for unit, groups in rows]

    def _set(self, unit: int, groups: Collection[str]) -> None:
        row = (unit, _encode(sorted(groups)).decode())
        self._db.execute("INSERT OR REPLACE INTO shares VALUES (?,?)", row)

    def _unit(self, job: Job) -> int:
        batch = self._batch_of(job.id) if job.spec.batch else None
        return batch.first if batch is not None else job.id
