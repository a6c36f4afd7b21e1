"""Attempts that others followed, and those that were given up: each has a row of its own."""

import logging
import sqlite3
from collections.abc import Callable, Iterable

import msgspec

from towline.model.job import Attempt, Job
from towline.store.rows import decode_attempt, encode

log = logging.getLogger("towline")

REMEMBER_ATTEMPT = "INSERT OR REPLACE INTO attempts VALUES (?,?,?,?)"


def attempt_row(past: tuple[int, Attempt]) -> tuple[object, ...]:
    job, attempt = past
    return (job, attempt.number, encode(attempt), bool(attempt.unheard()))


class AttemptRows:
    """The part of the store that knows of earlier attempts; `job` finds the job of one."""

    def __init__(self, reader: sqlite3.Connection, job: Callable[[int], Job | None]) -> None:
        self._reader = reader
        self._job = job

    def numbered(self, job_id: int, number: int) -> Attempt | None:
        """An attempt that another one followed."""
        rows = self._readable("job=? AND number=?", job_id, number)
        return rows[0][1] if rows else None

    def of_job(self, job_id: int) -> list[Attempt]:
        """Those of a job that others followed."""
        return [attempt for _, attempt in self._readable("job=?", job_id)]

    def tokens(self, ids: Iterable[int]) -> dict[int, set[str]]:
        """Of attempts that others followed, by their job."""
        found = {job_id: {attempt.token for attempt in self.of_job(job_id)} for job_id in ids}
        return {job_id: tokens for job_id, tokens in found.items() if tokens}

    def given_up(self) -> list[tuple[Job, Attempt]]:
        """Attempts that were given up and are still unheard of, each with its job."""
        found = ((self._job(job_id), attempt) for job_id, attempt in self._readable("given_up"))
        return [(job, attempt) for job, attempt in found if job is not None]

    def _readable(self, condition: str, *values: int) -> list[tuple[int, Attempt]]:
        """Those whose rows are whole, each with its job's number; a damaged one hides no other."""
        rows = self._reader.execute(
            f"SELECT job, number, body FROM attempts WHERE {condition} ORDER BY job, number", values
        ).fetchall()
        found = []
        for job_id, number, body in rows:
            try:
                found.append((job_id, decode_attempt(body)))
            except (msgspec.MsgspecError, ValueError, TypeError):
                log.exception("the record of attempt %s of job %s", number, job_id)
        return found
