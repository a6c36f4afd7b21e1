"""A folder of this machine to a team's server, and results from there: the submitter's side, in the
process of whoever submits."""

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, BinaryIO, Protocol

import msgspec
from msgspec.structs import replace

from towline.config.load import Configuration
from towline.config.paths import Paths
from towline.config.trust import Trusted
from towline.model.job import UMASK, Attempt, Job, JobSpec
from towline.model.machine import Slot
from towline.model.odd_text import keepable
from towline.snapshot.blobs import BlobStore
from towline.snapshot.branch import record
from towline.snapshot.sweep import sweep
from towline.snapshot.take import HashCache, Snapshot, take_snapshot
from towline.workspace.ask import JobAsk, check_included, checked_folder, title_of
from towline.workspace.ask import snapshot_settings as settings_for
from towline.workspace.base import Delivery, Frozen, Item, PlacedResults, Whole
from towline.workspace.draft import frozen_of
from towline.workspace.receiver import FolderReceiver

#: In one frame, in one request, and hashes in one question.
_PIECE = 4 << 20
_AT_ONCE = 32 << 20
_MOST_HASHES = 50_000
#: So many short files are put into place in one go.
_TOGETHER = 500
#: Copies that were made for an earlier submission and not used since then go.
_KEPT_S = 2 * 86400.0


class ServerLink(Protocol):
    """What is asked of a team's server here (a `RemoteSession` of the client)."""

    def call(self, method: str, target: str, body: Any = None, *, repeat: bool = False) -> Any: ...
    def upload(
        self, target: str, frames: Callable[[], Iterable[tuple[dict[str, Any], bytes]]]
    ) -> Any: ...
    def made(self, job_id: int) -> Iterator[tuple[dict[str, Any], bytes]]: ...


class Sender:
    """Freezes folders and sends what of them the server lacks."""

    def __init__(self, link: ServerLink, paths: Paths) -> None:
        self._link = link
        self._paths = paths
        self._configuration = Configuration(paths.config_file, Trusted(paths.trusted))
        folder = servers_folder(paths)
        os.makedirs(folder, 0o700, exist_ok=True)
        self._blobs = BlobStore(os.path.join(folder, "blobs"))
        self._hashes = HashCache()
        self._known: dict[str, Frozen] = {}

    def prepare(self, body: dict[str, Any]) -> None:
        """Complete the asks of a submission: each gets the snapshot of its folder, sent."""
        asks = [body, body.get("base"), *body.get("jobs", ())]
        for ask in asks:
            if ask and "argv" in ask and "cwd" in ask and not ask.get("frozen"):
                # The environment of this terminal stays here.
                for name in ("environ", "environ_later"):
                    ask.pop(name, None)
                ask["frozen"] = msgspec.to_builtins(self.frozen(msgspec.convert(ask, JobAsk)))
        sweep(self._blobs, (), time.time() - _KEPT_S, dry_run=False)

    def frozen(self, ask: JobAsk) -> Frozen:
        """The folder as it is now, once all of it is on the server."""
        same = repr((ask.cwd, ask.include, ask.exclude, ask.only, ask.branch))
        if same not in self._known:
            self._known[same] = self._freeze(ask)
        return self._known[same]

    def _freeze(self, ask: JobAsk) -> Frozen:
        folder = checked_folder(ask.cwd)
        base = self._configuration.in_folder(None)
        travels = self._configuration.what_travels(folder)
        settings = settings_for(ask, replace(base, snapshot=travels))
        taken = take_snapshot(folder, settings, self._hashes, self._blobs)
        check_included(ask.include, [entry[0] for entry in taken.entries], folder)
        title = title_of(ask.title or " ".join(ask.argv))
        frozen = frozen_of(taken, record(folder, title, time.time(), ask.branch))
        if taken.entries:
            self._send(taken)
            answer = self._link.call(
                "POST", "/v1/snapshots", {"entries": taken.entries}, repeat=True
            )
            frozen = replace(frozen, snapshot=answer["snapshot"])
        return frozen

    def _send(self, taken: Snapshot) -> None:
        hashes = list(taken.sizes)
        missing: list[str] = []
        for start in range(0, len(hashes), _MOST_HASHES):
            some = {"hashes": hashes[start : start + _MOST_HASHES]}
            missing += self._link.call("POST", "/v1/contents/missing", some, repeat=True)["missing"]
        for group in _groups(missing, taken.sizes):
            self._link.upload("/v1/contents", partial(self._frames, group))

    def _frames(self, hashes: list[str]) -> Iterator[tuple[dict[str, Any], bytes]]:
        for digest in hashes:
            with self._blobs.open(digest) as source:
                yield from _pieces(digest, source, self._blobs.size(digest))


def _pieces(digest: str, source: BinaryIO, size: int) -> Iterator[tuple[dict[str, Any], bytes]]:
    offset = 0
    while True:
        piece = source.read(_PIECE)
        last = offset + len(piece) >= size
        yield {"hash": digest, "offset": offset, "last": last}, piece
        offset += len(piece)
        if last:
            return


def _groups(hashes: list[str], sizes: dict[str, int]) -> Iterator[list[str]]:
    """As many contents in one request as do not become too much."""
    group: list[str] = []
    size = 0
    for digest in hashes:
        if group and size + sizes[digest] > _AT_ONCE:
            yield group
            group, size = [], 0
        group.append(digest)
        size += sizes[digest]
    if group:
        yield group


def bring_home(link: ServerLink, server: str, job: dict[str, Any], paths: Paths) -> PlacedResults:
    """Put what a job made into the folder that it came from, by the same rules as everywhere."""
    return asyncio.run(_bring(link, server, job, paths))


async def _bring(link: ServerLink, server: str, job: dict[str, Any], paths: Paths) -> PlacedResults:
    number, folder = int(job["id"]), str(job["folder"])
    spare = servers_folder(paths)
    receiver = FolderReceiver(spare, BlobStore(os.path.join(spare, "blobs")))
    name = f"{server}-{job['batch']}.{job['line']}" if job.get("batch") else f"{server}-{number}"
    spec = JobSpec(argv=(), cluster=server, owner="", folder=keepable(folder), name=name)
    spec = replace(spec, umask=int(job.get("umask", UMASK)))
    attempt = Attempt(int(job.get("attempt") or 1), (Slot("", ()),))
    memory_file = os.path.join(spare, f"{server}.{number}.brought")
    delivery = receiver.deliver(Job(number, spec, attempt=attempt), _read(memory_file))
    coming: list[Item] = []
    try:
        await _place(link.made(number), delivery, coming)
        placed = await delivery.finish(True)
    finally:
        await delivery.let_go(coming, go_on=False)
        delivery.close()
        receiver.close()
    _write(memory_file, placed.memory)
    return placed


async def _place(
    pieces: Iterator[tuple[dict[str, Any], bytes]], to: Delivery, coming: list[Item]
) -> None:
    """Put short files into place many at a time, and long ones as they are `coming`."""
    whole: list[Whole] = []
    size = 0
    links: list[tuple[Item, str]] = []
    for piece, data in pieces:
        item = Item(piece["process"], piece["name"], piece["stream"], piece["mode"])
        if piece["link"]:
            links.append((item, piece["link"]))
        elif item.stream or piece["offset"] or not piece["last"]:
            coming[:] = [item]
            await to.write(item, piece["offset"], data, piece["last"])
            if piece["last"]:
                await to.let_go([item], go_on=False)
        else:
            whole.append(Whole(item, data))
            size += len(data)
        if len(whole) == _TOGETHER or size > _PIECE:
            await to.put(whole)
            whole, size = [], 0
    await to.put(whole)
    # Links last, one after the other: no file is written through one of them.
    for item, target in links:
        await to.put_link(item, target)


def servers_folder(paths: Paths) -> str:
    """What is remembered of the servers that somebody uses from here."""
    return os.path.join(paths.home, "servers")


def _read(file: str) -> bytes | None:
    try:
        with open(file, "rb") as opened:
            return opened.read()
    except FileNotFoundError:
        return None


def _write(file: str, content: bytes) -> None:
    fresh = f"{file}.{os.getpid()}"
    with open(fresh, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as opened:
        opened.write(content)
    os.rename(fresh, file)
