"""Jobs: submit, look, follow, stop, retry."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
from litestar import Request, Response, get, post
from litestar.response import Stream

from towline.engine.ask import JobAsk
from towline.engine.at_home import read_somewhere
from towline.engine.desk import Desk, login_of
from towline.engine.follow import Follower
from towline.engine.lists import Wanted, checked_state, listed, meant
from towline.engine.output import Frame
from towline.engine.tails import beginnings
from towline.errors import HostError, NotFound, UsageError
from towline.hosts.ssh import needs_person
from towline.model.job import Job, view
from towline.server.wire import answer, body_as, frames, idempotency_key, limit, number

_BOTH = ("out", "err")


class Asks(msgspec.Struct):
    jobs: list[JobAsk]
    #: The whole environment of the submitter, once for all of them.
    environ: dict[str, str] = msgspec.field(default_factory=dict)


class Ids(msgspec.Struct):
    ids: list[int]


class Stop(Ids):
    now: bool = False
    #: Do not wait for machines that do not answer.
    give_up: bool = False


@post("/v1/run", status_code=200)
async def run(request: Request[Any, Any, Any]) -> Stream:
    """Submit one job and follow it, in one stream."""
    desk: Desk = request.app.state.desk
    ask = await body_as(request, JobAsk)

    async def stream() -> AsyncIterator[Frame]:
        accepted = await _submit_with_login(desk, [ask], idempotency_key(request))
        if isinstance(accepted, tuple):
            yield accepted[0], b""
            return
        follower = _follower(desk, accepted[0].id, {}, _BOTH, first_attempt=1)
        async for frame in follower.frames():
            yield frame

    return frames(stream())


async def _submit_with_login(
    desk: Desk, asks: list[JobAsk], key: str
) -> list[Job] | tuple[dict[str, Any], int]:
    """The jobs; or what a person must do first, and the status of that refusal."""
    try:
        return await desk.intake.submit(asks, key)
    except HostError as error:
        login = _login_for(desk, asks) if needs_person(error) else None
        if login is None:
            for ask in asks:
                desk.clusters.give_up_unused(ask.cluster or "")
            raise
        body = {"code": error.code, "text": error.text, "hint": error.hint, "login": login}
        return {"error": body, "exit": error.exit_code}, error.status


def _login_for(desk: Desk, asks: list[JobAsk]) -> dict[str, Any] | None:
    """How to log in to the first machine that wants a person, of the clusters that are asked."""
    places = dict.fromkeys((ask.cwd, ask.cluster) for ask in asks)
    drivers = [driver for place in places for driver in desk.intake.join(*place)[1]]
    return next((found for d in drivers if (found := login_of(d)) is not None), None)


def _follower(
    desk: Desk, job: int, offsets: dict[str, int], streams: tuple[str, ...], first_attempt: int = 0
) -> Follower:
    return Follower(
        desk.engine,
        desk.machines,
        job,
        offsets,
        streams,
        first_attempt,
        news=desk.services.news,
        silence=desk.silence,
        keep=desk.results.followed.add,
        standing=desk.standing,
        coming=desk.results.coming,
    )


@post("/v1/jobs", status_code=200)
async def submit(request: Request[Any, Any, Any]) -> Response[bytes]:
    desk: Desk = request.app.state.desk
    asks = await body_as(request, Asks)
    if asks.environ:
        for ask in asks.jobs:
            ask.environ = ask.environ or asks.environ
    accepted = await _submit_with_login(desk, asks.jobs, idempotency_key(request))
    if isinstance(accepted, tuple):
        return answer(*accepted)
    return answer({"jobs": [view(job) for job in accepted]})


@post("/v1/plan", status_code=200)
async def plan(request: Request[Any, Any, Any]) -> Response[bytes]:
    return answer(await request.app.state.desk.intake.plan(await body_as(request, JobAsk)))


@get("/v1/jobs")
async def list_jobs(request: Request[Any, Any, Any]) -> Response[bytes]:
    desk: Desk = request.app.state.desk
    wanted = Wanted(
        checked_state(request.query_params.get("state") or ""),
        desk.clusters.called(request.query_params.get("cluster") or ""),
        limit(request),
        request.query_params.get("all") == "1",
    )
    found = listed(desk.engine.store, wanted, desk.engine.clock())
    return answer(
        {
            "jobs": [desk.seen(job) for job in found.jobs],
            "left_out": found.left_out,
            "unreadable": sorted(desk.engine.store.unreadable),
        }
    )


@get("/v1/named")
async def named(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Which job or batch somebody means."""
    name = request.query_params.get("name") or ""
    return answer(meant(request.app.state.desk.engine.store, name))


@get("/v1/jobs/{job_id:int}")
async def show(request: Request[Any, Any, Any], job_id: int) -> Response[bytes]:
    return answer(request.app.state.desk.detail(job_id))


@get("/v1/jobs/{job_id:int}/why")
async def why(request: Request[Any, Any, Any], job_id: int) -> Response[bytes]:
    return answer(request.app.state.desk.why(job_id))


@get("/v1/jobs/{job_id:int}/log")
async def log(request: Request[Any, Any, Any], job_id: int) -> Stream:
    desk: Desk = request.app.state.desk
    desk.engine.job(job_id)
    wanted = request.query_params.get("stream") or "all"
    streams = _BOTH if wanted == "all" else (wanted,)
    if not set(streams) <= set(_BOTH):
        raise UsageError(f"there is no stream {wanted!r}", hint="out, err or all")
    following = request.query_params.get("follow") == "1"
    if service := request.query_params.get("service"):
        return frames(desk.services.log(job_id, service, _offset(request), following))
    offsets = await _offsets(desk, request, job_id, streams)
    if following:
        return frames(_follower(desk, job_id, offsets, streams).frames())
    return frames(read_somewhere(desk.engine, desk.machines, job_id, offsets, streams))


def _offset(request: Request[Any, Any, Any]) -> int:
    """How much of a service's output the client has already."""
    return _given(request).get("0.0.out", 0)


def _given(request: Request[Any, Any, Any]) -> dict[str, int]:
    text = request.query_params.get("from") or "{}"
    try:
        return msgspec.json.decode(text, type=dict[str, int])
    except msgspec.DecodeError as error:
        raise UsageError(f"`from` is wrong: {error}") from None


async def _offsets(
    desk: Desk, request: Request[Any, Any, Any], job_id: int, streams: tuple[str, ...]
) -> dict[str, int]:
    """Where to go on: what the client has already, or so many lines or bytes before the end."""
    if request.query_params.get("from"):
        return _given(request)
    size, lines = number(request, "tail", 0), number(request, "lines", 0)
    if size <= 0 and lines <= 0:
        return {}
    job = desk.engine.job(job_id)
    return await beginnings(desk.machines, job, streams, lines=max(0, lines), size=max(0, size))


@post("/v1/jobs/stop", status_code=200)
async def stop(request: Request[Any, Any, Any]) -> Response[bytes]:
    desk: Desk = request.app.state.desk
    asked = await body_as(request, Stop)
    known = [job_id for job_id in asked.ids if desk.engine.knows(job_id)]
    if asked.ids and not known:
        desk.engine.job(asked.ids[0])
    await desk.stop(known, asked.now, asked.give_up)
    unknown = sorted(set(asked.ids) - set(known))
    stopped = [desk.seen(desk.engine.job(job_id)) for job_id in known]
    return answer({"jobs": stopped, "unknown": unknown})


@post("/v1/jobs/retry", status_code=200)
async def retry(request: Request[Any, Any, Any]) -> Response[bytes]:
    desk: Desk = request.app.state.desk
    ids = (await body_as(request, Ids)).ids
    for job_id in ids:
        job = desk.engine.job(job_id)
        if not job.state.final:
            raise UsageError(
                f"job {job_id} is {job.state}", hint="only a job that has ended is retried"
            )
        desk.clusters.rejoin({job.spec.cluster})
        if not desk.clusters.knows(job.spec.cluster):
            name = job.spec.cluster
            raise NotFound(
                f"job {job_id} ran on cluster {name!r}, which is gone",
                hint=f"`tow clusters add {name} MACHINE...` makes it again",
            )
    await desk.engine.retry(ids)
    return answer({"jobs": [view(desk.engine.job(job_id)) for job_id in ids]})


ROUTES = [run, submit, plan, list_jobs, named, show, why, log, stop, retry]
