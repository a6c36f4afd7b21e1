"""Contents by their hashes, and snapshots made of them: how a folder comes to a team's server."""

import asyncio
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from towline.agent.frames import Unpacker
from towline.api.team import KeptContents, MissingContents, SentSnapshot
from towline.errors import UsageError
from towline.server.endpoints import Call, Endpoint, post
from towline.server.team.sent import Arriving, check_entries, keep_snapshot
from towline.snapshot.entries import Entry

_MOST_HASHES = 100_000
Hash = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class Hashes(Struct, forbid_unknown_fields=True):
    hashes: Annotated[list[Hash], Meta(max_length=_MOST_HASHES)]


class Manifest(Struct, forbid_unknown_fields=True):
    #: Path, kind (f, x, l or d), and hash or where the link leads.
    entries: list[Entry]


class PieceHead(Struct, forbid_unknown_fields=True):
    """What stands before a content that is sent, or a piece of it."""

    hash: Hash
    offset: Annotated[int, Meta(ge=0, le=2**62)] = 0
    last: bool = True


@post("/v1/contents/missing")
async def missing(call: Call, body: Hashes) -> MissingContents:
    """Which contents must be sent: those that this account never sent, or that are here no more."""
    return {"missing": await call.api.contents.missing(call.who, body.hashes)}


@post("/v1/contents")
async def send(call: Call) -> KeptContents:
    """Keep the contents in the frames of the body: `hash`, and `offset` and `last` of pieces."""
    arriving = Arriving(call.api.contents.blobs(call.who))
    unpacker = Unpacker()
    try:
        async for some in call.stream():
            for header, data in unpacker.feed(some):
                about = _piece(header)
                await asyncio.to_thread(arriving.take, about.hash, about.offset, data, about.last)
        kept = await asyncio.to_thread(arriving.finish)
    finally:
        arriving.close()
    await call.api.contents.note(call.who, kept)
    return {"kept": len(kept)}


@post("/v1/snapshots")
async def make_snapshot(call: Call, body: Manifest) -> SentSnapshot:
    """Make a snapshot of contents that were sent."""
    entries = check_entries(body.entries)
    hashes = list(dict.fromkeys(entry[2] for entry in entries if entry[1] in "fx"))
    sent, blobs = call.api.contents.sent(call.who, hashes), call.api.contents.blobs(call.who)
    snapshot, size = await asyncio.to_thread(keep_snapshot, blobs, entries, sent)
    await call.api.contents.note(call.who, [snapshot])
    files = sum(1 for entry in entries if entry[1] in "fx")
    return {"snapshot": snapshot, "files": files, "bytes": size}


def _piece(header: Any) -> PieceHead:
    try:
        return msgspec.convert(header, PieceHead)
    except msgspec.ValidationError as error:
        raise UsageError(f"a frame of the request's body is wrong: {error}") from None


ENDPOINTS: list[Endpoint] = [missing, send, make_snapshot]
