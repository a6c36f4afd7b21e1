"""What happens, as it happens."""

import asyncio
from collections.abc import AsyncIterator

from msgspec import Struct

from towline.engine.lookup import job_for
from towline.engine.parts import EngineParts
from towline.model.batch import BatchKey
from towline.model.journal import JournalEvent
from towline.model.principal import Principal

#: So many events are read from the store at a time.
_MOST = 1000
#: Between two signs of life, so that whoever listens notices a connection that is gone.
_QUIET_S = 15.0


class Choice(Struct, frozen=True):
    """Which events are wanted: of a job, of a batch, of an owner; of all where none is named."""

    job: int
    batch: BatchKey | None
    owner: str


class EventCalls:
    """Whoever is no administrator is told of what is their own."""

    def __init__(self, parts: EngineParts) -> None:
        self._parts = parts
        self._engine = parts.engine

    def follow(
        self, who: Principal, since: int, job: int, batch: str, on: bool
    ) -> tuple[int, AsyncIterator[JournalEvent | None]]:
        """The number after which the events begin, and the events; None now and then while
        nothing happens. Unless it goes `on`, it ends with what has happened by now."""
        if job:
            job_for(who, job, self._engine)
        key = self._parts.batches.called(who, batch).key if batch else None
        if since < 0:
            since = self._engine.store.journal.last_seq()
        return since, self._events(since, Choice(job, key, who.sees), on)

    async def _events(
        self, since: int, chosen: Choice, on: bool
    ) -> AsyncIterator[JournalEvent | None]:
        journal, job, batch = self._engine.store.journal, chosen.job, chosen.batch
        with self._engine.journal.subscribe(job=job, batch=batch) as news:
            while True:
                # They are read from the journal, not taken from the subscription: nothing is
                # missed, however slow the listener is.
                news.take()
                last = journal.last_seq()
                found = journal.since(since, _MOST, job=job, batch=batch, owner=chosen.owner)
                for event in found:
                    since = event.seq
                    yield event
                if len(found) == _MOST:
                    continue
                # What was others' is not looked at again.
                since = max(since, last)
                if not on:
                    return
                try:
                    async with asyncio.timeout(_QUIET_S):
                        await news.wait()
                except TimeoutError:
                    yield None
