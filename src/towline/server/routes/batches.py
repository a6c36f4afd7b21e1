"""Batches: submit, list, follow, stop, start again."""

from typing import Annotated

import msgspec

from towline.api.batches import (
    BatchAnswer,
    BatchDetail,
    BatchList,
    BatchResults,
    BatchRetried,
)
from towline.errors import UsageError
from towline.model.job import State
from towline.server.endpoints import Call, Endpoint, Most, get, post
from towline.server.streams import Frames
from towline.workspace.ask import checked_folder
from towline.workspace.base import BatchDraft
from towline.workspace.batch_ask import BatchAsk, LineAsk, check_batch, checked_lines

#: What may be started again; what is done never is.
_AGAIN = (State.FAILED, State.LOST, State.STOPPED, State.SKIPPED)


class BatchQuery(msgspec.Struct):
    #: Also those that ended long ago.
    all: bool = False


class Lines(msgspec.Struct):
    state: str = ""
    limit: Most | None = None


class Since(msgspec.Struct):
    #: The number of the last event known; -1: from now on.
    since: Annotated[int, msgspec.Meta(ge=-1, le=2**62)] = 0


class StopBatch(msgspec.Struct):
    now: bool = False


class MoreLines(msgspec.Struct, forbid_unknown_fields=True):
    lines: list[LineAsk]


class Again(msgspec.Struct):
    states: list[State] = msgspec.field(default_factory=lambda: list(_AGAIN))


@post("/v1/batches")
async def submit(call: Call, body: BatchAsk) -> BatchAnswer:
    """Accept a batch; the same key again gives the same batch."""

    async def drafted() -> BatchDraft:
        checked, base = check_batch(body), body.base
        if body.machines is not None:
            config = call.local.places(checked_folder(base.cwd)).config
            base.cluster = await call.api.places.ad_hoc(call.who, body.machines, config)
        made = call.api.places.remembered(call.who)
        return checked.draft(list(call.workspace.drafts(checked.asks(), call.who.name, made)))

    return {"batch": await call.api.batches.submit(call.who, drafted, call.key)}


@get("/v1/batches")
async def list_batches(call: Call, query: BatchQuery) -> BatchList:
    """Batches that go on or ended lately, or all."""
    return {"batches": call.api.batches.list_all(call.who, everything=query.all)}


@get("/v1/batches/{name:str}")
async def show(call: Call, name: str, query: Lines) -> BatchDetail:
    """A batch and its jobs, all or those in one state."""
    return call.api.batches.show(call.who, name, query.state, query.limit)


@get("/v1/batches/{name:str}/follow")
async def follow(call: Call, name: str, query: Since) -> Frames:
    """What happens to a batch, to its end."""
    return Frames(call.api.batches.follow(call.who, name, query.since))


@post("/v1/batches/{name:str}/stop")
async def stop(call: Call, name: str, body: StopBatch) -> BatchAnswer:
    """End what waits, stop what runs."""
    return {"batch": await call.api.batches.stop(call.who, name, body.now)}


@post("/v1/batches/{name:str}/retry")
async def retry(call: Call, name: str, body: Again) -> BatchRetried:
    """Start again what ended in some states."""
    if not set(body.states) <= set(_AGAIN):
        raise UsageError("only jobs that failed, were lost, stopped or skipped are started again")
    return await call.api.batches.retry(call.who, name, body.states)


@post("/v1/batches/{name:str}/more")
async def more(call: Call, name: str, body: MoreLines) -> BatchAnswer:
    """Accept other commands with all that a batch was submitted with, as a batch of their own."""
    lines = checked_lines(body.lines)
    return {"batch": await call.api.batches.more(call.who, name, lines, call.key)}


@post("/v1/batches/{name:str}/results")
async def results(call: Call, name: str) -> BatchResults:
    """Until the results of all jobs that have ended are home, or cannot come."""
    return await call.api.batches.results(call.who, name)


ENDPOINTS: list[Endpoint] = [submit, list_batches, show, follow, stop, retry, more, results]
