"""The store's one writer, and what becomes of that which it cannot write.

A store that cannot be written at all (its disk is full, it is locked or read-only) refuses in
words, and the same is tried again later. One job that cannot be written (nobody should be able to
bring that about) does not keep the others of its turn from being written.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from towline.core import jobs
from towline.core.step import Step
from towline.errors import CannotWrite
from towline.model.job import Job
from towline.store.store import BroughtRow, Store, Submission

log = logging.getLogger("towline")

T = TypeVar("T")
#: What is wrong with what is to be written, not with the store.
_OF_THE_DATA = (
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    sqlite3.DataError,
)


def _is_of_the_store(error: Exception) -> bool:
    return isinstance(error, sqlite3.Error | OSError) and not isinstance(error, _OF_THE_DATA)


class Writer:
    """One thread, in which one thing is written after the other."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")

    async def in_turn(self, write: Callable[[], T]) -> T:
        """Write something after what is being written; CannotWrite if that is not possible."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, write)
        except Exception as error:
            if _is_of_the_store(error):
                raise CannotWrite(
                    f"the Engine cannot write to {self.store.path}: {error}",
                    hint="see that its disk has room and that it is yours to write; "
                    "what runs goes on, and what was accepted is not lost",
                ) from error
            raise

    def commit(
        self,
        step: Step,
        now: float,
        submissions: Iterable[Submission],
        brought: Iterable[BroughtRow],
    ) -> list[Job]:
        """Write what one turn decided; the jobs that had to be written off for it."""
        submissions, brought = list(submissions), list(brought)
        try:
            self.store.commit(
                step.changed, step.fresh, step.told, now, step.past, submissions, brought
            )
        except Exception as error:
            if _is_of_the_store(error):
                raise
            log.error("a turn cannot be written as a whole", exc_info=error)
            return self._one_by_one(step, now, submissions, brought)
        return []

    def _one_by_one(
        self, step: Step, now: float, submissions: list[Submission], brought: list[BroughtRow]
    ) -> list[Job]:
        written_off: list[Job] = []
        self.store.commit({}, (), (), now, submissions=submissions)
        for job in list(step.changed.values()):
            told = [one for one in step.told if one[0] == job.id]
            past = [one for one in step.past if one[0] == job.id]
            mine = [one for one in brought if one[0] == job.id]
            try:
                self.store.commit({job.id: job}, step.fresh, told, now, past, brought=mine)
            except Exception as error:
                if _is_of_the_store(error):
                    raise
                log.error("job %d cannot be written", job.id, exc_info=error)
                written_off.append(self._written_off(job, error, step, now))
            # It has a row now, should the rest have to be tried again.
            step.fresh.discard(job.id)
            step.told = [one for one in step.told if one[0] != job.id]
            step.past = [one for one in step.past if one[0] != job.id]
        return written_off

    def _written_off(self, job: Job, error: Exception, step: Step, now: float) -> Job:
        lost = jobs.written_off(job, f"what is known of it cannot be written down: {error}", now)
        step.changed[job.id] = lost
        try:
            told = [(job.id, lost.state.value, lost.reason)]
            self.store.commit({job.id: lost}, step.fresh, told, now)
        except Exception as worse:
            if _is_of_the_store(worse):
                raise
            log.error("not even the end of job %d can be written", job.id, exc_info=worse)
        return lost

    def close(self) -> None:
        self._thread.shutdown()
