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
from towline.engine.batches.follow import follow as follow_batch
from towline.engine.lists import checked_state, jobs_of_batch
from towline.errors import UsageError
from towline.model.job import State
from towline.server.endpoints import Call, Endpoint, Most, get, post
from towline.server.streams import Frames
from towline.workspace.ask import checked_folder
from towline.workspace.batch_ask import BatchAsk, check_batch

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


class Again(msgspec.Struct):
    states: list[State] = msgspec.field(default_factory=lambda: list(_AGAIN))


@post("/v1/batches")
async def submit(call: Call, body: BatchAsk) -> BatchAnswer:
    """Accept a batch; the same key again gives the same batch."""
    desk = call.desk
    key = call.key
    async with desk.intake.keys.alone(call.who.name, key):
        checked, base = check_batch(body), body.base
        if body.machines is not None:
            config = call.workspace.places(checked_folder(base.cwd)).config
            base.cluster = await desk.clusters.ad_hoc(body.machines, config)
        asks, made = checked.asks(), desk.clusters.remembered
        drafts = list(call.workspace.drafts(asks, call.who.name, made))
        batch = await desk.batches.submit(
            await desk.intake.batch(call.who, checked.draft(drafts)), key
        )
    return {"batch": desk.batches.view(batch)}


@get("/v1/batches")
async def list_batches(call: Call, query: BatchQuery) -> BatchList:
    """Batches that go on or ended lately, or all."""
    desk = call.desk
    return {"batches": desk.batches.listed(call.who, query.all)}


@get("/v1/batches/{name:str}")
async def show(call: Call, name: str, query: Lines) -> BatchDetail:
    """A batch and its jobs, all or those in one state."""
    desk = call.desk
    state = checked_state(query.state)
    batch = desk.batch(call.who, name)
    jobs = jobs_of_batch(desk.engine.store, batch, state, query.limit or -1)
    return {"batch": desk.batches.view(batch), "jobs": [desk.seen(job) for job in jobs]}


@get("/v1/batches/{name:str}/follow")
async def follow(call: Call, name: str, query: Since) -> Frames:
    """What happens to a batch, to its end."""
    desk = call.desk
    batch = desk.batch(call.who, name)
    since = query.since
    if since < 0:
        since = desk.engine.store.journal.last_seq()
    return Frames(follow_batch(desk.batches, batch, since, desk.fleet.on_their_way))


@post("/v1/batches/{name:str}/stop")
async def stop(call: Call, name: str, body: StopBatch) -> BatchAnswer:
    """End what waits, stop what runs."""
    desk = call.desk
    batch = await desk.batches.stop(desk.batch(call.who, name), now=body.now)
    return {"batch": desk.batches.view(batch)}


@post("/v1/batches/{name:str}/retry")
async def retry(call: Call, name: str, body: Again) -> BatchRetried:
    """Start again what ended in some states."""
    desk = call.desk
    states = body.states
    if not set(states) <= set(_AGAIN):
        raise UsageError("only jobs that failed, were lost, stopped or skipped are started again")
    retried = await desk.retry_batch(call.who, name, states)
    return {"batch": desk.batches.view(desk.batch(call.who, name)), "retried": retried}


@post("/v1/batches/{name:str}/results")
async def results(call: Call, name: str) -> BatchResults:
    """Until the results of all jobs that have ended are home, or cannot come."""
    desk = call.desk
    batch = desk.batch(call.who, name)
    for line in desk.engine.store.results.wanted():
        if batch.first <= line <= batch.last:
            await desk.results.settled(line)
    pending = desk.engine.store.batches.results_wanted(batch)
    return {"batch": desk.batches.view(batch), "pending": pending}


ENDPOINTS: list[Endpoint] = [submit, list_batches, show, follow, stop, retry, results]
