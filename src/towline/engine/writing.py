"""The store's one writer, and what becomes of that which it cannot write.

A store that cannot be written at all (its disk is full, it is locked or read-only) refuses in
words, and the same is tried again later. What nobody waits for is written before whatever comes
after it, so that no job is on disk whose machine is not. One job that cannot be written (nobody
should be able to bring that about) does not keep the others of its turn from being written.
"""

import asyncio
import logging
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from towline.backends.tasks import Tasks
from towline.core import jobs
from towline.core.step import Step
from towline.errors import CannotWrite
from towline.model.job import Job
from towline.model.journal import Kind, Told
from towline.store.results import BroughtRow
from towline.store.store import Store, Submission

log = logging.getLogger("towline")

T = TypeVar("T")
#: A store that cannot be written is tried again so much later.
AGAIN_S = 1.0
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

    def __init__(self, store: Store, publish: Callable[[], None] = lambda: None) -> None:
        self.store = store
        #: Called whenever something was written, for whoever waits for news.
        self._publish = publish
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        #: What is to be written though nobody waits for it, and what that is; the oldest first.
        self._owed: deque[tuple[str, Callable[[], object]]] = deque()
        self._tasks = Tasks("the store")

    async def in_turn(self, write: Callable[[], T]) -> T:
        """Write something after what is being written; CannotWrite if that is not possible."""

        def after_the_rest() -> T:
            self._write_owed()
            return write()

        try:
            loop = asyncio.get_running_loop()
            written = await loop.run_in_executor(self._thread, after_the_rest)
            self._publish()
            return written
        except Exception as error:
            if _is_of_the_store(error):
                raise CannotWrite(
                    f"the Engine cannot write to {self.store.path}: {error}",
                    hint="see that its disk has room and that it is yours to write; "
                    "what runs goes on, and what was accepted is not lost",
                ) from error
            raise

    async def patiently(self, write: Callable[[], T]) -> T:
        """The same, as often as it takes: what is to be written did come to pass."""
        said = ""
        while True:
            try:
                return await self.in_turn(write)
            except CannotWrite as error:
                if error.text != said:
                    said = error.text
                    log.error("%s", said)
                await asyncio.sleep(AGAIN_S)

    def soon(self, what: str, write: Callable[[], object]) -> None:
        """Write something that nobody waits for, before anything that is asked for later."""
        self._owed.append((what, write))
        if len(self._owed) == 1 or not len(self._tasks):
            self._tasks.spawn(self.patiently(lambda: None), lambda error: None)

    def _write_owed(self) -> None:
        while self._owed:
            what, write = self._owed[0]
            try:
                write()
            except Exception as error:
                if _is_of_the_store(error):
                    raise
                log.error("the next Engine will not know %s", what, exc_info=error)
            self._owed.popleft()

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
            what = step.changed, step.fresh, step.told, now, step.past, submissions, brought
            self.store.commit(*what, step.shares)
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
        self.store.commit({}, (), (), now, submissions=submissions, used=step.shares)
        for job in list(step.changed.values()):
            told = [one for one in step.told if one.job.id == job.id]
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
            step.told = [one for one in step.told if one.job.id != job.id]
            step.past = [one for one in step.past if one[0] != job.id]
        return written_off

    def _written_off(self, job: Job, error: Exception, step: Step, now: float) -> Job:
        lost = jobs.written_off(job, f"what is known of it cannot be written down: {error}", now)
        step.changed[job.id] = lost
        try:
            told = [Told(Kind.ENDED, step.before(job.id), lost)]
            self.store.commit({job.id: lost}, step.fresh, told, now)
        except Exception as worse:
            if _is_of_the_store(worse):
                raise
            log.error("not even the end of job %d can be written", job.id, exc_info=worse)
        return lost

    def close(self) -> None:
        self._tasks.close()
        last = self._thread.submit(self._write_owed)
        self._thread.shutdown()
        if error := last.exception():
            owed = "; ".join(what for what, _ in self._owed)
            log.error("the next Engine will not know %s: %s", owed, error)
