"""A batch's life as a stream of frames: what happened to its jobs, and how far it is."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from towline.engine.batches.batches import Batches
from towline.engine.following.output import Frame
from towline.engine.journal import Subscription
from towline.engine.views import event_data
from towline.engine.wording import words
from towline.model.batch import Batch, BatchKey
from towline.model.journal import JournalEvent, Kind

_MOST_EVENTS = 1000
#: Between two frames, so that a thousand jobs a second are told in a few messages.
_PAUSE_S = 0.1
#: Without news, so that rates and reasons to wait are not old.
_QUIET_S = 1.0
#: What is told of a batch's jobs, and what followers call it.
_TOLD = {
    Kind.RUNNING: "started",
    Kind.REQUEUED: "requeued",
    Kind.RETRIED: "requeued",
    Kind.ENDED: "",  # by the state that it ended in
    Kind.STOP_ASKED: "remark",
    Kind.STOPPING: "remark",
    Kind.FOUND_AGAIN: "started",
    Kind.TAKEN_BACK: "remark",
    Kind.REMARK: "remark",
    Kind.HOME_REMARK: "remark",
    Kind.NOT_HOME: "remark",
}


Sending = Callable[[tuple[str, ...]], tuple[int, int] | None]


async def follow(
    batches: Batches, batch: Batch, since: int, sending: Sending = lambda snapshots: None
) -> AsyncIterator[Frame]:
    """From an event on (0: from the first) to the batch's end, when all results are home.

    `sending` tells how much of what its jobs need is over there, and of how much.
    """
    with batches.engine.journal.subscribe(batch=batch.key) as news:
        while True:
            news.take()
            # Looked at first: whatever happens after this is seen in the next round.
            view = batches.view(batch)
            on_its_way = sending((batch.base.snapshot,)) if view["ended"] is None else None
            if on_its_way is not None:
                view["sending"] = list(on_its_way)
            events = batches.store.journal.since(
                since, _MOST_EVENTS, between=(batch.first, batch.last), kinds=tuple(_TOLD)
            )
            since = events[-1].seq if events else since
            over = view["ended"] is not None and view["home"] and len(events) < _MOST_EVENTS
            told, titles = _told(batches, events)
            yield {"events": told, "titles": titles, "batch": view, "over": over}, b""
            if over:
                return
            if len(events) < _MOST_EVENTS:
                await _something_new(batches, batch.key, news)


async def _something_new(batches: Batches, key: BatchKey, news: Subscription) -> None:
    """Until there is something to tell: the end at once, all else not too often."""
    happened = False
    try:
        async with asyncio.timeout(_PAUSE_S):
            while key in batches.active:
                await news.wait()
                happened = bool(news.take()) or happened
    except TimeoutError:
        pass
    if happened:
        return
    try:
        async with asyncio.timeout(_QUIET_S):
            await news.wait()
    except TimeoutError:
        pass


def _told(batches: Batches, events: list[JournalEvent]) -> tuple[list[list[Any]], dict[int, str]]:
    """The events, and the titles of their jobs."""
    jobs = batches.engine.jobs(dict.fromkeys(event.job for event in events))
    told = []
    for event in events:
        fields = event_data(event)
        what = _TOLD[Kind(event.kind)] or fields.get("state", "remark")
        gpus, code = fields.get("gpus", []), fields.get("exit_code")
        line = jobs[event.job].spec.line if event.job in jobs else 0
        about = [event.seq, event.at, event.job, line, what, event.machine, gpus, code]
        because = fields.get("because", {"kind": ""})["kind"]
        told.append([*about, words(event), event.kind, because, fields.get("reason", "")])
    return told, {job_id: job.spec.title for job_id, job in jobs.items()}
