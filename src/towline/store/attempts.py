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
        row = self._reader.execute(
            "SELECT body FROM attempts WHERE job=? AND number=?", (job_id, number)
        ).fetchone()
        return decode_attempt(row[0]) if row else None

    def of_job(self, job_id: int) -> list[Attempt]:
        """Those of a job that others followed."""
        rows = self._reader.execute("SELECT body FROM attempts WHERE job=?", (job_id,))
        return [decode_attempt(body) for (body,) in rows]

    def tokens(self, ids: Iterable[int]) -> dict[int, set[str]]:
        """Of attempts that others followed, by their job."""
        found = {job_id: {attempt.token for attempt in self.of_job(job_id)} for job_id in ids}
        return {job_id: tokens for job_id, tokens in found.items() if tokens}

    def given_up(self) -> list[tuple[Job, Attempt]]:
        """Attempts that were given up and are still unheard of, each with its job."""
        rows = self._reader.execute(
            "SELECT job, body FROM attempts WHERE given_up ORDER BY job, number"
        ).fetchall()
        found = []
        for job_id, body in rows:
            try:
                attempt = decode_attempt(body)
            except (msgspec.MsgspecError, ValueError):
                log.exception("an attempt of job %d", job_id)
                continue
            if (job := self._job(job_id)) is not None:
                found.append((job, attempt))
        return found
