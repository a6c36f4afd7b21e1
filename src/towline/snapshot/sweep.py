"""Remove the blobs of this machine that no remembered job needs."""

import os
from collections.abc import Iterable, Iterator

from towline.errors import NotFound
from towline.snapshot.blobs import BlobStore
from towline.snapshot.entries import load_snapshot
from towline.snapshot.packs import PackedBlob, PackWriter, contents, is_older, remove_unused


def sweep(store: BlobStore, snapshots: Iterable[str], before: float, dry_run: bool) -> list[int]:
    """Remove blobs last used before a time that none of the snapshots needs; the size of each."""
    old = dict(_unused_since(store, before))
    packs = {stem: dict(contents(stem)) for stem in store.packs.stems() if is_older(stem, before)}
    if not old and not packs:
        return []
    needed: set[bytes] = set()
    for digest in _blobs_of(store, snapshots):
        old.pop(digest, None)
        if packs:
            needed.add(bytes.fromhex(digest))
    gone = [size for digest, size in old.items() if dry_run or _remove(store, digest, before)]
    for stem, places in packs.items():
        gone += _sweep_pack(store, stem, places, needed, before, dry_run)
    return gone


def _sweep_pack(
    store: BlobStore,
    stem: str,
    places: dict[bytes, PackedBlob],
    needed: set[bytes],
    before: float,
    dry_run: bool,
) -> list[int]:
    """A pack goes when most of it is not needed; what is needed of it goes into a new one."""
    live = {digest: place for digest, place in places.items() if digest in needed}
    dead = [place.size for digest, place in places.items() if digest not in needed]
    if places and (not dead or sum(place.size for place in live.values()) > sum(dead)):
        return []
    if not dry_run:
        _copy(store, live)
        store.unsynced.sync()  # before what it was copied from goes
        if not store.packs.remove(stem, before):
            return []
        store.seen.clear()
    return dead


def _copy(store: BlobStore, live: dict[bytes, PackedBlob]) -> None:
    if not live:
        return
    writer = PackWriter(store.packs)
    try:
        for digest, place in live.items():
            writer.add(digest.hex(), place.read())
    except BaseException:
        writer.abandon()
        raise
    writer.finish()


def _unused_since(store: BlobStore, before: float) -> Iterator[tuple[str, int]]:
    for shelf in _entries(store.root):
        if len(shelf.name) == 2 and shelf.is_dir(follow_symlinks=False):
            for entry in _entries(shelf.path):
                if entry.name.startswith("new-"):
                    continue  # being written, gone the next moment
                found = entry.stat(follow_symlinks=False)
                if found.st_mtime < before:
                    yield shelf.name + entry.name, found.st_size


def _entries(folder: str) -> list["os.DirEntry[str]"]:
    with os.scandir(folder) as found:
        return list(found)


def _blobs_of(store: BlobStore, snapshots: Iterable[str]) -> Iterator[str]:
    for snapshot in snapshots:
        yield snapshot
        try:
            entries = load_snapshot(store, snapshot)
        except NotFound:
            continue
        yield from (entry[2] for entry in entries if entry[1] in ("f", "x"))


def _remove(store: BlobStore, digest: str, before: float) -> bool:
    return remove_unused(store.path(digest), f"{store.root}/new-{digest}", before)
