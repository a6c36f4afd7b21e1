"""New contents that belong together: in a pack if they are many."""

import hashlib
import os
from collections.abc import Callable
from types import TracebackType

from towline.snapshot.blobs import BlobStore
from towline.snapshot.packs import PackWriter
from towline.snapshot.reading import read_small

#: So many new contents at once go into a pack; fewer get a file each, so that packs stay few.
MANY = 32
_MOST_WAITING = 8 << 20
#: Is told the hash and the content of every small file that was read.
Offer = Callable[[str, bytes], None]


class BlobCollection:
    """Takes in contents; they can be had once it ended well."""

    def __init__(self, store: BlobStore, offer: Offer | None = None) -> None:
        self._store = store
        self._offer = offer
        self._pack: PackWriter | None = None
        self._packed: set[str] = set()
        #: The names on each shelf of the store that was looked at.
        self._shelves: dict[str, set[str]] = {}
        self._waiting: dict[str, bytes] = {}
        self._bytes_waiting = 0

    def __enter__(self) -> "BlobCollection":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pack is not None:
            if kind is None:
                self._pack.finish()
            else:
                self._pack.abandon()
        elif kind is None:
            self._keep_singly()

    def put_file(self, path: str, size: int) -> tuple[str, int, os.stat_result]:
        """Take in a file that probably has this size; its hash, size, and facts after reading."""
        read = read_small(path, size)
        if read is None:
            return *self._store.put_file(path), os.lstat(path)
        content, facts = read
        digest = hashlib.sha256(content).hexdigest()
        if not self._has(digest, len(content)):
            self._add(digest, content)
        if self._offer is not None:
            self._offer(digest, content)
        return digest, len(content), facts

    def _has(self, digest: str, size: int) -> bool:
        if digest in self._packed or digest in self._waiting:
            return True
        shelf = digest[:2]
        if shelf not in self._shelves:
            self._shelves[shelf] = self._store.shelf(shelf)
        # Asked again, so that it counts as used.
        maybe = digest[2:] in self._shelves[shelf] or self._store.packs.place(digest)
        return bool(maybe) and self._store.has(digest, size)

    def _add(self, digest: str, content: bytes) -> None:
        if self._pack is not None:
            self._pack.add(digest, content)
            self._packed.add(digest)
            return
        self._waiting[digest] = content
        self._bytes_waiting += len(content)
        if len(self._waiting) >= MANY:
            self._pack = PackWriter(self._store.packs)
            for name, waiting in self._waiting.items():
                self._pack.add(name, waiting)
            self._packed.update(self._waiting)
            self._waiting.clear()
        elif self._bytes_waiting > _MOST_WAITING:
            self._keep_singly()

    def _keep_singly(self) -> None:
        for content in self._waiting.values():
            self._store.put_bytes(content)
        self._waiting.clear()
        self._bytes_waiting = 0
