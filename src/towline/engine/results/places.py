"""Whose results travel at the same time."""

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator

from towline.backends.base import Fleet
from towline.model.job import Job

#: So many jobs of one machine, and so many altogether.
OF_ONE_MACHINE = 16
ALTOGETHER = 64


class FetchSlots:
    """Every machine has its own, so that nobody waits for one that is away but its own jobs; and
    what waits for its machine takes no place of those that all share."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._all = asyncio.Semaphore(ALTOGETHER)
        #: By where jobs ran; one of several machines waits for all of them.
        self._of: weakref.WeakValueDictionary[tuple[str, ...], asyncio.Semaphore]
        self._of = weakref.WeakValueDictionary()

    @contextlib.asynccontextmanager
    async def one(self, job: Job) -> AsyncIterator[None]:
        """A place for the results of a job, once its machines answer."""
        slots = job.attempt.placement if job.attempt else ()
        where = tuple(sorted({slot.target or slot.machine for slot in slots}))
        async with self._of.setdefault(where, asyncio.Semaphore(OF_ONE_MACHINE)):
            await self._fleet.reach(job)
            async with self._all:
                yield
