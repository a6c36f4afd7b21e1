"""Inside a job's folder: list, read, write, run something beside it, reach its ports."""

from typing import Annotated

import msgspec

from towline.api.files import FetchedView, FileStat, FolderListing, ResultsOnTheWay, Walk, Written
from towline.api.places import Forwarded, ForwardList, Nothing
from towline.engine.calls.files import FilePath
from towline.errors import UsageError
from towline.server.endpoints import Call, Endpoint, delete, get, post, put
from towline.server.streams import Bytes, Connected, Frames

#: How long the whole file was when the first byte was read.
SIZE_HEADER = "Towline-Size"
#: No file is longer than what its system can count.
_LAST_PLACE = 2**62
Place = Annotated[int, msgspec.Meta(ge=0, le=_LAST_PLACE)]


class InFolder(msgspec.Struct):
    path: str = ""
    #: Whose folder; and not that one, but what it keeps for the next job.
    process: Place = 0
    kept: bool = False

    @property
    def at(self) -> FilePath:
        return FilePath(self.path, self.process, self.kept)


class Range(InFolder):
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


class PortOf(msgspec.Struct):
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 0
    process: Place = 0
    #: In place of a port: a service of the job, by its name.
    service: str = ""


class ForwardAsk(msgspec.Struct):
    port: int
    local: int = 0


@get("/v1/jobs/{job_id:int}/files")
async def list_files(call: Call, job_id: int, query: InFolder) -> FolderListing:
    """What is in a folder of a job."""
    return await call.api.files.entries(call.who, job_id, query.at)


@get("/v1/jobs/{job_id:int}/walk")
async def walk(call: Call, job_id: int, query: InFolder) -> Walk:
    """All files below a folder of a job."""
    return await call.api.files.walk(call.who, job_id, query.at)


@get("/v1/jobs/{job_id:int}/stat")
async def stat(call: Call, job_id: int, query: InFolder) -> FileStat:
    """What a path is; a link inside the job's folder is followed."""
    return await call.api.files.stat(call.who, job_id, query.at)


@get("/v1/jobs/{job_id:int}/file")
async def get_file(call: Call, job_id: int, query: Range) -> Bytes:
    """The bytes of a file, or of the range that `offset` and `limit` name."""
    end = min(query.offset + query.limit, _LAST_PLACE)
    size, pieces = await call.api.files.read(call.who, job_id, query.at, query.offset, end)
    return Bytes(pieces, {SIZE_HEADER: str(size)})


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
    mode = _mode(query.mode)
    return {"bytes": await call.api.files.write(call.who, job_id, query.path, mode, call.stream())}


@post("/v1/jobs/{job_id:int}/exec")
async def execute(call: Call, job_id: int, body: Exec) -> Frames:
    """Run a command beside a job."""
    if not body.argv:
        raise UsageError("there is no command to run", hint=f"tow exec {job_id} -- COMMAND")
    return Frames(call.api.files.execute(call.who, job_id, body.process, body.argv))


@get("/v1/jobs/{job_id:int}/results")
async def results_so_far(call: Call, job_id: int) -> ResultsOnTheWay:
    """How many bytes of a job's results have come that are coming now, and of how many."""
    return call.api.files.results_so_far(call.who, job_id)


@post("/v1/jobs/{job_id:int}/results")
async def results(call: Call, job_id: int, body: Back) -> FetchedView:
    """Bring home what is there now, also while the job runs."""
    return await call.api.files.results(call.who, job_id, tuple(body.back))


@post("/v1/jobs/{job_id:int}/forward")
async def forward(call: Call, job_id: int, body: ForwardAsk) -> Forwarded:
    """Let a port here lead to one beside a job."""
    return {"local": await call.api.services.forward(call.who, job_id, body.port, body.local)}


@post("/v1/jobs/{job_id:int}/connect")
async def connect(call: Call, job_id: int, query: PortOf) -> Connected:
    """A connection to a port beside a process of a running job, both ways at once."""
    meant = (query.process, query.port, query.service)
    return Connected(call.api.files.connect(call.who, job_id, *meant))


@get("/v1/forwards")
async def forwards(call: Call) -> ForwardList:
    """The ports here that lead to one's own jobs."""
    return {"forwards": call.api.services.forwards(call.who)}


@delete("/v1/forwards/{local:int}")
async def drop_forward(call: Call, local: int) -> Nothing:
    """Close such a port."""
    await call.api.services.close_forward(call.who, local)
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
    connect,
    forwards,
    drop_forward,
]
