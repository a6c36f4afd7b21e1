"""Batches: submit, list, follow, stop, start again."""

from typing import Any

import msgspec
from litestar import Request, Response, get, post
from litestar.response import Stream

from towline.engine.batch_ask import BatchAsk, accept_batch
from towline.engine.batch_follow import follow as follow_batch
from towline.engine.desk import Desk
from towline.engine.lists import checked_state, jobs_of_batch
from towline.errors import NotFound, UsageError
from towline.model.job import State
from towline.server.wire import answer, body_as, frames, idempotency_key, limit, number

#: What may be started again; what is done never is.
_AGAIN = (State.FAILED, State.LOST, State.STOPPED)


class Stop(msgspec.Struct):
    now: bool = False


class Again(msgspec.Struct):
    states: list[State] = msgspec.field(default_factory=lambda: list(_AGAIN))


@post("/v1/batches", status_code=200)
async def submit(request: Request[Any, Any, Any]) -> Response[bytes]:
    desk: Desk = request.app.state.desk
    ask = await body_as(request, BatchAsk)
    key = idempotency_key(request)
    async with desk.intake.keys.alone(key):
        wish = await accept_batch(desk.intake, ask)
        batch = await desk.batches.submit(wish, key)
    return answer({"batch": desk.batches.view(batch.name)})


@get("/v1/batches")
async def list_batches(request: Request[Any, Any, Any]) -> Response[bytes]:
    desk: Desk = request.app.state.desk
    return answer({"batches": desk.batches.listed(request.query_params.get("all") == "1")})


@get("/v1/batches/{name:str}")
async def show(request: Request[Any, Any, Any], name: str) -> Response[bytes]:
    desk: Desk = request.app.state.desk
    state = checked_state(request.query_params.get("state") or "")
    jobs = jobs_of_batch(desk.engine.store, name, state, limit(request) or -1)
    return answer({"batch": desk.batches.view(name), "jobs": [desk.seen(job) for job in jobs]})


@get("/v1/batches/{name:str}/follow")
async def follow(request: Request[Any, Any, Any], name: str) -> Stream:
    desk: Desk = request.app.state.desk
    desk.engine.store.batches.named(name)
    since = number(request, "since", 0)
    if since < 0:
        since = desk.engine.store.journal.last_seq()
    return frames(follow_batch(desk.batches, name, since))


@post("/v1/batches/{name:str}/stop", status_code=200)
async def stop(request: Request[Any, Any, Any], name: str) -> Response[bytes]:
    desk: Desk = request.app.state.desk
    await desk.batches.stop(name, now=(await body_as(request, Stop)).now)
    return answer({"batch": desk.batches.view(name)})


@post("/v1/batches/{name:str}/retry", status_code=200)
async def retry(request: Request[Any, Any, Any], name: str) -> Response[bytes]:
    desk: Desk = request.app.state.desk
    states = (await body_as(request, Again)).states
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
    return answer({"batch": desk.batches.view(name), "retried": retried})


@post("/v1/batches/{name:str}/results", status_code=200)
async def results(request: Request[Any, Any, Any], name: str) -> Response[bytes]:
    """Until the results of all jobs that have ended are home, or cannot come."""
    desk: Desk = request.app.state.desk
    batch = desk.engine.store.batches.named(name)
    for job_id in desk.engine.store.results.wanted():
        if batch.first <= job_id <= batch.last:
            await desk.results.settled(job_id)
    pending = desk.engine.store.batches.results_wanted(batch)
    return answer({"batch": desk.batches.view(name), "pending": pending})


ROUTES = [submit, list_batches, show, follow, stop, retry, results]
