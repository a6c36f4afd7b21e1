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
from towline.engine.following.output import Frame
from towline.errors import HostError, LoginWanted, UsageError
from towline.hosts.ssh import needs_person
from towline.server.endpoints import Call, Endpoint, Most, get, post
from towline.server.streams import Frames
from towline.workspace.ask import JobAsk
from towline.workspace.base import Draft


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

    async def stream() -> AsyncIterator[Frame]:
        accepted = await _submit_with_login(call, [body])
        [job] = accepted["jobs"]
        async for frame in call.api.jobs.follow(call.who, job["id"], {}, first_attempt=1):
            yield frame

    return Frames(stream())


def _drafts(call: Call, asks: list[JobAsk]) -> Iterator[Draft]:
    made = call.api.places.remembered(call.who)
    return call.workspace.drafts(asks, call.who.name, made)


async def _submit_with_login(call: Call, asks: list[JobAsk]) -> AcceptedJobs:
    """The jobs; LoginWanted if a person must log in first."""
    try:
        return await call.api.jobs.submit(call.who, _drafts(call, asks), call.key)
    except HostError as error:
        login = _login_for(call, asks) if needs_person(error) else None
        if login is None:
            call.api.places.forget_unused(call.who, [ask.cluster or "" for ask in asks])
            raise
        raise LoginWanted(error, login) from None


def _login_for(call: Call, asks: list[JobAsk]) -> LoginView | None:
    """How to log in to the first machine that wants a person, of the clusters that are asked."""
    clusters = {(ask.cwd, ask.cluster): ask for ask in asks}.values()
    return call.api.jobs.login_for(call.who, _drafts(call, list(clusters)))


@post("/v1/jobs")
async def submit(call: Call, body: Asks) -> AcceptedJobs:
    """Accept jobs; the same key again gives the same jobs."""
    if body.environ:
        for ask in body.jobs:
            ask.environ = ask.environ or body.environ
    return await _submit_with_login(call, body.jobs)


@post("/v1/plan")
async def plan(call: Call, body: JobAsk) -> PlanView:
    """What a submission would do; nothing is done."""
    [draft] = _drafts(call, [body])
    return await call.api.jobs.plan(call.who, draft)


@get("/v1/jobs")
async def list_jobs(call: Call, query: JobQuery) -> JobList:
    """Jobs that are not of a batch: all that are active, and the newest that ended."""
    return call.api.jobs.list_all(
        call.who, query.state, query.cluster, query.limit, everything=query.all
    )


@get("/v1/named")
async def named(call: Call, query: Name) -> MeantView:
    """Which job or batch somebody means."""
    return call.api.jobs.named(call.who, query.name)


@get("/v1/jobs/{job_id:int}")
async def show(call: Call, job_id: int) -> JobDetail:
    """Everything about one job."""
    return call.api.jobs.detail(call.who, job_id)


@get("/v1/jobs/{job_id:int}/samples")
async def samples(call: Call, job_id: int) -> JobSamples:
    """What a job used over its life, by the minute; longer ago, by more minutes at a time."""
    return call.api.jobs.samples(call.who, job_id)


@get("/v1/jobs/{job_id:int}/why")
async def why(call: Call, job_id: int) -> WhyView:
    """Why a job waits, or where it stands."""
    return call.api.jobs.why(call.who, job_id)


@get("/v1/jobs/{job_id:int}/log")
async def log(call: Call, job_id: int, query: LogQuery) -> Frames:
    """What a job printed: so far, or to its end."""
    given, follow = _given(query), query.follow
    if query.service:
        # How much of a service's output the client has already.
        offset = given.get("0.0.out", 0)
        printed = call.api.services.log(call.who, job_id, query.service, offset, follow)
    else:
        printed = await call.api.jobs.log(
            call.who, job_id, query.stream, given, query.lines, query.tail, follow
        )
    return Frames(printed)


def _given(query: LogQuery) -> dict[str, int]:
    """Where to go on, by stream: what the client has already."""
    try:
        return msgspec.json.decode(query.begin, type=dict[str, int])
    except msgspec.DecodeError as error:
        raise UsageError(f"`from` is wrong: {error}") from None


@post("/v1/jobs/stop")
async def stop(call: Call, body: StopJobs) -> StoppedJobs:
    """Stop jobs."""
    return await call.api.jobs.stop(call.who, body.ids, body.now, body.give_up)


@post("/v1/jobs/retry")
async def retry(call: Call, body: Ids) -> Retried:
    """Start jobs again that have ended, or that the queue of their cluster set aside for an
    error."""
    return await call.api.jobs.retry(call.who, body.ids)


@post("/v1/jobs/hold")
async def hold_jobs(call: Call, body: Ids) -> Held:
    """Keep back jobs that have not begun; `late` are those that have, or are of a batch."""
    return await call.api.jobs.hold(call.who, body.ids)


@post("/v1/jobs/release")
async def release(call: Call, body: Ids) -> Released:
    """Let jobs go that are held; with one job of a batch, the whole batch."""
    return await call.api.jobs.release(call.who, body.ids)


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
