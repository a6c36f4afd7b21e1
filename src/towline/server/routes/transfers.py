"""Many files of a job at once, in either direction, as one stream of frames."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from towline.agent.frames import Unpacker
from towline.api.files import Written
from towline.backends.terms import UploadPiece, WantedFile
from towline.errors import UsageError
from towline.server.endpoints import Call, Endpoint, get, post
from towline.server.routes.files import InFolder
from towline.server.streams import Frames

Place = Annotated[int, Meta(ge=0, le=2**62)]


class File(msgspec.Struct):
    """A file to be fetched: how long it should be, and how much of it is there already."""

    path: str
    size: Place = 0
    offset: Place = 0


class FileNames(msgspec.Struct):
    files: list[File]


class Stored(msgspec.Struct):
    """What stands before a piece of a file that is sent."""

    path: str
    mode: Annotated[int, Meta(ge=0, le=0o777)] = 0o644
    offset: Place = 0
    last: bool = True


@get("/v1/jobs/{job_id:int}/gather")
async def gather(call: Call, job_id: int, query: InFolder) -> Frames:
    """All files at a path: frames with `files`, and the contents of those that are short.

    `got` of a file says how many of the frame's bytes are its own; the others are to be fetched.
    """
    return Frames(call.api.files.gather(call.who, job_id, query.at))


@post("/v1/jobs/{job_id:int}/fetch")
async def fetch(call: Call, job_id: int, body: FileNames) -> Frames:
    """The contents of files: frames with `file` (which of those asked for), `offset` and `last`."""
    wanted = [WantedFile(file.path, file.size, file.offset) for file in body.files]
    return Frames(call.api.files.fetch(call.who, job_id, wanted))


@post("/v1/jobs/{job_id:int}/store")
async def store(call: Call, job_id: int) -> Written:
    """Make files of the frames in the body: `path`, `mode`, `offset`, `last`, and the bytes."""

    async def pieces() -> AsyncIterator[UploadPiece]:
        unpacker = Unpacker()
        async for some in call.stream():
            for header, data in unpacker.feed(some):
                about = _stored(header)
                yield UploadPiece(about.path, about.mode, about.offset, data, about.last)

    return {"bytes": await call.api.files.store(call.who, job_id, pieces())}


def _stored(header: Any) -> Stored:
    try:
        return msgspec.convert(header, Stored)
    except msgspec.ValidationError as error:
        raise UsageError(f"a frame of the request's body is wrong: {error}") from None


ENDPOINTS: list[Endpoint] = [gather, fetch, store]
