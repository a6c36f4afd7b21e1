"""Bring a snapshot to a machine: only what it lacks travels.

A snapshot is mostly like one that the machine has. Then a single message says what is different,
with the new contents in front of it. Otherwise the machine is asked which contents it lacks, and
these travel first; the list of entries comes last, so that a snapshot that is there is complete.
"""

import asyncio
import time
from collections import deque
from weakref import WeakKeyDictionary

from msgspec import Struct

from towline.agent.link import Answer, Link
from towline.backends.staging.chunks import UploadPace, chunks
from towline.backends.staging.eager import settle
from towline.errors import AgentError
from towline.snapshot.blobs import BlobStore
from towline.snapshot.entries import Entry, load_snapshot

#: Messages on the wire before the oldest must be acknowledged: keeps the pipe full, memory bounded.
_WINDOW = 8
#: Up to so many new bytes are sent without asking first whether they are there already.
_UNASKED = 1024 * 1024
_MOST_BASES = 4
_LOOKED_AT = 64

#: What each open channel's machine is known to have, the latest last.
_bases: "WeakKeyDictionary[Link, deque[str]]" = WeakKeyDictionary()


class Sending(Struct):
    """How far a snapshot is on its way, in bytes; nothing is known before `total` is."""

    sent: int = 0
    total: int = 0


class Difference(Struct, frozen=True):
    """How a snapshot differs from one that the machine has."""

    base: str
    changed: list[Entry]
    removed: list[str]


async def stage(
    link: Link,
    blobs: BlobStore,
    snapshot_id: str,
    sending: Sending | None = None,
    anew: bool = False,
    asked: "asyncio.Future[Answer] | None" = None,
) -> None:
    """After this the machine can make the snapshot's tree without asking anybody.

    `anew`: nothing that it was sent before is relied on, since contents turned out to be gone.
    `asked`: it was asked for it already (`ask_for`).
    """
    sending = sending or Sending()
    await settle(link)
    known = _bases.setdefault(link, deque(maxlen=_MOST_BASES))
    in_thread = asyncio.get_running_loop().run_in_executor
    entries = await in_thread(None, load_snapshot, blobs, snapshot_id)
    if anew:
        known.clear()
        await _send_missing(link, blobs, _contents(entries), sending)
        await link.ask("snapshot", snapshot=snapshot_id, entries=entries)
        known.append(snapshot_id)
        return
    if not known:
        answer, _ = await (asked or ask_for(link, snapshot_id))
        # The newest is the one to compare with first, so it comes last.
        known.extend(reversed(answer.get("recent", ())[:_MOST_BASES]))
        if answer["have"]:
            return
    difference = await in_thread(None, _difference, blobs, known, entries)
    if difference is None or not await _send_difference(
        link, blobs, snapshot_id, difference, sending
    ):
        await _send_all(link, blobs, snapshot_id, entries, sending)
    if snapshot_id in known:
        known.remove(snapshot_id)
    known.append(snapshot_id)


def ask_for(link: Link, snapshot_id: str) -> "asyncio.Future[Answer]":
    """Ask whether a snapshot is there, and which others are; nobody need hear the answer."""
    answer = link.ask_soon("have_snapshot", snapshot=snapshot_id, recent=True)
    answer.add_done_callback(lambda done: done.cancelled() or done.exception())
    return answer


async def _send_difference(
    link: Link, blobs: BlobStore, snapshot_id: str, difference: Difference, sending: Sending
) -> bool:
    """False if the machine has no longer what it takes."""
    new = _contents(difference.changed)
    if sum(blobs.size(digest) for digest in new) > _UNASKED:
        await _send_missing(link, blobs, new, sending)
        new = []
    sent = [
        link.ask_soon(chunk.op, chunk.body, **chunk.fields)
        for chunk in chunks(blobs, new, UploadPace())
    ]
    last = link.ask_soon(
        "snapshot",
        snapshot=snapshot_id,
        base=difference.base,
        entries=difference.changed,
        removed=difference.removed,
    )
    outcomes = await asyncio.gather(*sent, last, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, AgentError) and outcome.code in ("no_base", "no_content"):
            return False
        if isinstance(outcome, BaseException):
            raise outcome
    return True


async def _send_all(
    link: Link, blobs: BlobStore, snapshot_id: str, entries: list[Entry], sending: Sending
) -> None:
    answer, _ = await link.ask("have_snapshot", snapshot=snapshot_id)
    if answer["have"]:
        return
    await _send_missing(link, blobs, _contents(entries), sending)
    await link.ask("snapshot", snapshot=snapshot_id, entries=entries)


async def _send_missing(link: Link, blobs: BlobStore, digests: list[str], sending: Sending) -> None:
    offered = set(digests)
    answer, _ = await link.ask("missing", hashes=digests)
    # No machine gets a content that it was not offered.
    missing = [digest for digest in answer["missing"] if digest in offered]
    sending.total += sum(blobs.size(digest) for digest in missing)
    held = {digest: await _resumed(link, digest) for digest in answer["begun"] if digest in offered}
    sending.sent += sum(held.values())
    try:
        await _send_contents(link, blobs, missing, held, sending)
    except AgentError as error:
        if error.code not in ("corrupt", "bad_offset") or not held:
            raise
        # What the machine had of them was damaged, and is gone now.
        await _send_missing(link, blobs, digests, sending)


async def _resumed(link: Link, digest: str) -> int:
    """How many bytes of a content, whose sending was interrupted, need not be sent again."""
    while True:
        answer, _ = await link.ask("resume", hash=digest)
        if not answer["more"]:
            return int(answer["size"])


async def _send_contents(
    link: Link, blobs: BlobStore, digests: list[str], held: dict[str, int], sending: Sending
) -> None:
    waiting: deque[tuple[int, asyncio.Future[Answer]]] = deque()
    in_thread = asyncio.get_running_loop().run_in_executor
    began = time.monotonic()
    await link.ask("missing", hashes=[])
    pace = UploadPace(time.monotonic() - began)
    all_chunks = chunks(blobs, digests, pace, held)
    try:
        while (chunk := await in_thread(None, next, all_chunks, None)) is not None:
            answer = link.ask_soon(chunk.op, chunk.body, **chunk.fields)
            waiting.append((chunk.size, answer))
            if len(waiting) > _WINDOW:
                began = time.monotonic()
                size, answer = waiting.popleft()
                await answer
                sending.sent += size
                pace.arrived(size, time.monotonic() - began)
        while waiting:
            size, answer = waiting.popleft()
            await answer
            sending.sent += size
    finally:
        for _, answer in waiting:
            if not answer.cancel() and not answer.cancelled():
                answer.exception()  # one of them is told, the others are not news


def _difference(blobs: BlobStore, bases: deque[str], entries: list[Entry]) -> Difference | None:
    """To the most similar snapshot that the machine has; None if none is similar."""
    best: dict[str, Entry] = {}
    name, most = "", _LOOKED_AT // 2
    looked_at = entries[:: len(entries) // _LOOKED_AT + 1]
    for base in reversed(bases):
        if not blobs.has(base):
            continue
        before = {entry[0]: entry for entry in load_snapshot(blobs, base)}
        same = sum(before.get(entry[0]) == entry for entry in looked_at)
        if same * _LOOKED_AT > most * len(looked_at):
            best, name, most = before, base, same * _LOOKED_AT // len(looked_at)
    if not name:
        return None
    present = {entry[0] for entry in entries}
    return Difference(
        base=name,
        changed=[entry for entry in entries if best.get(entry[0]) != entry],
        removed=[path for path in best if path not in present],
    )


def _contents(entries: list[Entry]) -> list[str]:
    return list(dict.fromkeys(entry[2] for entry in entries if entry[1] in ("f", "x")))
