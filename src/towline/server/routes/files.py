"""Inside a job's folder: list, read, write, run something beside it, reach its ports."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from litestar import Request, Response, delete, get, post, put
from litestar.response import Stream

from towline.engine.cleaned import explained
from towline.engine.desk import Desk
from towline.engine.output import Frame
from towline.errors import AgentError, NotFound, UsageError
from towline.model.job import Job, view
from towline.server.wire import VERSION_HEADER, answer, body_as, frames, number
from towline.version import __version__

#: How long the whole file was when the first byte was read.
SIZE_HEADER = "Towline-Size"
#: No file is longer than what its system can count.
_LAST_PLACE = 2**62
#: What the agent calls it -> what it means to the user.
_USER_ERRORS = {"no_such_file", "is_folder", "not_folder", "outside", "denied", "unknown_job"}


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
async def list_files(request: Request[Any, Any, Any], job_id: int) -> Response[bytes]:
    path = request.query_params.get("path") or ""
    header, _ = await _ask(request.app.state.desk, job_id, "list", path=path)
    return answer({"entries": header["entries"], "more": header.get("more", False)})


@get("/v1/jobs/{job_id:int}/walk")
async def walk(request: Request[Any, Any, Any], job_id: int) -> Response[bytes]:
    path = request.query_params.get("path") or ""
    header, _ = await _ask(request.app.state.desk, job_id, "walk", path=path)
    return answer({"files": header["files"], "more": header.get("more", False)})


@get("/v1/jobs/{job_id:int}/stat")
async def stat(request: Request[Any, Any, Any], job_id: int) -> Response[bytes]:
    """What a path is; a link inside the job's folder is followed."""
    path = request.query_params.get("path") or ""
    header, _ = await _ask(request.app.state.desk, job_id, "stat", path=path)
    return answer({field: header[field] for field in ("name", "kind", "size", "mtime", "mode")})


@get("/v1/jobs/{job_id:int}/file")
async def get_file(request: Request[Any, Any, Any], job_id: int) -> Stream:
    """The bytes of a file, or of the range that `offset` and `limit` name."""
    desk: Desk = request.app.state.desk
    path = request.query_params.get("path") or ""
    offset, limit = _place(request, "offset", 0), _place(request, "limit", _LAST_PLACE)
    job = desk.engine.job(job_id)
    found = desk.machines.files(job, 0).read(path, offset, min(offset + limit, _LAST_PLACE))
    # The first piece is fetched before answering, so that errors are answers, not broken streams.
    with explained_to(desk, job):
        size, first = await anext(found)

    async def pieces() -> AsyncIterator[bytes]:
        yield first
        async for _, piece in found:
            yield piece

    headers = {VERSION_HEADER: __version__, SIZE_HEADER: str(size)}
    return Stream(pieces(), media_type="application/octet-stream", headers=headers)


def _place(request: Request[Any, Any, Any], name: str, default: int) -> int:
    value = number(request, name, default)
    if not 0 <= value <= _LAST_PLACE:
        raise UsageError(f"`{name}` counts bytes, so it cannot be {value}")
    return value


def _mode(typed: str) -> int:
    try:
        mode = int(typed, 8)
    except ValueError:
        mode = -1
    if not 0 <= mode <= 0o7777:
        raise UsageError(f"`mode` takes permissions such as 0644, not {typed!r}")
    return mode


@put("/v1/jobs/{job_id:int}/file", status_code=200)
async def put_file(request: Request[Any, Any, Any], job_id: int) -> Response[bytes]:
    desk: Desk = request.app.state.desk
    path = request.query_params.get("path") or ""
    mode = _mode(request.query_params.get("mode") or "0644")
    job = desk.engine.job(job_id)
    with explained_to(desk, job):
        size = await desk.machines.files(job, 0).write(path, mode, request.stream())
    return answer({"bytes": size})


@post("/v1/jobs/{job_id:int}/exec", status_code=200)
async def execute(request: Request[Any, Any, Any], job_id: int) -> Stream:
    desk: Desk = request.app.state.desk
    wanted = await body_as(request, Exec)
    if not wanted.argv:
        raise UsageError("there is no command to run", hint=f"tow exec {job_id} -- COMMAND")
    job = desk.engine.job(job_id)

    async def stream() -> AsyncIterator[Frame]:
        async for item in desk.backends.execute(job, wanted.process, wanted.argv):
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

    return frames(stream())


@post("/v1/jobs/{job_id:int}/results", status_code=200)
async def results(request: Request[Any, Any, Any], job_id: int) -> Response[bytes]:
    """Bring home what is there now, also while the job runs."""
    desk: Desk = request.app.state.desk
    wanted = await body_as(request, Back)
    job = desk.engine.job(job_id)
    if job.attempt is None:
        raise NotFound(f"job {job_id} has not started yet", hint=f"tow why {job_id}")
    await desk.results.settled(job_id)
    try:
        fetched = await desk.results.fetch(job, tuple(wanted.back))
    except AgentError as error:
        raise explained(desk.engine, job, error) from None
    return answer(msgspec.to_builtins(fetched))


@post("/v1/jobs/{job_id:int}/forward", status_code=200)
async def forward(request: Request[Any, Any, Any], job_id: int) -> Response[bytes]:
    desk: Desk = request.app.state.desk
    wanted = await body_as(request, ForwardAsk)
    return answer({"local": await desk.forwards.add(job_id, wanted.port, wanted.local)})


@get("/v1/forwards")
async def forwards(request: Request[Any, Any, Any]) -> Response[bytes]:
    return answer({"forwards": request.app.state.desk.forwards.list()})


@delete("/v1/forwards/{local:int}", status_code=200)
async def drop_forward(request: Request[Any, Any, Any], local: int) -> Response[bytes]:
    await request.app.state.desk.forwards.remove(local)
    return answer({})


ROUTES = [
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
