"""Jobs: submit, look, follow, stop, retry."""

from collections.abc import AsyncIterator, Iterator

import msgspec

from towline.api.jobs import (
    AcceptedJobs,
    Held,
    JobDetail,
    JobList,
    JobSamples,
    MeantView,
    PlanView,
    Released,
    Retried,
    StoppedJobs,
    WhyView,
)
from towline.api.places import LoginView
from towline.engine.api import Desk, login_of
from towline.engine.chains import hold, let_go, skipped_because
from towline.engine.following.at_home import read_somewhere
from towline.engine.following.follow import Follower
from towline.engine.following.output import Frame
from towline.engine.following.tails import beginnings
from towline.engine.lists import JobFilter, checked_state, listed, meant
from towline.engine.samples import peaks_view, stretch_view
from towline.engine.views import view
from towline.errors import HostError, LoginWanted, UsageError
from towline.hosts.ssh import needs_person
from towline.model.job import Job
from towline.server.endpoints import Call, Endpoint, Most, get, post
from towline.server.streams import Frames
from towline.workspace.ask import JobAsk
from towline.workspace.draft import FolderDraft

_BOTH = ("out", "err")


class Asks(msgspec.Struct):
    jobs: list[JobAsk]
    #: The whole environment of the submitter, once for all of them.
    environ: dict[str, str] = msgspec.field(default_factory=dict)


class JobQuery(msgspec.Struct):
    #: One state, or `active`.
    state: str = ""
    cluster: str = ""
    limit: Most | None = None
    #: Also what ended long ago.
    all: bool = False


class Name(msgspec.Struct):
    name: str = ""


class LogQuery(msgspec.Struct):
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


class StopJobs(Ids):
    now: bool = False
    #: Do not wait for machines that do not answer.
    give_up: bool = False


@post("/v1/run")
async def run(call: Call, body: JobAsk) -> Frames:
    """Submit one job and follow it, in one stream."""
    desk = call.desk

    async def stream() -> AsyncIterator[Frame]:
        [job] = await _submit_with_login(call, [body])
        follower = _follower(desk, job.id, {}, _BOTH, first_attempt=1)
        async for frame in follower.frames():
            yield frame

    return Frames(stream())


def _drafts(call: Call, asks: list[JobAsk]) -> Iterator[FolderDraft]:
    return call.workspace.drafts(asks, call.who.name, call.desk.clusters.remembered)


async def _submit_with_login(call: Call, asks: list[JobAsk]) -> list[Job]:
    """The jobs; LoginWanted if a person must log in first."""
    desk = call.desk
    try:
        return await desk.intake.submit(call.who, _drafts(call, asks), call.key)
    except HostError as error:
        login = _login_for(call, asks) if needs_person(error) else None
        if login is None:
            for ask in asks:
                desk.clusters.give_up_unused(ask.cluster or "")
            raise
        raise LoginWanted(error, login) from None


def _login_for(call: Call, asks: list[JobAsk]) -> LoginView | None:
    """How to log in to the first machine that wants a person, of the clusters that are asked."""
    clusters = {(ask.cwd, ask.cluster): ask for ask in asks}.values()
    drafts = _drafts(call, list(clusters))
    joined = (call.desk.intake.join(one.places, one.spec.cluster)[1] for one in drafts)
    drivers = [driver for some in joined for driver in some]
    return next((found for d in drivers if (found := login_of(d)) is not None), None)


def _follower(
    desk: Desk, job: int, offsets: dict[str, int], streams: tuple[str, ...], first_attempt: int = 0
) -> Follower:
    return Follower(
        desk.engine,
        desk.fleet,
        job,
        offsets,
        streams,
        first_attempt,
        news=desk.services.news,
        silence=desk.silence,
        keep=desk.results.followed.add,
        standing=desk.standing,
        coming=desk.results.coming,
        receiver=desk.results.receiver,
    )


@post("/v1/jobs")
async def submit(call: Call, body: Asks) -> AcceptedJobs:
    """Accept jobs; the same key again gives the same jobs."""
    if body.environ:
        for ask in body.jobs:
            ask.environ = ask.environ or body.environ
    accepted = await _submit_with_login(call, body.jobs)
    return {"jobs": [view(job) for job in accepted]}


@post("/v1/plan")
async def plan(call: Call, body: JobAsk) -> PlanView:
    """What a submission would do; nothing is done."""
    [draft] = _drafts(call, [body])
    return await call.desk.intake.plan(draft)


@get("/v1/jobs")
async def list_jobs(call: Call, query: JobQuery) -> JobList:
    """Jobs that are not of a batch: all that are active, and the newest that ended."""
    desk = call.desk
    wanted = JobFilter(
        checked_state(query.state),
        desk.clusters.called(query.cluster),
        query.limit,
        query.all,
        call.who.sees,
    )
    found = listed(desk.engine.store, wanted, desk.engine.clock())
    return {
        "jobs": [desk.seen(job) for job in found.jobs],
        "left_out": found.left_out,
        # Nobody can say whose they are.
        "unreadable": sorted(desk.engine.store.unreadable) if call.who.administrator else [],
    }


@get("/v1/named")
async def named(call: Call, query: Name) -> MeantView:
    """Which job or batch somebody means."""
    return meant(call.desk.engine.store, call.who, query.name)


@get("/v1/jobs/{job_id:int}")
async def show(call: Call, job_id: int) -> JobDetail:
    """Everything about one job."""
    return call.desk.detail(call.who, job_id)


@get("/v1/jobs/{job_id:int}/samples")
async def samples(call: Call, job_id: int) -> JobSamples:
    """What a job used over its life, by the minute; longer ago, by more minutes at a time."""
    found = call.desk.samples
    job = call.desk.job(call.who, job_id)
    stretches = [stretch_view(stretch) for stretch in found.of_job(job_id)]
    return {"samples": stretches, "peaks": peaks_view(found.peaks(job))}


@get("/v1/jobs/{job_id:int}/why")
async def why(call: Call, job_id: int) -> WhyView:
    """Why a job waits, or where it stands."""
    return call.desk.why(call.who, job_id)


@get("/v1/jobs/{job_id:int}/log")
async def log(call: Call, job_id: int, query: LogQuery) -> Frames:
    """What a job printed: so far, or to its end."""
    desk = call.desk
    job = desk.job(call.who, job_id)
    wanted = query.stream
    streams = _BOTH if wanted == "all" else (wanted,)
    if not set(streams) <= set(_BOTH):
        raise UsageError(f"there is no stream {wanted!r}", hint="out, err or all")
    if query.service:
        # How much of a service's output the client has already.
        offset = _given(query).get("0.0.out", 0)
        return Frames(desk.services.log(call.who, job_id, query.service, offset, query.follow))
    offsets = await _offsets(desk, query, job, streams)
    if query.follow:
        return Frames(_follower(desk, job_id, offsets, streams).frames())
    receiver = desk.results.receiver
    return Frames(read_somewhere(desk.engine, desk.fleet, receiver, job_id, offsets, streams))


def _given(query: LogQuery) -> dict[str, int]:
    try:
        return msgspec.json.decode(query.begin, type=dict[str, int])
    except msgspec.DecodeError as error:
        raise UsageError(f"`from` is wrong: {error}") from None


async def _offsets(
    desk: Desk, query: LogQuery, job: Job, streams: tuple[str, ...]
) -> dict[str, int]:
    """Where to go on: what the client has already, or so many lines or bytes before the end."""
    if given := _given(query):
        return given
    size, lines = query.tail, query.lines
    if size <= 0 and lines <= 0:
        return {}
    return await beginnings(desk.fleet, job, streams, lines=max(0, lines), size=max(0, size))


@post("/v1/jobs/stop")
async def stop(call: Call, body: StopJobs) -> StoppedJobs:
    """Stop jobs."""
    desk = call.desk
    asked = body
    known = [job_id for job_id in asked.ids if desk.knows(call.who, job_id)]
    if asked.ids and not known:
        desk.job(call.who, asked.ids[0])
    await desk.stop(call.who, known, asked.now, asked.give_up)
    unknown = sorted(set(asked.ids) - set(known))
    stopped = [desk.seen(desk.job(call.who, job_id)) for job_id in known]
    return {"jobs": stopped, "unknown": unknown}


@post("/v1/jobs/retry")
async def retry(call: Call, body: Ids) -> Retried:
    """Start jobs again that have ended, or that the queue of their cluster set aside for an
    error."""
    desk = call.desk
    await desk.retry(call.who, body.ids)
    return {
        "jobs": [desk.seen(desk.job(call.who, job_id)) for job_id in body.ids],
        "skipped": list(map(str, skipped_because(desk.engine, body.ids))),
    }


@post("/v1/jobs/hold")
async def hold_jobs(call: Call, body: Ids) -> Held:
    """Keep back jobs that have not begun; `late` are those that have, or are of a batch."""
    desk = call.desk
    late = await hold(desk.engine, [desk.job(call.who, job_id) for job_id in body.ids])
    return {"jobs": [desk.seen(desk.job(call.who, job_id)) for job_id in body.ids], "late": late}


@post("/v1/jobs/release")
async def release(call: Call, body: Ids) -> Released:
    """Let jobs go that are held; with one job of a batch, the whole batch."""
    desk = call.desk
    await let_go(desk.engine, [desk.job(call.who, job_id) for job_id in body.ids])
    return {"jobs": [desk.seen(desk.job(call.who, job_id)) for job_id in body.ids]}


ENDPOINTS: list[Endpoint] = [
    run,
    submit,
    plan,
    list_jobs,
    named,
    show,
    samples,
    why,
    log,
    stop,
    retry,
    hold_jobs,
    release,
]
