"""What happens, as it happens: the journal as server-sent events."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from litestar import Request, get
from litestar.response import Stream

from towline.agent.frames import encode_json
from towline.engine.desk import Desk
from towline.engine.engine import Engine
from towline.engine.wording import words
from towline.errors import UsageError
from towline.model.journal import Event
from towline.server.wire import VERSION_HEADER, number
from towline.version import __version__

#: The event after which an answer begins: where to go on when it is cut off before the first.
SEQ_HEADER = "Towline-Seq"
#: So many events are read from the store at a time.
_MOST = 1000
#: Between two signs of life, so that whoever listens notices a connection that is gone.
_QUIET_S = 15.0


@get("/v1/events")
async def events(request: Request[Any, Any, Any]) -> Stream:
    """All events after `since`, or those of one job or batch; -1: from now on.

    With `follow=0` it ends with what has happened by now. A browser that was cut off says itself
    which event it saw last.
    """
    desk: Desk = request.app.state.desk
    job, batch = (
        min(number(request, "job", 0), 1 << 62),
        str(request.query_params.get("batch") or ""),
    )
    since = number(request, "since", -1)
    last = request.headers.get("Last-Event-ID")
    if last is not None:
        if not last.isdecimal():
            raise UsageError(f"Last-Event-ID is the number of an event, not {last!r}")
        since = int(last)
    follow = request.query_params.get("follow") != "0"
    if job:
        desk.engine.job(job)
    if batch:
        desk.engine.store.batches.named(batch)
    if since < 0:
        since = desk.engine.store.journal.last_seq()
    return Stream(
        _lines(desk.engine, min(since, 1 << 62), job, batch, follow),
        media_type="text/event-stream",
        headers={VERSION_HEADER: __version__, SEQ_HEADER: str(since), "Cache-Control": "no-store"},
    )


async def _lines(
    engine: Engine, since: int, job: int, batch: str, follow: bool
) -> AsyncIterator[bytes]:
    with engine.journal.subscribe(job=job, batch=batch) as news:
        yield b": towline\n\n"
        while True:
            # They are read from the journal, not taken from the subscription: nothing is missed,
            # however slow the listener is.
            news.take()
            found = engine.store.journal.since(since, _MOST, job=job, batch=batch)
            for event in found:
                since = event.seq
                yield _message(event)
            if len(found) == _MOST:
                continue
            if not follow:
                return
            try:
                async with asyncio.timeout(_QUIET_S):
                    await news.wait()
            except TimeoutError:
                yield b": nothing new\n\n"


def _message(event: Event) -> bytes:
    body = {
        "seq": event.seq,
        "at": event.at,
        "kind": event.kind,
        "owner": event.owner,
        "job": event.job,
        "batch": event.batch,
        "attempt": event.attempt,
        "machine": event.machine,
        "data": event.fields(),
        "text": words(event),
    }
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.kind.encode(), encode_json(body))


ROUTES = [events]
