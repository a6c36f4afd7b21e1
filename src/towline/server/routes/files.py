"""Inside a job's folder: list, read, write, run something beside it, reach its ports."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, cast

import msgspec

from towline.api.files import Fetched, Listing, Stat, Walk, Written
from towline.api.places import Forwarded, Forwards, Nothing
from towline.engine.cleaning.cleaned import explained
from towline.engine.desk import Desk
from towline.engine.following.output import Frame
from towline.errors import AgentError, NotFound, UsageError
from towline.model.job import Job, view
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
    process: int = 0


class Back(msgspec.Struct):
    back: list[str] = msgspec.field(default_factory=list)


class ForwardAsk(msgspec.Struct):
    port: int
    local: int = 0


async def _ask(desk: Desk, job_id: int, op: str, blob: bytes = b"", **fields: Any) -> Any:
    job = desk.engine.job(job_id)
    with explained_to(desk, job):
        return await desk.machines.file_operation(job, 0, op, blob, **fields)


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
async def list_files(call: Call, job_id: int, query: InFolder) -> Listing:
    """What is in a folder of a job."""
    header, _ = await _ask(call.desk, job_id, "list", path=query.path)
    return {"entries": header["entries"], "more": header.get("more", False)}


@get("/v1/jobs/{job_id:int}/walk")
async def walk(call: Call, job_id: int, query: InFolder) -> Walk:
    """All files below a folder of a job."""
    header, _ = await _ask(call.desk, job_id, "walk", path=query.path)
    return {"files": header["files"], "more": header.get("more", False)}


@get("/v1/jobs/{job_id:int}/stat")
async def stat(call: Call, job_id: int, query: InFolder) -> Stat:
    """What a path is; a link inside the job's folder is followed."""
    header, _ = await _ask(call.desk, job_id, "stat", path=query.path)
    return {
        "name": header["name"],
        "kind": header["kind"],
        "size": header["size"],
        "mtime": header["mtime"],
        "mode": header["mode"],
    }


@get("/v1/jobs/{job_id:int}/file")
async def get_file(call: Call, job_id: int, query: Range) -> Bytes:
    """The bytes of a file, or of the range that `offset` and `limit` name."""
    desk = call.desk
    end = min(query.offset + query.limit, _LAST_PLACE)
    job = desk.engine.job(job_id)
    found = desk.machines.files(job, 0).read(query.path, query.offset, end)
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
    job = desk.engine.job(job_id)
    with explained_to(desk, job):
        size = await desk.machines.files(job, 0).write(query.path, mode, call.stream())
    return {"bytes": size}


@post("/v1/jobs/{job_id:int}/exec")
async def execute(call: Call, job_id: int, body: Exec) -> Frames:
    """Run a command beside a job."""
    desk = call.desk
    if not body.argv:
        raise UsageError("there is no command to run", hint=f"tow exec {job_id} -- COMMAND")
    job = desk.engine.job(job_id)

    async def stream() -> AsyncIterator[Frame]:
        async for item in desk.backends.execute(job, body.process, body.argv):
            if "ending" in item:
                ending = item["ending"]
                code = ending.get("code")
                if code is None and ending.get("signal") is not None:
                    code = 128 + ending["signal"]
                end = {**view(job), "exit_code": code, "reason": ending.get("text") or ""}
                yield {"end": end}, b""
            else:
                blob = item.pop("blob")
                yield {**item, "group": 0, "process": 0, "label": ""}, blob

    return Frames(stream())


@post("/v1/jobs/{job_id:int}/results")
async def results(call: Call, job_id: int, body: Back) -> Fetched:
    """Bring home what is there now, also while the job runs."""
    desk = call.desk
    job = desk.engine.job(job_id)
    if job.attempt is None:
        raise NotFound(f"job {job_id} has not started yet", hint=f"tow why {job_id}")
    await desk.results.settled(job_id)
    try:
        fetched = await desk.results.fetch(job, tuple(body.back))
    except AgentError as error:
        raise explained(desk.engine, job, error) from None
    return cast("Fetched", msgspec.to_builtins(fetched))


@post("/v1/jobs/{job_id:int}/forward")
async def forward(call: Call, job_id: int, body: ForwardAsk) -> Forwarded:
    """Let a port here lead to one beside a job."""
    return {"local": await call.desk.forwards.add(job_id, body.port, body.local)}


@get("/v1/forwards")
async def forwards(call: Call) -> Forwards:
    """The ports here that lead to jobs."""
    return {"forwards": call.desk.forwards.list()}


@delete("/v1/forwards/{local:int}")
async def drop_forward(call: Call, local: int) -> Nothing:
    """Close such a port."""
    await call.desk.forwards.remove(local)
    return {}


ENDPOINTS: list[Endpoint] = [
    list_files,
    walk,
    stat,
    get_file,
    put_file,
    execute,
    results,
    forward,
    forwards,
    drop_forward,
]
