"""Remove the blobs of this machine that no remembered job needs."""

import os
from collections.abc import Iterable, Iterator

from towline.errors import NotFound
from towline.snapshot.blobs import BlobStore
from towline.snapshot.take import load_snapshot


def sweep(store: BlobStore, snapshots: Iterable[str], before: float, dry_run: bool) -> list[int]:
    """Remove blobs last used before a time that none of the snapshots needs; the size of each."""
    old = dict(_unused_since(store, before))
    if not old:
        return []
    for needed in _blobs_of(store, snapshots):
        old.pop(needed, None)
    return [size for digest, size in old.items() if dry_run or _remove(store, digest, before)]


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
    """Take it aside, look again, and put it back if somebody used it meanwhile."""
    path, aside = store.path(digest), f"{store.root}/new-{digest}"
    try:
        os.rename(path, aside)
        if os.stat(aside).st_mtime >= before:
            os.rename(aside, path)
            return False
        os.unlink(aside)
    except FileNotFoundError:
        return False
    return True
