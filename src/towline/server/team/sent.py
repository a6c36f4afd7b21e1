"""Contents that members send: each is checked against its hash before it counts."""

import hashlib
import tempfile
from collections.abc import Collection
from typing import BinaryIO, cast

from towline.errors import UsageError
from towline.snapshot.blobs import BlobStore
from towline.snapshot.entries import Entry, canonical

_KINDS = ("f", "x", "l", "d")
_MOST_ENTRIES = 2_000_000
_LONGEST_PATH = 4096


class Arriving:
    """The contents of one request; a long one comes in pieces, one after the other."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs
        self._kept: list[str] = []
        self._long: BinaryIO | None = None
        self._hash = ""
        self._size = 0

    def take(self, digest: str, offset: int, data: bytes, last: bool) -> None:
        if offset != self._size or (self._hash and digest != self._hash):
            raise UsageError("the pieces of a content must come one after the other")
        if last and not self._size:
            if hashlib.sha256(data).hexdigest() != digest:
                raise _wrong(digest)
            self._kept.append(self._blobs.put_bytes(data))
            return
        if self._long is None:
            self._long = cast("BinaryIO", tempfile.TemporaryFile(dir=self._blobs.root))
            self._hash = digest
        self._long.write(data)
        self._size += len(data)
        if last:
            self._keep_long()

    def _keep_long(self) -> None:
        assert self._long is not None
        self._long.seek(0)
        # It is kept by the hash that it has: what is wrong is in nobody's way.
        found, _ = self._blobs.put(self._long)
        if found != self._hash:
            raise _wrong(self._hash)
        self._kept.append(found)
        self.close()

    def finish(self) -> list[str]:
        """What came whole, once it is on disk."""
        if self._hash:
            raise UsageError(f"{self._hash[:12]} did not come whole")
        self._blobs.unsynced.sync()
        return self._kept

    def close(self) -> None:
        if self._long is not None:
            self._long.close()
        self._long, self._hash, self._size = None, "", 0


def _wrong(digest: str) -> UsageError:
    return UsageError(f"what was sent as {digest[:12]} has another hash")


def check_entries(entries: list[Entry]) -> list[Entry]:
    """Refuse what would lead out of the folder that it is made into; in the order of paths."""
    if len(entries) > _MOST_ENTRIES:
        raise UsageError(f"a snapshot has at most {_MOST_ENTRIES:,} entries")
    leaves: set[str] = set()
    for entry in entries:
        if len(entry) != 3 or entry[1] not in _KINDS:
            raise UsageError("an entry is a path, a kind (f, x, l or d), and a hash or an aim")
        path, kind, what = entry
        parts = path.split("/")
        odd = not path or len(path) > _LONGEST_PATH or "\0" in path + what
        if odd or any(part in ("", ".", "..") for part in parts):
            raise UsageError(f"{path[:100]!r} cannot be the path of a file in a snapshot")
        if kind in "fx" and not (len(what) == 64 and set(what) <= set("0123456789abcdef")):
            raise UsageError(f"{path[:100]!r}: {what[:100]!r} is not a hash")
        if path in leaves:
            raise UsageError(f"{path[:100]!r} is there twice")
        leaves.add(path)
    for path in leaves:
        above = path.rpartition("/")[0]
        while above:
            # Through a link it would lead out, and a file has nothing below it.
            if above in leaves:
                raise UsageError(f"{path[:100]!r} is below {above[:100]!r}, which is no folder")
            above = above.rpartition("/")[0]
    return sorted(entries)


def keep_snapshot(blobs: BlobStore, entries: list[Entry], sent: Collection[str]) -> tuple[str, int]:
    """Keep the list of entries; its hash, and the bytes of all files."""
    size = 0
    for path, kind, digest in entries:
        if kind not in "fx":
            continue
        if digest not in sent or not blobs.has(digest):
            raise UsageError(f"the content of {path!r}, {digest}, was not sent")
        size += blobs.size(digest)
    snapshot = blobs.put_bytes(canonical(entries))
    blobs.unsynced.sync()
    return snapshot, size
