"""What happens, as it happens: the journal as server-sent events."""

from collections.abc import AsyncIterator
from typing import Annotated

from msgspec import Meta, Struct

from towline.agent.frames import encode_json
from towline.engine.views import event_data
from towline.engine.wording import words
from towline.errors import UsageError
from towline.model.journal import JournalEvent
from towline.server.endpoints import Call, Endpoint, get
from towline.server.streams import Events

#: The event after which an answer begins: where to go on when it is cut off before the first.
SEQ_HEADER = "Towline-Seq"
_LAST = 1 << 62


class EventQuery(Struct):
    #: The number of the last event known; -1: from now on.
    since: Annotated[int, Meta(ge=-1)] = -1
    job: Annotated[int, Meta(ge=0, le=_LAST)] = 0
    batch: str = ""
    follow: bool = True


@get("/v1/events")
async def events(call: Call, query: EventQuery) -> Events:
    """All events after `since`, or those of one job or batch; -1: from now on.

    Whoever is no administrator is told of what is their own.
    With `follow=0` it ends with what has happened by now. A browser that was cut off says itself
    which event it saw last.
    """
    since = query.since
    if last := call.header("Last-Event-ID"):
        if not last.isdecimal():
            raise UsageError(f"Last-Event-ID is the number of an event, not {last!r}")
        since = int(last)
    since, found = call.api.events.follow(
        call.who, min(since, _LAST), query.job, query.batch, query.follow
    )
    return Events(_lines(found), {SEQ_HEADER: str(since)})


async def _lines(found: AsyncIterator[JournalEvent | None]) -> AsyncIterator[bytes]:
    yield b": towline\n\n"
    async for event in found:
        yield b": nothing new\n\n" if event is None else _message(event)


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
