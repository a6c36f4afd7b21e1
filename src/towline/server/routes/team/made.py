"""What jobs made and printed, as it came home to the server: for their owners to take."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Annotated

from msgspec import Meta, Struct

from towline.api.team import MadeList, MadePiece
from towline.engine.following.output import Frame
from towline.server.endpoints import Call, Endpoint, get
from towline.server.streams import Bytes, Frames
from towline.server.team.kept import contents_of, made_by, open_made

_PIECE = 1 << 20
_LAST = 2**62
#: Read in one go: so many bytes, or so many files.
_AT_ONCE = 4 << 20
_MOST_FILES = 500


class MadeQuery(Struct):
    process: str = ""
    name: str = ""
    #: Of an output: out or err.
    stream: str = ""
    offset: Annotated[int, Meta(ge=0, le=_LAST)] = 0


class ContentsQuery(Struct):
    #: Go on with this one of the list, from this byte of it on.
    index: Annotated[int, Meta(ge=0, le=_LAST)] = 0
    offset: Annotated[int, Meta(ge=0, le=_LAST)] = 0


@get("/v1/jobs/{job_id:int}/made")
async def list_made(call: Call, job_id: int) -> MadeList:
    """All that is here of a job that has come home."""
    job = call.api.jobs.find(call.who, job_id)
    return {"files": await asyncio.to_thread(made_by, call.team.paths.results, job)}


@get("/v1/jobs/{job_id:int}/made/file")
async def read_made(call: Call, job_id: int, query: MadeQuery) -> Bytes:
    """The bytes of one of those files, from `offset` on."""
    job = call.api.jobs.find(call.who, job_id)
    wanted = (query.process, query.name, query.stream)
    file = await asyncio.to_thread(open_made, call.team.paths.results, job, *wanted)
    file.seek(query.offset)

    async def pieces() -> AsyncIterator[bytes]:
        try:
            while piece := await asyncio.to_thread(file.read, _PIECE):
                yield piece
        finally:
            file.close()

    return Bytes(pieces(), {})


@get("/v1/jobs/{job_id:int}/made/contents")
async def read_all_made(call: Call, job_id: int, query: ContentsQuery) -> Frames:
    """All of those files one after the other, in one stream: a frame or more of each."""
    job = call.api.jobs.find(call.who, job_id)
    return Frames(_frames(contents_of(call.team.paths.results, job, query.index, query.offset)))


async def _frames(pieces: Generator[tuple[MadePiece, bytes]]) -> AsyncIterator[Frame]:
    """Read in threads, many short files at a time."""
    try:
        while some := await asyncio.to_thread(_some, pieces):
            for piece, data in some:
                yield dict(piece), data
    finally:
        pieces.close()


def _some(pieces: Iterator[tuple[MadePiece, bytes]]) -> list[tuple[MadePiece, bytes]]:
    found, size = [], 0
    for piece in itertools.islice(pieces, _MOST_FILES):
        found.append(piece)
        size += len(piece[1])
        if size >= _AT_ONCE:
            break
    return found


ENDPOINTS: list[Endpoint] = [list_made, read_made, read_all_made]
