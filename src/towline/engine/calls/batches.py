"""Batches: submit, list, follow, stop, start again."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from towline.api.batches import BatchDetail, BatchResults, BatchRetried, BatchView
from towline.engine.batches.batches import like
from towline.engine.batches.follow import follow
from towline.engine.chains import check_retry
from towline.engine.following.output import Frame
from towline.engine.lists import checked_state, jobs_of_batch
from towline.engine.parts import EngineParts
from towline.model.batch import Batch, Line
from towline.model.job import State
from towline.model.principal import Principal
from towline.workspace.base import BatchDraft


class BatchCalls:
    """Whatever names a batch finds it for whoever asks."""

    def __init__(self, parts: EngineParts) -> None:
        self._parts = parts
        self._batches = parts.batches

    def _find(self, who: Principal, name: str) -> Batch:
        return self._batches.called(who, name)

    async def submit(
        self, who: Principal, draft: Callable[[], Awaitable[BatchDraft]], key: str
    ) -> BatchView:
        """Accept a batch; the same key again gives the same batch."""
        intake = self._parts.intake
        async with intake.keys.alone(who.name, key):
            batch = await self._batches.submit(await intake.batch(who, await draft()), key)
        return self._batches.view(batch)

    def list_all(self, who: Principal, everything: bool) -> list[BatchView]:
        """Batches that go on or ended lately, or all."""
        return self._batches.listed(who, everything)

    def show(self, who: Principal, name: str, state: str, limit: int | None) -> BatchDetail:
        """A batch and its jobs, all or those in one state."""
        state, batch = checked_state(state), self._find(who, name)
        jobs = jobs_of_batch(self._parts.engine.store, batch, state, limit or -1)
        seen = [self._parts.views.seen(job) for job in jobs]
        return {"batch": self._batches.view(batch), "jobs": seen}

    def follow(self, who: Principal, name: str, since: int) -> AsyncIterator[Frame]:
        """What happens to a batch after an event, to its end; -1: from now on."""
        batch = self._find(who, name)
        if since < 0:
            since = self._parts.engine.store.journal.last_seq()
        return follow(self._batches, batch, since, self._parts.fleet.on_their_way)

    async def stop(self, who: Principal, name: str, now: bool) -> BatchView:
        """End what waits, stop what runs."""
        batch = await self._batches.stop(self._find(who, name), now=now)
        return self._batches.view(batch)

    async def retry(self, who: Principal, name: str, states: Sequence[State]) -> BatchRetried:
        """Start again what ended in one of these states; how many they are."""
        batch = self._find(who, name)
        self._parts.rejoin(f"batch {name}", batch.base.cluster)
        check_retry(self._parts.engine, (), [batch])
        retried = await self._batches.retry(batch, states)
        return {"batch": self._batches.view(self._find(who, name)), "retried": retried}

    async def more(self, who: Principal, name: str, lines: Sequence[Line], key: str) -> BatchView:
        """Other commands, with the files, environment and options of a batch that is there."""
        batch = self._find(who, name)
        self._parts.rejoin(f"batch {name}", batch.base.cluster)
        async with self._parts.intake.keys.alone(who.name, key):
            made = await self._batches.submit(like(batch, lines), key)
        return self._batches.view(made)

    async def results(self, who: Principal, name: str) -> BatchResults:
        """Wait until the results of all jobs that have ended are home, or cannot come."""
        batch, store = self._find(who, name), self._parts.engine.store
        for line in store.results.wanted():
            if batch.first <= line <= batch.last:
                await self._parts.results.settled(line)
        pending = store.batches.results_wanted(batch)
        return {"batch": self._batches.view(batch), "pending": pending}
