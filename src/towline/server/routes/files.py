"""Inside a job's folder: list, read, write, run something beside it, reach its ports."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import msgspec

from towline.api.files import FetchedView, FileStat, FolderListing, ResultsOnTheWay, Walk, Written
from towline.api.places import Forwarded, ForwardList, Nothing
from towline.backends.terms import Printed
from towline.engine.api import Desk
from towline.engine.cleaning.cleaned import explained
from towline.engine.following.output import Frame
from towline.engine.views import view
from towline.errors import AgentError, NotFound, UsageError
from towline.model.job import Ending, Job
from towline.server.endpoints import Call, Endpoint, delete, get, post, put
from towline.server.streams import Bytes, Frames

#: How long the whole file was when the first byte was read.
SIZE_HEADER = "Towline-Size"
#: No file is longer than what its system can count.
_LAST_PLACE = 2**62
#: What the agent calls it -> what it means to the user.
_USER_ERRORS = {"no_such_file", "is_folder", "not_folder", "outside", "denied", "unknown_job"}


Place = Annotated[int, msgspec.Meta(ge=0, le=_LAST_PLACE)]


class InFolder(msgspec.Struct):
    path: str = ""


class Range(msgspec.Struct):
    path: str = ""
    offset: Place = 0
    limit: Place = _LAST_PLACE


class NewFile(msgspec.Struct):
    path: str = ""
    #: Permissions, as they are typed: in octal.
    mode: str = "0644"


class Exec(msgspec.Struct):
    argv: list[str]
    process: Place = 0


class Back(msgspec.Struct):
    back: list[str] = msgspec.field(default_factory=list)


class ForwardAsk(msgspec.Struct):
    port: int
    local: int = 0


@contextmanager
def explained_to(desk: Desk, job: Job) -> Iterator[None]:
    """What the agent refuses, as what it means to the user."""
    try:
        yield
    except AgentError as error:
        if error.code in _USER_ERRORS:
            said = explained(desk.engine, job, error)
            raise NotFound(said.text, hint=said.hint) from None
        raise


@get("/v1/jobs/{job_id:int}/files")
async def list_files(call: Call, job_id: int, query: InFolder) -> FolderListing:
    """What is in a folder of a job."""
    desk, job = call.desk, call.desk.job(call.who, job_id)
    with explained_to(desk, job):
        page = await desk.fleet.files(job, 0).entries(query.path)
    return {"entries": page.files, "more": page.more}


@get("/v1/jobs/{job_id:int}/walk")
async def walk(call: Call, job_id: int, query: InFolder) -> Walk:
    """All files below a folder of a job."""
    desk, job = call.desk, call.desk.job(call.who, job_id)
    with explained_to(desk, job):
        page = await desk.fleet.files(job, 0).walk(query.path)
    return {"files": page.files, "more": page.more}


@get("/v1/jobs/{job_id:int}/stat")
async def stat(call: Call, job_id: int, query: InFolder) -> FileStat:
    """What a path is; a link inside the job's folder is followed."""
    desk, job = call.desk, call.desk.job(call.who, job_id)
    with explained_to(desk, job):
        found = await desk.fleet.files(job, 0).stat(query.path)
    return {
        "name": found["name"],
        "kind": found["kind"],
        "size": found["size"],
        "mtime": found["mtime"],
        "mode": found["mode"],
    }


@get("/v1/jobs/{job_id:int}/file")
async def get_file(call: Call, job_id: int, query: Range) -> Bytes:
    """The bytes of a file, or of the range that `offset` and `limit` name."""
    desk = call.desk
    end = min(query.offset + query.limit, _LAST_PLACE)
    job = desk.job(call.who, job_id)
    found = desk.fleet.files(job, 0).read(query.path, query.offset, end)
    # The first piece is fetched before answering, so that errors are answers, not broken streams.
    with explained_to(desk, job):
        size, first = await anext(found)

    async def pieces() -> AsyncIterator[bytes]:
        yield first
        async for _, piece in found:
            yield piece

    return Bytes(pieces(), {SIZE_HEADER: str(size)})


def _mode(typed: str) -> int:
    try:
        mode = int(typed, 8)
    except ValueError:
        mode = -1
    if not 0 <= mode <= 0o7777:
        raise UsageError(f"`mode` takes permissions such as 0644, not {typed!r}")
    return mode


@put("/v1/jobs/{job_id:int}/file")
async def put_file(call: Call, job_id: int, query: NewFile) -> Written:
    """Make a file of a job of the bytes that are sent."""
    desk = call.desk
    mode = _mode(query.mode)
    job = desk.job(call.who, job_id)
    with explained_to(desk, job):
        size = await desk.fleet.files(job, 0).write(query.path, mode, call.stream())
    return {"bytes": size}


@post("/v1/jobs/{job_id:int}/exec")
async def execute(call: Call, job_id: int, body: Exec) -> Frames:
    """Run a command beside a job."""
    desk = call.desk
    if not body.argv:
        raise UsageError("there is no command to run", hint=f"tow exec {job_id} -- COMMAND")
    job = desk.job(call.who, job_id)

    async def stream() -> AsyncIterator[Frame]:
        with explained_to(desk, job):
            async for item in desk.fleet.execute(job, body.process, body.argv):
                if isinstance(item, Printed):
                    header = {"stream": item.stream, "offset": item.offset}
                    yield {**header, "group": 0, "process": 0, "label": ""}, item.data
                else:
                    yield {"end": {**view(job), **_ended(item)}}, b""

    return Frames(stream())


def _ended(ending: Ending) -> dict[str, Any]:
    """How a command beside a job ended, in the words in which that is told of jobs."""
    code, text = ending.code, ending.text
    if code is None and ending.signal is not None:
        code = 128 + ending.signal
    because = {"kind": "told", "text": text} if text else {"kind": ""}
    return {"exit_code": code, "reason": text, "because": because}


@get("/v1/jobs/{job_id:int}/results")
async def results_so_far(call: Call, job_id: int) -> ResultsOnTheWay:
    """How many bytes of a job's results have come that are coming now, and of how many."""
    job = call.desk.job(call.who, job_id)
    came, total = call.desk.results.coming(job.id) or (0, 0)
    return {"done": came, "total": total}


@post("/v1/jobs/{job_id:int}/results")
async def results(call: Call, job_id: int, body: Back) -> FetchedView:
    """Bring home what is there now, also while the job runs."""
    desk = call.desk
    job = desk.job(call.who, job_id)
    if job.attempt is None:
        raise NotFound(f"job {job_id} has not started yet", hint=f"tow why {job_id}")
    await desk.results.settled(job.id)
    try:
        fetched = await desk.results.fetch(job, tuple(body.back))
    except AgentError as error:
        raise explained(desk.engine, job, error) from None
    return fetched.view()


@post("/v1/jobs/{job_id:int}/forward")
async def forward(call: Call, job_id: int, body: ForwardAsk) -> Forwarded:
    """Let a port here lead to one beside a job."""
    forwards = call.desk.forwards
    return {"local": await forwards.add(call.who, job_id, body.port, body.local)}


@get("/v1/forwards")
async def forwards(call: Call) -> ForwardList:
    """The ports here that lead to one's own jobs."""
    return {"forwards": call.desk.forwards.list(call.who)}


@delete("/v1/forwards/{local:int}")
async def drop_forward(call: Call, local: int) -> Nothing:
    """Close such a port."""
    await call.desk.forwards.remove(call.who, local)
    return {}


ENDPOINTS: list[Endpoint] = [
    list_files,
    walk,
    stat,
    get_file,
    put_file,
    execute,
    results_so_far,
    results,
    forward,
    forwards,
    drop_forward,
]
