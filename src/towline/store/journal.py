"""The journal on disk: written in the very transaction that changes the rows it tells of."""

import sqlite3
from collections import deque
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from towline.model.batch import BatchKey
from towline.model.job import Job
from towline.model.journal import JournalEvent, Kind, Remark, Told
from towline.model.results import ResultsState

_INSERT = "INSERT INTO journal VALUES (?,?,?,?,?,?,?,?,?)"
_SELECT = "SELECT seq, at, kind, owner, job, batch, attempt, machine, data FROM journal"
#: What was remarked of a job's results since it ended last.
_REMARKS = (
    f"{_SELECT} WHERE job=:job AND kind=:remark AND seq > "
    "(SELECT coalesce(max(seq), 0) FROM journal WHERE job=:job AND kind=:ended) ORDER BY seq"
)
_encode = msgspec.json.Encoder().encode


class Note(Struct, frozen=True):
    """What came home of a job that has ended."""

    job: Job
    results: ResultsState
    at: float
    #: What did not come as it was over there.
    remarks: tuple[Remark, ...] = ()
    #: What is remembered of it (workspace/placing.py).
    brought: bytes = b""


class JournalRows:
    """Append within a transaction of the store; what was committed is there to be published."""

    def __init__(self, db: sqlite3.Connection, reader: sqlite3.Connection) -> None:
        self._db = db
        self._reader = reader
        self._next = self.last_seq() + 1
        #: Written in the transaction that is open, and in those that have been committed.
        self._open: list[JournalEvent] = []
        self._committed: deque[JournalEvent] = deque()

    # --- writing -----------------------------------------------------------------------------

    def tell(self, told: Iterable[Told], at: float) -> None:
        """Enter what the core decided about jobs."""
        first = self._next + len(self._open)
        self._append([one.event(seq, at) for seq, one in enumerate(told, first)])

    def note(self, kind: Kind, at: float, **about: object) -> None:
        """Enter something else; what is no column of the journal is data."""
        seq = self._next + len(self._open)
        columns = {name: about.pop(name) for name in _COLUMNS if name in about}
        self._append([JournalEvent(seq, at, kind, data=_encode(about), **columns)])  # type: ignore[arg-type]

    def note_results(self, note: Note) -> None:
        """Enter what came home of a job, and what did not come as it was over there."""
        job = note.job
        about = {"job": job.id, "owner": job.spec.owner, "batch": job.spec.batch}
        for remark in note.remarks:
            self.note(Kind.HOME_REMARK, note.at, remark=remark, **about)
        kind = Kind.NOT_HOME if note.results.kind == "failed" else Kind.HOME
        self.note(kind, note.at, results=note.results, **about)

    def _append(self, events: list[JournalEvent]) -> None:
        rows = [msgspec.structs.astuple(event) for event in events]
        self._db.executemany(_INSERT, rows)
        self._open += events

    def commit(self) -> None:
        """The transaction is on disk."""
        self._next += len(self._open)
        self._committed.extend(self._open)
        self._open.clear()

    def roll_back(self) -> None:
        self._open.clear()

    def take_committed(self) -> list[JournalEvent]:
        """Events nobody has been told of yet, each of them once."""
        taken = []
        while self._committed:
            taken.append(self._committed.popleft())
        return taken

    # --- reading -----------------------------------------------------------------------------

    def of_job(self, job_id: int, limit: int = -1) -> list[JournalEvent]:
        """The last events of a job, the oldest first."""
        query = f"{_SELECT} WHERE job=? ORDER BY seq DESC LIMIT ?"
        return self._events(query, (job_id, limit))[::-1]

    def since(
        self,
        seq: int,
        limit: int,
        job: int = 0,
        batch: BatchKey | None = None,
        between: tuple[int, int] | None = None,
        kinds: Sequence[Kind] = (),
        owner: str = "",
    ) -> list[JournalEvent]:
        """Read what happened after an event: to all, to one job, a batch, or a range of jobs.

        `owner`: only what is theirs.
        """
        first, last = (job, job) if job else between or (0, 0)
        chosen = " AND job BETWEEN ? AND ?" if last else ""
        values: list[object] = [seq, *((first, last) if last else ())]
        if batch:
            chosen += " AND owner = ? AND batch = ?"
            values += batch
        if owner:
            chosen += " AND owner = ?"
            values.append(owner)
        if kinds:
            chosen += f" AND kind IN ({','.join('?' * len(kinds))})"
            values += kinds
        query = f"{_SELECT} WHERE seq > ?{chosen} ORDER BY seq LIMIT ?"
        return self._events(query, (*values, limit))

    def remarks(self, job_id: int) -> list[JournalEvent]:
        """What was remarked of a job's results since it ended last."""
        kinds = {"remark": Kind.HOME_REMARK, "ended": Kind.ENDED}
        return self._events(_REMARKS, {"job": job_id, **kinds})

    def cleaned_at(self, job_id: int) -> float | None:
        """When the folder of a job was last removed from its machine."""
        row = self._reader.execute(
            "SELECT max(at) FROM journal WHERE job=? AND kind=?", (job_id, Kind.CLEANED)
        ).fetchone()
        at: float | None = row[0]
        return at

    def last_seq(self) -> int:
        row = self._reader.execute("SELECT coalesce(max(seq), 0) FROM journal").fetchone()
        seq: int = row[0]
        return seq

    def _events(
        self, query: str, values: Sequence[object] | dict[str, object]
    ) -> list[JournalEvent]:
        return [JournalEvent(*row) for row in self._reader.execute(query, values)]


_COLUMNS = ("owner", "job", "batch", "attempt", "machine")
