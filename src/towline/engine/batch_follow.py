"""A batch's life as a stream of frames: what happened to its jobs, and how far it is."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

from towline.engine.batches import Batches, Watcher
from towline.engine.output import Frame
from towline.model.job import FINAL, State
from towline.store.batches import Event

_MOST_EVENTS = 1000
#: Between two frames, so that a thousand jobs a second are told in a few messages.
_PAUSE_S = 0.1
#: Without news, so that rates and reasons to wait are not old.
_QUIET_S = 1.0
_TOLD = {State.RUNNING.value: "started", State.QUEUED.value: "requeued"} | {
    state.value: state.value for state in FINAL
}


async def follow(batches: Batches, name: str, since: int) -> AsyncIterator[Frame]:
    """From an event on (0: from the first) to the batch's end, when all results are home."""
    batch = batches.store.batches.named(name)
    watcher = batches.watch(name)
    try:
        while True:
            watcher.look()
            # Looked at first: whatever happens after this is seen in the next round.
            view = batches.view(name)
            found = batches.store.batches.events(batch, since, _MOST_EVENTS)
            since = found[-1][0] if found else since
            over = view["ended"] is not None and view["home"] and len(found) < _MOST_EVENTS
            told, titles = _told(batches, found)
            yield {"events": told, "titles": titles, "batch": view, "over": over}, b""
            if over:
                return
            if len(found) < _MOST_EVENTS:
                await _news(watcher)
    finally:
        batches.unwatch(name, watcher)


async def _news(watcher: Watcher) -> None:
    """Until there is something to tell: the end at once, all else not too often."""
    for event, most_s in ((watcher.over, _PAUSE_S), (watcher.news, _QUIET_S)):
        try:
            await asyncio.wait_for(event.wait(), most_s)
        except TimeoutError:
            pass


def _told(batches: Batches, events: Iterable[Event]) -> tuple[list[list[Any]], dict[int, str]]:
    """The events, and the titles of their jobs."""
    events = list(events)
    jobs = batches.engine.jobs(dict.fromkeys(job_id for _, _, job_id, _, _ in events))
    told = []
    for seq, at, job_id, state, text in events:
        job = jobs[job_id]
        machine = job.attempt.machine_of(0) if job.attempt else ""
        gpus = list(job.attempt.placement[0].gpus) if job.attempt else []
        code = job.exit_code if state in FINAL else None
        what = _TOLD.get(state, "remark")
        told.append([seq, at, job_id, job.spec.line, what, machine, gpus, code, text])
    return told, {job_id: job.spec.title for job_id, job in jobs.items()}
