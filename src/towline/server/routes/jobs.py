"""Jobs: submit, look, follow, stop, retry."""

from collections.abc import AsyncIterator

import msgspec

from towline.api.jobs import Accepted, JobDetail, JobList, Meant, Plan, Stopped, Why
from towline.api.places import Login
from towline.engine.ask import JobAsk
from towline.engine.desk import Desk, login_of
from towline.engine.following.at_home import read_somewhere
from towline.engine.following.follow import Follower
from towline.engine.following.output import Frame
from towline.engine.following.tails import beginnings
from towline.engine.lists import Wanted, checked_state, listed, meant
from towline.errors import HostError, LoginWanted, NotFound, UsageError
from towline.hosts.ssh import needs_person
from towline.model.job import Job, view
from towline.server.endpoints import Call, Endpoint, Most, get, post
from towline.server.streams import Frames

_BOTH = ("out", "err")


class Asks(msgspec.Struct):
    jobs: list[JobAsk]
    #: The whole environment of the submitter, once for all of them.
    environ: dict[str, str] = msgspec.field(default_factory=dict)


class Listing(msgspec.Struct):
    #: One state, or `active`.
    state: str = ""
    cluster: str = ""
    limit: Most | None = None
    #: Also what ended long ago.
    all: bool = False


class Name(msgspec.Struct):
    name: str = ""


class Output(msgspec.Struct):
    #: `out`, `err` or `all`; or that of a service.
    stream: str = "all"
    service: str = ""
    follow: bool = False
    #: Where to go on, by stream; or so many lines or bytes before the end.
    begin: str = msgspec.field(default="{}", name="from")
    lines: int = 0
    tail: int = 0


class Ids(msgspec.Struct):
    ids: list[int]


class Stop(Ids):
    now: bool = False
    #: Do not wait for machines that do not answer.
    give_up: bool = False


@post("/v1/run")
async def run(call: Call, body: JobAsk) -> Frames:
    """Submit one job and follow it, in one stream."""
    desk = call.desk

    async def stream() -> AsyncIterator[Frame]:
        [job] = await _submit_with_login(desk, [body], call.key)
        follower = _follower(desk, job.id, {}, _BOTH, first_attempt=1)
        async for frame in follower.frames():
            yield frame

    return Frames(stream())


async def _submit_with_login(desk: Desk, asks: list[JobAsk], key: str) -> list[Job]:
    """The jobs; LoginWanted if a person must log in first."""
    try:
        return await desk.intake.submit(asks, key)
    except HostError as error:
        login = _login_for(desk, asks) if needs_person(error) else None
        if login is None:
            for ask in asks:
                desk.clusters.give_up_unused(ask.cluster or "")
            raise
        raise LoginWanted(error, login) from None


def _login_for(desk: Desk, asks: list[JobAsk]) -> Login | None:
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


@post("/v1/jobs")
async def submit(call: Call, body: Asks) -> Accepted:
    """Accept jobs; the same key again gives the same jobs."""
    desk = call.desk
    if body.environ:
        for ask in body.jobs:
            ask.environ = ask.environ or body.environ
    accepted = await _submit_with_login(desk, body.jobs, call.key)
    return {"jobs": [view(job) for job in accepted]}


@post("/v1/plan")
async def plan(call: Call, body: JobAsk) -> Plan:
    """What a submission would do; nothing is done."""
    return await call.desk.intake.plan(body)


@get("/v1/jobs")
async def list_jobs(call: Call, query: Listing) -> JobList:
    """Jobs that are not of a batch: all that are active, and the newest that ended."""
    desk = call.desk
    wanted = Wanted(
        checked_state(query.state), desk.clusters.called(query.cluster), query.limit, query.all
    )
    found = listed(desk.engine.store, wanted, desk.engine.clock())
    return {
        "jobs": [desk.seen(job) for job in found.jobs],
        "left_out": found.left_out,
        "unreadable": sorted(desk.engine.store.unreadable),
    }


@get("/v1/named")
async def named(call: Call, query: Name) -> Meant:
    """Which job or batch somebody means."""
    return meant(call.desk.engine.store, query.name)


@get("/v1/jobs/{job_id:int}")
async def show(call: Call, job_id: int) -> JobDetail:
    """Everything about one job."""
    return call.desk.detail(job_id)


@get("/v1/jobs/{job_id:int}/why")
async def why(call: Call, job_id: int) -> Why:
    """Why a job waits, or where it stands."""
    return call.desk.why(job_id)


@get("/v1/jobs/{job_id:int}/log")
async def log(call: Call, job_id: int, query: Output) -> Frames:
    """What a job printed: so far, or to its end."""
    desk = call.desk
    desk.engine.job(job_id)
    wanted = query.stream
    streams = _BOTH if wanted == "all" else (wanted,)
    if not set(streams) <= set(_BOTH):
        raise UsageError(f"there is no stream {wanted!r}", hint="out, err or all")
    if query.service:
        # How much of a service's output the client has already.
        offset = _given(query).get("0.0.out", 0)
        return Frames(desk.services.log(job_id, query.service, offset, query.follow))
    offsets = await _offsets(desk, query, job_id, streams)
    if query.follow:
        return Frames(_follower(desk, job_id, offsets, streams).frames())
    return Frames(read_somewhere(desk.engine, desk.machines, job_id, offsets, streams))


def _given(query: Output) -> dict[str, int]:
    try:
        return msgspec.json.decode(query.begin, type=dict[str, int])
    except msgspec.DecodeError as error:
        raise UsageError(f"`from` is wrong: {error}") from None


async def _offsets(
    desk: Desk, query: Output, job_id: int, streams: tuple[str, ...]
) -> dict[str, int]:
    """Where to go on: what the client has already, or so many lines or bytes before the end."""
    if given := _given(query):
        return given
    size, lines = query.tail, query.lines
    if size <= 0 and lines <= 0:
        return {}
    job = desk.engine.job(job_id)
    return await beginnings(desk.machines, job, streams, lines=max(0, lines), size=max(0, size))


@post("/v1/jobs/stop")
async def stop(call: Call, body: Stop) -> Stopped:
    """Stop jobs."""
    desk = call.desk
    asked = body
    known = [job_id for job_id in asked.ids if desk.engine.knows(job_id)]
    if asked.ids and not known:
        desk.engine.job(asked.ids[0])
    await desk.stop(known, asked.now, asked.give_up)
    unknown = sorted(set(asked.ids) - set(known))
    stopped = [desk.seen(desk.engine.job(job_id)) for job_id in known]
    return {"jobs": stopped, "unknown": unknown}


@post("/v1/jobs/retry")
async def retry(call: Call, body: Ids) -> Accepted:
    """Start jobs again that have ended."""
    desk = call.desk
    ids = body.ids
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
    return {"jobs": [view(desk.engine.job(job_id)) for job_id in ids]}


ENDPOINTS: list[Endpoint] = [run, submit, plan, list_jobs, named, show, why, log, stop, retry]
