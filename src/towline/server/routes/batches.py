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
from towline.engine.batches.ask import BatchAsk, accept_batch
from towline.engine.batches.follow import follow as follow_batch
from towline.engine.lists import checked_state, jobs_of_batch
from towline.errors import NotFound, UsageError
from towline.model.job import State
from towline.server.endpoints import Call, Endpoint, Most, get, post
from towline.server.streams import Frames

#: What may be started again; what is done never is.
_AGAIN = (State.FAILED, State.LOST, State.STOPPED)


class Listed(msgspec.Struct):
    #: Also those that ended long ago.
    all: bool = False


class Lines(msgspec.Struct):
    state: str = ""
    limit: Most | None = None


class Since(msgspec.Struct):
    #: The number of the last event known; -1: from now on.
    since: Annotated[int, msgspec.Meta(ge=-1, le=2**62)] = 0


class Stop(msgspec.Struct):
    now: bool = False


class Again(msgspec.Struct):
    states: list[State] = msgspec.field(default_factory=lambda: list(_AGAIN))


@post("/v1/batches")
async def submit(call: Call, body: BatchAsk) -> BatchAnswer:
    """Accept a batch; the same key again gives the same batch."""
    desk = call.desk
    key = call.key
    async with desk.intake.keys.alone(key):
        wish = await accept_batch(desk.intake, body)
        batch = await desk.batches.submit(wish, key)
    return {"batch": desk.batches.view(batch.name)}


@get("/v1/batches")
async def list_batches(call: Call, query: Listed) -> BatchList:
    """Batches that go on or ended lately, or all."""
    desk = call.desk
    return {"batches": desk.batches.listed(query.all)}


@get("/v1/batches/{name:str}")
async def show(call: Call, name: str, query: Lines) -> BatchDetail:
    """A batch and its jobs, all or those in one state."""
    desk = call.desk
    state = checked_state(query.state)
    jobs = jobs_of_batch(desk.engine.store, name, state, query.limit or -1)
    return {"batch": desk.batches.view(name), "jobs": [desk.seen(job) for job in jobs]}


@get("/v1/batches/{name:str}/follow")
async def follow(call: Call, name: str, query: Since) -> Frames:
    """What happens to a batch, to its end."""
    desk = call.desk
    desk.engine.store.batches.named(name)
    since = query.since
    if since < 0:
        since = desk.engine.store.journal.last_seq()
    return Frames(follow_batch(desk.batches, name, since))


@post("/v1/batches/{name:str}/stop")
async def stop(call: Call, name: str, body: Stop) -> BatchAnswer:
    """End what waits, stop what runs."""
    desk = call.desk
    await desk.batches.stop(name, now=body.now)
    return {"batch": desk.batches.view(name)}


@post("/v1/batches/{name:str}/retry")
async def retry(call: Call, name: str, body: Again) -> BatchRetried:
    """Start again what ended in some states."""
    desk = call.desk
    states = body.states
    if not set(states) <= set(_AGAIN):
        raise UsageError("only jobs that failed, were lost or were stopped are started again")
    cluster = desk.engine.store.batches.named(name).base.cluster
    desk.clusters.rejoin({cluster})
    if not desk.clusters.knows(cluster):
        raise NotFound(
            f"batch {name} ran on cluster {cluster!r}, which is gone",
            hint=f"`tow clusters add {cluster} MACHINE...` makes it again",
        )
    retried = await desk.batches.retry(name, states)
    return {"batch": desk.batches.view(name), "retried": retried}


@post("/v1/batches/{name:str}/results")
async def results(call: Call, name: str) -> BatchResults:
    """Until the results of all jobs that have ended are home, or cannot come."""
    desk = call.desk
    batch = desk.engine.store.batches.named(name)
    for job_id in desk.engine.store.results.wanted():
        if batch.first <= job_id <= batch.last:
            await desk.results.settled(job_id)
    pending = desk.engine.store.batches.results_wanted(batch)
    return {"batch": desk.batches.view(name), "pending": pending}


ENDPOINTS: list[Endpoint] = [submit, list_batches, show, follow, stop, retry, results]
