"""What happens, as it happens: the journal as server-sent events."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from msgspec import Meta, Struct

from towline.agent.frames import encode_json
from towline.engine.engine import Engine
from towline.engine.views import event_data
from towline.engine.wording import words
from towline.errors import UsageError
from towline.model.batch import BatchKey
from towline.model.journal import JournalEvent
from towline.server.endpoints import Call, Endpoint, get
from towline.server.streams import Events

#: The event after which an answer begins: where to go on when it is cut off before the first.
SEQ_HEADER = "Towline-Seq"
#: So many events are read from the store at a time.
_MOST = 1000
#: Between two signs of life, so that whoever listens notices a connection that is gone.
_QUIET_S = 15.0
_LAST = 1 << 62


class EventQuery(Struct):
    #: The number of the last event known; -1: from now on.
    since: Annotated[int, Meta(ge=-1)] = -1
    job: Annotated[int, Meta(ge=0, le=_LAST)] = 0
    batch: str = ""
    follow: bool = True


class Choice(Struct, frozen=True):
    """Which events are wanted: of a job, of a batch, of an owner; of all where none is named."""

    job: int
    batch: BatchKey | None
    owner: str


@get("/v1/events")
async def events(call: Call, query: EventQuery) -> Events:
    """All events after `since`, or those of one job or batch; -1: from now on.

    Whoever is no administrator is told of what is their own.
    With `follow=0` it ends with what has happened by now. A browser that was cut off says itself
    which event it saw last.
    """
    desk = call.desk
    job, since = query.job, query.since
    if last := call.header("Last-Event-ID"):
        if not last.isdecimal():
            raise UsageError(f"Last-Event-ID is the number of an event, not {last!r}")
        since = int(last)
    if job:
        desk.job(call.who, job)
    batch = desk.batch(call.who, query.batch).key if query.batch else None
    if since < 0:
        since = desk.engine.store.journal.last_seq()
    chosen = Choice(job, batch, call.who.sees)
    lines = _lines(desk.engine, min(since, _LAST), chosen, query.follow)
    return Events(lines, {SEQ_HEADER: str(since)})


async def _lines(engine: Engine, since: int, chosen: Choice, follow: bool) -> AsyncIterator[bytes]:
    journal, job, batch = engine.store.journal, chosen.job, chosen.batch
    with engine.journal.subscribe(job=job, batch=batch) as news:
        yield b": towline\n\n"
        while True:
            # They are read from the journal, not taken from the subscription: nothing is missed,
            # however slow the listener is.
            news.take()
            last = journal.last_seq()
            found = journal.since(since, _MOST, job=job, batch=batch, owner=chosen.owner)
            for event in found:
                since = event.seq
                yield _message(event)
            if len(found) == _MOST:
                continue
            # What was others' is not looked at again.
            since = max(since, last)
            if not follow:
                return
            try:
                async with asyncio.timeout(_QUIET_S):
                    await news.wait()
            except TimeoutError:
                yield b": nothing new\n\n"


def _message(event: JournalEvent) -> bytes:
    body = {
        "seq": event.seq,
        "at": event.at,
        "kind": event.kind,
        "owner": event.owner,
        "job": event.job,
        "batch": event.batch,
        "attempt": event.attempt,
        "machine": event.machine,
        "data": event_data(event),
        "text": words(event),
    }
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.kind.encode(), encode_json(body))


ENDPOINTS: list[Endpoint] = [events]
