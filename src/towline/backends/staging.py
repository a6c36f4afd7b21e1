"""Bring a snapshot to a machine: it names the blobs it lacks, and only these travel."""

import asyncio
import zlib
from collections import deque
from collections.abc import Iterator

from towline.agent.link import Answer, Link
from towline.snapshot.blobs import BlobStore
from towline.snapshot.take import load_snapshot

_CHUNK = 1024 * 1024
#: Chunks on the wire before the oldest must be acknowledged: keeps the pipe full, memory bounded.
_WINDOW = 8


async def stage(link: Link, blobs: BlobStore, snapshot_id: str) -> None:
    """After this the machine can make the snapshot's tree without asking anybody."""
    answer, _ = await link.ask("have_snapshot", snapshot=snapshot_id)
    if answer["have"]:
        return
    entries = load_snapshot(blobs, snapshot_id)
    hashes = list(dict.fromkeys(entry[2] for entry in entries if entry[1] in ("f", "x")))
    missing, _ = await link.ask("missing", hashes=hashes)
    waiting: deque[asyncio.Future[Answer]] = deque()
    for digest in missing["missing"]:
        for offset, chunk, last in _chunks(blobs, digest):
            packed = zlib.compress(chunk, 1)
            small = len(packed) < len(chunk)
            waiting.append(
                link.ask_soon(
                    "blob",
                    packed if small else chunk,
                    hash=digest,
                    offset=offset,
                    last=last,
                    z=small,
                )
            )
            if len(waiting) > _WINDOW:
                await waiting.popleft()
    while waiting:
        await waiting.popleft()
    await link.ask("snapshot", snapshot=snapshot_id, entries=entries)


def _chunks(blobs: BlobStore, digest: str) -> Iterator[tuple[int, bytes, bool]]:
    with blobs.open(digest) as file:
        offset = 0
        chunk = file.read(_CHUNK)
        while True:
            following = file.read(_CHUNK)
            yield offset, chunk, not following
            if not following:
                return
            offset += len(chunk)
            chunk = following
