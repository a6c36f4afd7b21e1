"""Submissions from a folder of this machine, and the freezing of it."""

import asyncio
import heapq
import time
from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from towline.config.settings import SnapshotSettings
from towline.errors import TowlineError
from towline.model.job import JobSpec
from towline.model.odd_text import keepable
from towline.snapshot.blobs import BlobStore
from towline.snapshot.branch import RecordedTree, record
from towline.snapshot.take import HashCache, Snapshot, take_snapshot
from towline.workspace.ask import JobAsk, check_included, named_after, snapshot_settings
from towline.workspace.base import Frozen, Measured, Offer, Places, Submission

T = TypeVar("T")
#: Of a larger folder the reading is what takes time, and done once.
_REHEARSED_MB = 8.0
_LARGEST = 10
#: Files over this are named before they travel: often nobody meant to send them.
_LARGE = 50 * 1024 * 1024
_MOST_CHANGED = 200


class Freezer:
    """Takes snapshots in threads, and remembers what did not change."""

    def __init__(self, blobs: BlobStore) -> None:
        self.blobs = blobs
        self._hashes = HashCache()

    async def snapshot(
        self, folder: str, settings: SnapshotSettings, offer: Offer | None = None
    ) -> Snapshot:
        return await in_thread(take_snapshot, folder, settings, self._hashes, self.blobs, offer)


class FolderDraft:
    """What was asked in a folder of this machine (`Draft` of base.py)."""

    def __init__(self, ask: JobAsk, spec: JobSpec, places: Places, freezer: Freezer) -> None:
        self.spec = spec
        self.places = places
        self.environ = None if ask.environ_later else ask.environ
        self.tree = repr((ask.cwd, ask.include, ask.exclude, ask.only, ask.branch))
        self._ask = ask
        self._freezer = freezer
        self._settings = snapshot_settings(ask, places.config)

    def __repr__(self) -> str:
        return f"FolderDraft({self.spec!r})"

    async def rehearse(self) -> str:
        limit_mb = min(self._settings.limit_mb, _REHEARSED_MB)
        settings = replace(self._settings, limit_mb=limit_mb)
        try:
            taken = await self._freezer.snapshot(self._ask.cwd, settings)
        except (TowlineError, OSError):
            return ""  # it is told when it counts
        return taken.id if taken.entries else ""

    async def measure(self) -> Measured:
        taken = await self._snapshot(None)
        return Measured(taken.files, taken.bytes, largest(taken), taken.subfolder)

    async def freeze(self, offer: Offer | None) -> Frozen:
        """The folder as content and as git calls it; both at the same time."""
        ask = self._ask
        recording = in_thread(record, ask.cwd, self.spec.title, time.time(), ask.branch)
        snapshot, recorded = await asyncio.gather(self._snapshot(offer), recording)
        return frozen_of(snapshot, recorded)

    async def _snapshot(self, offer: Offer | None) -> Snapshot:
        ask = self._ask
        taken = await self._freezer.snapshot(ask.cwd, self._settings, offer)
        check_included(ask.include, [entry[0] for entry in taken.entries], ask.cwd)
        return taken

    def submission(self, frozen: Frozen) -> Submission:
        ask = self._ask
        environ = self.environ or {}
        return Submission(self.spec, frozen, environ, ask.continued, named_after(ask))


def frozen_of(snapshot: Snapshot, recorded: RecordedTree) -> Frozen:
    changed = recorded.changed[:_MOST_CHANGED]
    large = ((path, size) for path, size in largest(snapshot) if size > _LARGE)
    return Frozen(
        snapshot=snapshot.id if snapshot.entries else "",
        subfolder=keepable(snapshot.subfolder),
        files=snapshot.files,
        bytes=snapshot.bytes,
        large=tuple((keepable(path), size) for path, size in large),
        commit=recorded.commit,
        branch=recorded.branch,
        changed=tuple((letter, keepable(path)) for letter, path in changed),
    )


def largest(snapshot: Snapshot) -> list[tuple[str, int]]:
    """The largest files of a snapshot, with their sizes."""
    files = [entry for entry in snapshot.entries if entry[1] in "fx"]
    sized = ((path, snapshot.sizes[digest]) for path, _, digest in files)
    return heapq.nlargest(_LARGEST, sized, key=lambda item: item[1])


async def in_thread(function: Callable[..., T], *arguments: object) -> T:
    return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)
