"""The data of a team: what is shared, and that of groups and users."""

import os
from collections.abc import AsyncIterator
from typing import Annotated

from msgspec import Meta, Struct

from towline.api.places import Nothing
from towline.api.team import DataArrival, DataDomains, DataListing, DataStat
from towline.errors import UsageError
from towline.model.team.data import DataAccess
from towline.server.endpoints import Call, Endpoint, delete, get, post, put
from towline.server.routes.files import SIZE_HEADER, Place
from towline.server.streams import Bytes
from towline.server.team.data.data import DataPlace
from towline.server.team.data.uploads import ComingData

#: Another one as soon as the file has changed.
VERSION_OF_FILE = "Towline-File-Version"
_PIECE = 1 << 20
_LAST = 2**62


class DataPath(Struct, forbid_unknown_fields=True):
    path: str = ""


class DataFolderQuery(DataPath):
    #: Only names behind this one.
    after: str = ""


class DataMove(DataPath):
    to: str = ""


class DataStatQuery(DataPath):
    #: Also the hash of the content.
    hash: bool = False


class DataRange(DataPath):
    offset: Place = 0
    limit: Place = _LAST
    #: What the header of an earlier answer said; refused if that has changed.
    version: str = ""


class AnnouncedFile(DataPath):
    size: Place = 0
    #: Of the whole content.
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")] = ""
    mode: Annotated[str, Meta(pattern="^[0-7]{1,4}$")] = "0644"
    #: Where the piece that is sent begins.
    offset: Place = 0


def _at(call: Call, domain: str, path: str, need: DataAccess) -> DataPlace:
    """The place that is meant, if whoever asks may do that there."""
    if need is DataAccess.WRITE:
        call.note(data=path[:500])
    return call.team.data.at(call.who, domain, path, need)


@get("/v1/data")
async def list_domains(call: Call) -> DataDomains:
    """The data that somebody has: how much it is, and how much it may be."""
    data = call.team.data
    tops = data.domains(call.who)
    return {"domains": [await data.run(data.files.view, top) for top in tops]}


@get("/v1/data/{domain:str}/files")
async def list_data(call: Call, domain: str, query: DataFolderQuery) -> DataListing:
    """What is in a folder; links are told of, and never followed."""
    at = _at(call, domain, query.path, DataAccess.READ)
    return await call.team.data.run(call.team.data.files.entries, at, query.after)


@get("/v1/data/{domain:str}/stat")
async def stat_data(call: Call, domain: str, query: DataStatQuery) -> DataStat:
    """What a path is, with `hash` also the hash of its content."""
    at = _at(call, domain, query.path, DataAccess.READ)
    return await call.team.data.run(call.team.data.files.stat, at, query.hash)


@get("/v1/data/{domain:str}/file")
async def read_data(call: Call, domain: str, query: DataRange) -> Bytes:
    """The bytes of a file, or of the range that `offset` and `limit` name."""
    at = _at(call, domain, query.path, DataAccess.READ)
    found = await call.team.data.run(call.team.data.files.open, at, query.version)
    file = os.fdopen(found.fd, "rb", buffering=0)

    async def pieces() -> AsyncIterator[bytes]:
        place, end = query.offset, min(query.offset + query.limit, _LAST)
        with file:
            while place < end:
                some = min(_PIECE, end - place)
                piece = await call.team.data.run(os.pread, file.fileno(), some, place)
                if not piece:
                    return
                place += len(piece)
                yield piece

    return Bytes(pieces(), {SIZE_HEADER: str(found.size), VERSION_OF_FILE: found.version})


@post("/v1/data/{domain:str}/file")
async def begin_file(call: Call, domain: str, query: AnnouncedFile) -> DataArrival:
    """Announce a file: how much of it is here already, and whether there is room for it."""
    at = _at(call, domain, query.path, DataAccess.WRITE)
    call.note(bytes=query.size)
    return await call.team.data.run(call.team.data.files.begin, at, _coming(query))


@put("/v1/data/{domain:str}/file")
async def take_pieces(call: Call, domain: str, query: AnnouncedFile) -> DataArrival:
    """Send the bytes from `offset` on; with the last ones the file has its name."""
    at = _at(call, domain, query.path, DataAccess.WRITE)
    coming, files = _coming(query), call.team.data.files
    offset, waiting = query.offset, bytearray()
    arrived: DataArrival = {"offset": offset, "complete": False}
    stream = call.stream()
    try:
        async for some in stream:
            waiting += some
            if len(waiting) < _PIECE:
                continue
            piece, waiting = bytes(waiting), bytearray()
            arrived = await call.team.data.run(files.take, at, coming, offset, piece)
            offset += len(piece)
            if arrived["offset"] != offset:
                return arrived
        if waiting:
            arrived = await call.team.data.run(files.take, at, coming, offset, bytes(waiting))
        return arrived
    finally:
        # Who still sends hears the answer only after that.
        async for _ in stream:
            pass


def _coming(query: AnnouncedFile) -> ComingData:
    if not query.sha256:
        raise UsageError("`sha256` says which hash the whole content has")
    return ComingData(query.size, query.sha256, int(query.mode, 8))


@put("/v1/data/{domain:str}/folder")
async def make_data_folder(call: Call, domain: str, query: DataPath) -> Nothing:
    """Make a folder, and those that it is in."""
    at = _at(call, domain, query.path, DataAccess.WRITE)
    await call.team.data.run(call.team.data.files.make_folder, at)
    return {}


@post("/v1/data/{domain:str}/move")
async def move_data(call: Call, domain: str, query: DataMove) -> Nothing:
    """Give a file or a folder another name in its domain; a file of that name is replaced."""
    at = _at(call, domain, query.path, DataAccess.WRITE)
    to = _at(call, domain, query.to, DataAccess.WRITE)
    await call.team.data.run(call.team.data.files.move, at, to)
    return {}


@delete("/v1/data/{domain:str}/file")
async def delete_data(call: Call, domain: str, query: DataPath) -> Nothing:
    """Delete a file, or a folder with all that is in it."""
    at = _at(call, domain, query.path, DataAccess.WRITE)
    await call.team.data.run(call.team.data.files.delete, at)
    return {}


ENDPOINTS: list[Endpoint] = [
    list_domains,
    list_data,
    stat_data,
    read_data,
    begin_file,
    take_pieces,
    make_data_folder,
    move_data,
    delete_data,
]
