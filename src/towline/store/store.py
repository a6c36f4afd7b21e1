"""What the Engine remembers: SQLite in WAL mode, one writer, one transaction per step.

Rows are the truth; the journal tells how they came about, and is written with them. Every commit
reaches the disk (`synchronous=FULL`): a job that was acknowledged survives a power cut as well as
a kill -9.
"""

import hashlib
import logging
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from towline.errors import EngineError, TowlineError
from towline.model.batch import BatchKey
from towline.model.job import Attempt, Job, State, Unit
from towline.model.journal import Kind, Told
from towline.model.team.rules import Share
from towline.store.accounts import AccountRows
from towline.store.attempts import REMEMBER_ATTEMPT, AttemptRows, attempt_row
from towline.store.batches import REMEMBER_KEY, BatchRows
from towline.store.forgetting import forget_jobs, last_id
from towline.store.journal import JournalRows
from towline.store.migrations import MIGRATIONS, migrate, schema_version
from towline.store.nodes import REMEMBER_USED, NodeRows, used_row
from towline.store.results import REMEMBER_BROUGHT, BroughtRow, ResultRows
from towline.store.rows import (
    FIELDS,
    INSERT,
    UPDATE,
    encode,
    insert_row,
    job_of,
    update_row,
)
from towline.store.samples import SampleRows
from towline.store.sharing import ShareRows
from towline.store.tokens import ContentRows, TokenRows

log = logging.getLogger("towline")

#: Whose it is, what its sender called it, and the first and the number of its jobs.
Submission = tuple[str, str, int, int]
#: Values in one statement.
_MOST_IDS = 500


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
        #: Jobs whose rows turned out to be damaged, and how.
        self.unreadable: dict[int, str] = {}
        self.journal = JournalRows(self._db, self._reader)
        #: What is remembered of batches, of attempts that others followed, and of results.
        self.batches = BatchRows(self._db, self._reader, self.transaction, self.journal)
        self.attempts = AttemptRows(self._reader, self.job)
        self.samples = SampleRows(self._db, self._reader, self.transaction)
        self.results = ResultRows(self._db, self._reader, self.transaction, self.journal)
        #: Of a team's server: who there is, who is signed in, who sent what, what is shared.
        ground = (self._db, self._reader, self.transaction)
        self.accounts, self.tokens = AccountRows(*ground), TokenRows(*ground)
        self.contents, self.nodes = ContentRows(*ground), NodeRows(*ground)
        self.shares = ShareRows(*ground, self.batches.of_job)
        self.engine_id = self._meta("engine", lambda: secrets.token_hex(4))
        self._next_id = last_id(self._db) + 1

    def close(self) -> None:
        self._reader.close()
        self._db.close()

    # --- writing -----------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; the lock keeps two threads out of each other's transaction."""
        with self._writing:
            try:
                with self._db:
                    self._db.execute("BEGIN IMMEDIATE")
                    yield
            except BaseException:
                self.journal.roll_back()
                raise
            self.journal.commit()

    def new_ids(self, count: int) -> range:
        """Numbers for new jobs. Unused ones after a crash are given out again: nobody saw them."""
        first = self._next_id
        self._next_id += count
        return range(first, first + count)

    def commit(
        self,
        changed: Mapping[int, Job],
        fresh: Collection[int],
        told: Iterable[Told],
        now: float,
        past: Iterable[tuple[int, Attempt]] = (),
        submissions: Iterable[Submission] = (),
        brought: Iterable[BroughtRow] = (),
        used: Iterable[Share] = (),
    ) -> None:
        """One step of the Engine, all or nothing.

        `fresh` are the jobs that have no row yet, `past` are attempts that others follow, `used`
        is what owners have used by now.
        """
        inserts = [insert_row(job) for job in changed.values() if job.id in fresh]
        updates = [update_row(job) for job in changed.values() if job.id not in fresh]
        with self.transaction():
            self._db.executemany(INSERT, inserts)
            self._db.executemany(UPDATE, updates)
            self._db.executemany(REMEMBER_ATTEMPT, map(attempt_row, past))
            self._db.executemany(REMEMBER_KEY, submissions)
            self._db.executemany(REMEMBER_BROUGHT, brought)
            self._db.executemany(REMEMBER_USED, map(used_row, used))
            self.journal.tell(told, now)

    def note(self, kind: Kind, at: float, jobs: Iterable[Job], **about: object) -> None:
        """What happened to jobs without changing them."""
        with self.transaction():
            for job in jobs:
                spec = job.spec
                self.journal.note(kind, at, job=job.id, owner=spec.owner, batch=spec.batch, **about)

    def remember_environment(self, environ: Mapping[str, str]) -> str:
        """Keep a submitter's environment once, however many jobs share it."""
        body = encode(dict(sorted(environ.items())))
        digest = hashlib.sha256(body).hexdigest()
        with self.transaction():
            self._db.execute("INSERT OR IGNORE INTO environments VALUES (?,?)", (digest, body))
        return digest

    def remember_cluster(self, name: str, body: bytes) -> None:
        with self.transaction():
            self._db.execute("INSERT OR REPLACE INTO clusters VALUES (?,?)", (name, body))

    def forget_cluster(self, name: str) -> None:
        with self.transaction():
            self._db.execute("DELETE FROM clusters WHERE name=?", (name,))

    def remember_machine(self, bodies: Mapping[str, bytes]) -> None:
        """How a machine is reached: its jobs are found again even if it left the configuration."""
        with self.transaction():
            self._db.executemany("INSERT OR REPLACE INTO machines VALUES (?,?)", bodies.items())

    def remember_forward(self, local: int, job: int, port: int) -> None:
        with self.transaction():
            self._db.execute("INSERT OR REPLACE INTO forwards VALUES (?,?,?)", (local, job, port))

    def forget_forward(self, local: int) -> None:
        with self.transaction():
            self._db.execute("DELETE FROM forwards WHERE local=?", (local,))

    def remember_service(self, job: int, name: str, local: int) -> None:
        with self.transaction():
            self._db.execute("INSERT OR REPLACE INTO services VALUES (?,?,?)", (job, name, local))

    def forget_services(self, job: int) -> None:
        with self.transaction():
            self._db.execute("DELETE FROM services WHERE job=?", (job,))

    def forget(
        self, ids: Iterable[int], batches: Collection[BatchKey] = (), owner: str = ""
    ) -> None:
        """Jobs and batches that are not to be remembered any more, and whose they were."""
        ids = list(ids)
        with self.transaction():
            forget_jobs(self._db, ids, batches)
            about = {"jobs": ids, "batches": sorted(name for _, name in batches)}
            self.journal.note(Kind.FORGOTTEN, time.time(), owner=owner, **about)
        self.batches.forget(batches)

    def _meta(self, key: str, make: Callable[[], str]) -> str:
        row = self._db.execute("SELECT value FROM meta WHERE key=?", (key,)).fetchone()
        if row:
            value: str = row[0]
            return value
        value = make()
        with self.transaction():
            self._db.execute("INSERT INTO meta VALUES (?,?)", (key, value))
        return value

    # --- reading -----------------------------------------------------------------------------

    def job(self, job_id: int) -> Job | None:
        rows = self._jobs("WHERE id=?", (job_id,))
        return rows[0] if rows else None

    def jobs_of(self, ids: Sequence[int]) -> list[Job]:
        found: list[Job] = []
        for start in range(0, len(ids), _MOST_IDS):
            some = tuple(ids[start : start + _MOST_IDS])
            found += self._jobs(f"WHERE id IN ({','.join('?' * len(some))})", some)
        return found

    def submission(self, owner: str, key: str) -> range:
        """The jobs that were accepted under somebody's key; none if it never arrived."""
        row = self._reader.execute(
            "SELECT first, first + count FROM keys WHERE owner=? AND key=?", (owner, key)
        ).fetchone()
        return range(*row) if row else range(0)

    def unfinished(self) -> list[Job]:
        """What has not ended; jobs of a batch that wait are left to its feed."""
        return self._jobs(
            "WHERE ended IS NULL AND (batch = '' OR state != 'queued') ORDER BY id", ()
        )

    def waiting_of(self, first: int, last: int, limit: int) -> list[Job]:
        """The first jobs in a range of ids that wait."""
        clause = "WHERE id BETWEEN ? AND ? AND state = 'queued' ORDER BY id LIMIT ?"
        return self._jobs(clause, (first, last, limit))

    def jobs_between(
        self, first: int, last: int, states: Sequence[str] = (), limit: int = -1
    ) -> list[Job]:
        """Jobs in a range of ids, all or those in some states."""
        chosen = f" AND state IN ({', '.join('?' * len(states))})" if states else ""
        values = (first, last, *states, limit)
        return self._jobs(f"WHERE id BETWEEN ? AND ?{chosen} ORDER BY id LIMIT ?", values)

    def active(self, cluster: str = "", owner: str = "") -> list[Job]:
        """Jobs that have not ended, oldest first; batches are looked at as a whole."""
        chosen, values = _equal(cluster=cluster, owner=owner)
        return self._jobs(f"WHERE batch = '' AND ended IS NULL{chosen} ORDER BY id", values)

    def ended(
        self, since: float, limit: int, state: str = "", cluster: str = "", owner: str = ""
    ) -> list[Job]:
        """The newest jobs, not of batches, that ended after a moment; newest first."""
        chosen, values = _equal(state=state, cluster=cluster, owner=owner)
        clause = f"WHERE batch = '' AND ended >= ?{chosen} ORDER BY id DESC LIMIT ?"
        return self._jobs(clause, (since, *values, limit))

    def ended_count(self, since: float, state: str = "", cluster: str = "", owner: str = "") -> int:
        chosen, values = _equal(state=state, cluster=cluster, owner=owner)
        count: int = self._reader.execute(
            f"SELECT count(*) FROM jobs WHERE batch = '' AND ended >= ?{chosen}", (since, *values)
        ).fetchone()[0]
        return count

    def became(self, unit: Unit) -> State | None:
        """The final state of a job or a batch; None while it has not ended."""
        if isinstance(unit, str):
            return self.batches.became(unit)
        query = "SELECT state FROM jobs WHERE id=?"
        row = self._reader.execute(query, (unit,)).fetchone()
        state = State(row[0]) if row else State.LOST
        return state if state.final else None

    def skipped_because(self, unit: Unit) -> list[int]:
        """Jobs that were skipped because of what became of this job or batch."""
        name = "batch" if isinstance(unit, str) else "job"
        rows = self._reader.execute(
            "SELECT id FROM jobs WHERE state = 'skipped' AND "
            f"json_extract(CAST(reason AS TEXT), '$.{name}') = ? ORDER BY id",
            (unit,),
        )
        return [job for (job,) in rows]

    def titled(self, title: str, owner: str = "") -> tuple[int, bool]:
        """The job with this title, and whether it is active: of several one that is, the newest."""
        row = self._reader.execute(
            "SELECT id, ended IS NULL AS active FROM jobs WHERE batch = '' AND title = ? "
            "AND ? IN ('', owner) ORDER BY active DESC, id DESC LIMIT 1",
            (title, owner),
        ).fetchone()
        return (row[0], bool(row[1])) if row else (0, False)

    def newest(self, owner: str = "") -> tuple[int, str] | None:
        """The newest job, and the batch that it belongs to."""
        query = "SELECT id, batch FROM jobs WHERE ? IN ('', owner) ORDER BY id DESC LIMIT 1"
        row: tuple[int, str] | None = self._reader.execute(query, (owner,)).fetchone()
        return row

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

    def services(self) -> list[tuple[int, str, int]]:
        """Job, name and local port of each."""
        return list(self._reader.execute("SELECT job, name, local FROM services"))

    def _jobs(self, clause: str, values: tuple[object, ...]) -> list[Job]:
        rows = self._reader.execute(f"SELECT {', '.join(FIELDS)} FROM jobs {clause}", values)
        return [job for row in rows if (job := self._job_of(row)) is not None]

    def _job_of(self, row: tuple[Any, ...]) -> Job | None:
        """A job from its row; one that is damaged does not hide the others."""
        try:
            job = job_of(row, self.batches.named)
        except Exception as error:
            if row[0] not in self.unreadable:
                log.error("the record of job %s", row[0], exc_info=error)
            text = f"{type(error).__name__}: {error}"
            self.unreadable[row[0]] = error.text if isinstance(error, TowlineError) else text
            return None
        self.unreadable.pop(job.id, None)
        return job


def _equal(**columns: str) -> tuple[str, tuple[str, ...]]:
    """What of a row must be so, as a clause and its values; what is empty may be anything."""
    given = {name: value for name, value in columns.items() if value}
    return "".join(f" AND {name} = ?" for name in given), tuple(given.values())


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
