"""Bring a snapshot to a machine: only what it lacks travels.

A snapshot is mostly like one that the machine has. Then a single message says what is different,
with the new contents in front of it. Otherwise the machine is asked which contents it lacks, and
these travel first; the list of entries comes last, so that a snapshot that is there is complete.
"""

import asyncio
import os
import time
import zlib
from collections import deque
from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

from msgspec import Struct

from towline.agent.link import Answer, Link
from towline.errors import AgentError
from towline.snapshot.blobs import BlobStore
from towline.snapshot.take import Entry, load_snapshot

_CHUNK = 1024 * 1024
#: Contents up to this size travel many in one message.
_SMALL = 256 * 1024
#: Messages on the wire before the oldest must be acknowledged: keeps the pipe full, memory bounded.
_WINDOW = 8
#: Up to so many new bytes are sent without asking first whether they are there already.
_UNASKED = 1024 * 1024
#: On a connection faster than this, compressing costs more time than it saves.
_FAST_BYTES_PER_S = 30e6
_NEAR_S = 0.01
_SAMPLE = 4096
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


class Parcel(Struct, frozen=True):
    """One message with contents."""

    op: str
    fields: dict[str, Any]
    body: bytes


async def stage(
    link: Link, blobs: BlobStore, snapshot_id: str, sending: Sending | None = None
) -> None:
    """After this the machine can make the snapshot's tree without asking anybody."""
    sending = sending or Sending()
    known = _bases.setdefault(link, deque(maxlen=_MOST_BASES))
    in_thread = asyncio.get_running_loop().run_in_executor
    entries = await in_thread(None, load_snapshot, blobs, snapshot_id)
    if not known:
        answer, _ = await link.ask("have_snapshot", snapshot=snapshot_id, recent=True)
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


async def _send_difference(
    link: Link, blobs: BlobStore, snapshot_id: str, difference: Difference, sending: Sending
) -> bool:
    """False if the machine has no longer what it takes."""
    new = _contents(difference.changed)
    if sum(os.path.getsize(blobs.path(digest)) for digest in new) > _UNASKED:
        answer, _ = await link.ask("missing", hashes=new)
        await _send_contents(link, blobs, answer["missing"], sending)
        new = []
    sent = [
        link.ask_soon(parcel.op, parcel.body, **parcel.fields) for parcel in _parcels(blobs, new)
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
    answer, _ = await link.ask("missing", hashes=_contents(entries))
    await _send_contents(link, blobs, answer["missing"], sending)
    await link.ask("snapshot", snapshot=snapshot_id, entries=entries)


async def _send_contents(
    link: Link, blobs: BlobStore, digests: list[str], sending: Sending
) -> None:
    sending.total += sum(os.path.getsize(blobs.path(digest)) for digest in digests)
    waiting: deque[tuple[int, asyncio.Future[Answer]]] = deque()
    in_thread = asyncio.get_running_loop().run_in_executor
    parcels = _parcels(blobs, digests)
    began = time.monotonic()
    await link.ask("missing", hashes=[])
    pace = Pace(time.monotonic() - began)
    try:
        while (parcel := await in_thread(None, _next, parcels, pace.is_slow)) is not None:
            answer = link.ask_soon(parcel.op, parcel.body, **parcel.fields)
            waiting.append((len(parcel.body), answer))
            if len(waiting) > _WINDOW:
                began = time.monotonic()
                size, answer = waiting.popleft()
                await answer
                sending.sent += size
                pace.arrived(size, time.monotonic() - began)
        while waiting:
            await waiting.popleft()[1]
    finally:
        for _, answer in waiting:
            if not answer.cancel() and not answer.cancelled():
                answer.exception()  # one of them is told, the others are not news


class Pace:
    """Whether the connection is what we wait for, learnt from how long answers took so far."""

    def __init__(self, answer_s: float) -> None:
        self._arrived = 0
        self._waited_s = 0.0
        #: A machine that answers at once is near.
        self.is_slow = answer_s > _NEAR_S

    def arrived(self, size: int, waited_s: float) -> None:
        self._arrived += size
        self._waited_s += waited_s
        self.is_slow = self._arrived < self._waited_s * _FAST_BYTES_PER_S


def _next(parcels: Iterator[Parcel], is_slow: bool) -> Parcel | None:
    parcel = next(parcels, None)
    if parcel is None or not is_slow or not _is_compressible(parcel.body):
        return parcel
    return Parcel(parcel.op, {**parcel.fields, "z": True}, zlib.compress(parcel.body, 1))


def _is_compressible(body: bytes) -> bool:
    """Judged by a sample: already compressed data would only cost time."""
    middle = max(0, len(body) // 2 - _SAMPLE // 2)
    sample = body[middle : middle + _SAMPLE]
    return len(zlib.compress(sample, 1)) < 0.8 * len(sample)


def _parcels(blobs: BlobStore, digests: list[str]) -> Iterator[Parcel]:
    """The contents as messages: small ones together, large ones in pieces."""
    together: list[bytes] = []
    names: list[tuple[str, int]] = []
    size = 0
    for digest in digests:
        with blobs.open(digest) as file:
            start = file.read(_SMALL + 1)
            if len(start) > _SMALL:
                file.seek(0)
                yield from _pieces(digest, file)
                continue
        if size + len(start) > _CHUNK:
            yield Parcel("blobs", {"contents": names}, b"".join(together))
            together, names, size = [], [], 0
        together.append(start)
        names.append((digest, len(start)))
        size += len(start)
    if names:
        yield Parcel("blobs", {"contents": names}, b"".join(together))


def _pieces(digest: str, file: Any) -> Iterator[Parcel]:
    offset = 0
    piece = file.read(_CHUNK)
    while piece:
        following = file.read(_CHUNK)
        yield Parcel("blob", {"hash": digest, "offset": offset, "last": not following}, piece)
        offset += len(piece)
        piece = following


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
