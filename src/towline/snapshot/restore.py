"""Bring a snapshot back into a folder of this machine."""

import os
import shutil

from towline.errors import UsageError
from towline.snapshot.blobs import BlobStore
from towline.snapshot.entries import Entry


def restore(blobs: BlobStore, entries: list[Entry], folder: str) -> int:
    """Make the tree in a new or empty folder; how many files that were. Nothing is overwritten."""
    if os.path.lexists(folder) and (not os.path.isdir(folder) or os.listdir(folder)):
        raise UsageError(
            f"{folder} exists and is not an empty folder", hint="choose another folder"
        )
    os.makedirs(folder, exist_ok=True)
    files = 0
    # Links last, so that nothing is ever written through one.
    for path, kind, what in sorted(entries, key=lambda entry: entry[1] == "l"):
        target = _inside(folder, path)
        os.makedirs(target if kind == "d" else os.path.dirname(target), exist_ok=True)
        if kind == "l":
            os.symlink(what, target)
        elif kind in "fx":
            with blobs.open(what) as source, open(target, "xb") as copy:
                shutil.copyfileobj(source, copy, 1 << 20)
            os.chmod(target, 0o755 if kind == "x" else 0o644)
            files += 1
    return files


def _inside(folder: str, path: str) -> str:
    parts = path.split("/")
    if not path or path.startswith("/") or any(part in ("", ".", "..") for part in parts):
        raise UsageError(f"the snapshot contains a path that leaves its folder: {path!r}")
    return os.path.join(folder, *parts)
