"""What the Engine remembers: SQLite in WAL mode, one writer, one transaction per step.

Rows are the truth; the append-only `events` table explains them. Every commit reaches the disk
(`synchronous=FULL`): a job that was acknowledged survives a power cut as well as a kill -9.
"""

import hashlib
import os
import secrets
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from towline.errors import EngineError
from towline.model.job import Attempt, Job, JobSpec, State
from towline.store.migrations import MIGRATIONS, migrate, schema_version

_encode = msgspec.json.Encoder().encode
_decode_spec = msgspec.json.Decoder(JobSpec).decode
_decode_attempt = msgspec.json.Decoder(Attempt).decode
_decode_names = msgspec.json.Decoder(tuple[str, ...]).decode

#: The columns of a job's row that are fields of `Job`.
_FIELDS = (
    "id",
    "state",
    "submitted",
    "started",
    "ended",
    "exit_code",
    "reason",
    "failures",
    "stop_asked",
    "spec",
    "attempt",
    "avoid",
    "results",
)
_INSERT = (
    "INSERT INTO jobs (id, owner, cluster, title, state, submitted, started, ended, exit_code, "
    "reason, failures, stop_asked, spec, attempt, avoid, results) "
    "VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
)
_UPDATE = (
    "UPDATE jobs SET state=?, started=?, ended=?, exit_code=?, reason=?, failures=?, stop_asked=?, "
    "attempt=?, avoid=?, results=? WHERE id=?"
)


#: What the submitter called it, and the first and the number of its jobs.
Submission = tuple[str, int, int]


class Store:
    """One file. Writes of all threads take turns; reads use a connection of their own."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._writing = threading.Lock()
        self._db = _open(path)
        version = schema_version(self._db)
        if version > len(MIGRATIONS):
            raise EngineError(
                f"the store {path} was written by a newer Towline (format {version}, "
                f"this one knows up to {len(MIGRATIONS)})",
                hint="upgrade Towline, or move the store away to start afresh",
            )
        migrate(self._db)
        self._reader = _open(path)
        self.engine_id = self._meta("engine", lambda: secrets.token_hex(4))
        self._next_id = self._db.execute("SELECT coalesce(max(id), 0) FROM jobs").fetchone()[0] + 1

    def close(self) -> None:
        self._reader.close()
        self._db.close()

    # --- writing -----------------------------------------------------------------------------

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing; the lock keeps two threads out of each other's transaction."""
        with self._writing, self._db:
            self._db.execute("BEGIN IMMEDIATE")
            yield

    def new_ids(self, count: int) -> range:
        """Numbers for new jobs. Unused ones after a crash are given out again: nobody saw them."""
        first = self._next_id
        self._next_id += count
        return range(first, first + count)

    def commit(
        self,
        changed: Mapping[int, Job],
        fresh: Collection[int],
        told: Iterable[tuple[int, str]],
        now: float,
        past: Iterable[tuple[int, Attempt]] = (),
        submissions: Iterable[Submission] = (),
    ) -> None:
        """One step of the Engine, all or nothing.

        `fresh` are the jobs that have no row yet, `past` are attempts that others follow.
        """
        inserts = [_insert_row(job) for job in changed.values() if job.id in fresh]
        updates = [_update_row(job) for job in changed.values() if job.id not in fresh]
        with self._transaction():
            self._db.executemany(_INSERT, inserts)
            self._db.executemany(_UPDATE, updates)
            self._db.executemany(
                "INSERT OR REPLACE INTO attempts VALUES (?,?,?)",
                [(job, attempt.number, _encode(attempt)) for job, attempt in past],
            )
            self._db.executemany("INSERT INTO submissions VALUES (?,?,?)", submissions)
            self._db.executemany(
                "INSERT INTO events (at, job, text) VALUES (?,?,?)",
                [(now, job, text) for job, text in told],
            )

    def note_results(self, job_id: int, results: str, now: float, told: Iterable[str]) -> None:
        """What came home of a job that has ended."""
        with self._transaction():
            self._db.execute("UPDATE jobs SET results=? WHERE id=?", (results, job_id))
            self._db.executemany(
                "INSERT INTO events (at, job, text) VALUES (?,?,?)",
                [(now, job_id, text) for text in told],
            )

    def remember_environment(self, environ: Mapping[str, str]) -> str:
        """Keep a submitter's environment once, however many jobs share it."""
        body = _encode(dict(sorted(environ.items())))
        digest = hashlib.sha256(body).hexdigest()
        with self._transaction():
            self._db.execute("INSERT OR IGNORE INTO environments VALUES (?,?)", (digest, body))
        return digest

    def remember_cluster(self, name: str, body: bytes) -> None:
        with self._transaction():
            self._db.execute("INSERT OR REPLACE INTO clusters VALUES (?,?)", (name, body))

    def forget_cluster(self, name: str) -> None:
        with self._transaction():
            self._db.execute("DELETE FROM clusters WHERE name=?", (name,))

    def remember_machine(self, name: str, body: bytes) -> None:
        """How a machine is reached: its jobs are found again even if it left the configuration."""
        with self._transaction():
            self._db.execute("INSERT OR REPLACE INTO machines VALUES (?,?)", (name, body))

    def remember_forward(self, local: int, job: int, port: int) -> None:
        with self._transaction():
            self._db.execute("INSERT OR REPLACE INTO forwards VALUES (?,?,?)", (local, job, port))

    def forget_forward(self, local: int) -> None:
        with self._transaction():
            self._db.execute("DELETE FROM forwards WHERE local=?", (local,))

    def _meta(self, key: str, make: Callable[[], str]) -> str:
        row = self._db.execute("SELECT value FROM meta WHERE key=?", (key,)).fetchone()
        if row:
            value: str = row[0]
            return value
        value = make()
        with self._transaction():
            self._db.execute("INSERT INTO meta VALUES (?,?)", (key, value))
        return value

    # --- reading -----------------------------------------------------------------------------

    def job(self, job_id: int) -> Job | None:
        rows = self._jobs("WHERE id=?", (job_id,))
        return rows[0] if rows else None

    def attempt(self, job_id: int, number: int) -> Attempt | None:
        """An attempt that another one followed."""
        row = self._reader.execute(
            "SELECT body FROM attempts WHERE job=? AND number=?", (job_id, number)
        ).fetchone()
        return _decode_attempt(row[0]) if row else None

    def submission(self, key: str) -> range:
        """The jobs that were accepted under a key; none if it never arrived."""
        row = self._reader.execute(
            "SELECT first, first + count FROM submissions WHERE key=?", (key,)
        ).fetchone()
        return range(*row) if row else range(0)

    def unfinished(self) -> list[Job]:
        return self._jobs("WHERE ended IS NULL ORDER BY id", ())

    def results_wanted(self) -> list[int]:
        rows = self._reader.execute("SELECT id FROM jobs WHERE results='wanted' ORDER BY id")
        return [row[0] for row in rows]

    def recent(self, since: float, limit: int, state: str = "", cluster: str = "") -> list[Job]:
        """Jobs that have not ended or ended after `since`, the newest `limit`, oldest first."""
        where = ["(ended IS NULL OR ended >= ?)"]
        values: list[object] = [since]
        for column, value in (("state", state), ("cluster", cluster)):
            if value:
                where.append(f"{column} = ?")
                values.append(value)
        jobs = self._jobs(f"WHERE {' AND '.join(where)} ORDER BY id DESC LIMIT ?", (*values, limit))
        return jobs[::-1]

    def history(self, job_id: int, limit: int = 200) -> list[tuple[float, str]]:
        rows = self._reader.execute(
            "SELECT at, text FROM events WHERE job=? ORDER BY seq DESC LIMIT ?", (job_id, limit)
        )
        return [(at, text) for at, text in rows][::-1]

    def environment(self, digest: str) -> dict[str, str] | None:
        row = self._reader.execute(
            "SELECT body FROM environments WHERE hash=?", (digest,)
        ).fetchone()
        return msgspec.json.decode(row[0], type=dict[str, str]) if row else None

    def clusters(self) -> dict[str, bytes]:
        return dict(self._reader.execute("SELECT name, body FROM clusters"))

    def machine(self, name: str) -> bytes | None:
        row = self._reader.execute("SELECT body FROM machines WHERE name=?", (name,)).fetchone()
        return row[0] if row else None

    def forwards(self) -> list[tuple[int, int, int]]:
        return list(self._reader.execute("SELECT local, job, port FROM forwards"))

    def _jobs(self, clause: str, values: tuple[object, ...]) -> list[Job]:
        rows = self._reader.execute(f"SELECT {', '.join(_FIELDS)} FROM jobs {clause}", values)
        return [_job(row) for row in rows]


def _open(path: str) -> sqlite3.Connection:
    fresh = not os.path.exists(path)
    try:
        if fresh:
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        db.execute("PRAGMA cache_size=-16000")
        return db
    except (sqlite3.DatabaseError, OSError) as error:
        raise EngineError(
            f"cannot open the store {path}: {error}",
            hint="if the file is damaged, move it away and start afresh",
        ) from error


def _insert_row(job: Job) -> tuple[object, ...]:
    return (
        job.id,
        job.spec.owner,
        job.spec.cluster,
        job.spec.title,
        job.state.value,
        job.submitted,
        job.started,
        job.ended,
        job.exit_code,
        job.reason,
        job.failures,
        job.stop_asked,
        _encode(job.spec),
        _encode(job.attempt) if job.attempt else None,
        _encode(job.avoid),
        job.results,
    )


def _update_row(job: Job) -> tuple[object, ...]:
    return (
        job.state.value,
        job.started,
        job.ended,
        job.exit_code,
        job.reason,
        job.failures,
        job.stop_asked,
        _encode(job.attempt) if job.attempt else None,
        _encode(job.avoid),
        job.results,
        job.id,
    )


def _job(row: tuple[Any, ...]) -> Job:
    found = dict(zip(_FIELDS, row, strict=True))
    found["spec"] = _decode_spec(found["spec"])
    found["state"] = State(found["state"])
    found["stop_asked"] = bool(found["stop_asked"])
    found["attempt"] = _decode_attempt(found["attempt"]) if found["attempt"] else None
    found["avoid"] = _decode_names(found["avoid"])
    return Job(**found)
