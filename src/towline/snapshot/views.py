"""Show blobs without copying them."""

import io
import mmap
import os
from typing import BinaryIO

from towline.snapshot.blobs import BlobStore
from towline.snapshot.packs import PackedBlob


class Views:
    """What was shown stays as it is, also if it is swept away meanwhile."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self._packs: dict[str, memoryview] = {}

    def joined(self, digests: list[str]) -> memoryview | bytes:
        """Blobs one behind the other: at no cost if that is how they lie in a pack."""
        parts: list[memoryview] = []
        run: PackedBlob | None = None
        for digest in digests:
            place = self._store.packs.place(digest)
            if run and place and run.pack in self._packs and place.follows(run):
                run = run.longer_by(place.size)
                parts[-1] = self._show(run)
                continue
            run = place
            parts.append(self.whole(digest))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def whole(self, digest: str) -> memoryview:
        place = self._store.packs.place(digest)
        try:
            if place is not None:
                return self._show(place)
        except FileNotFoundError:
            self._store.packs.look_again()
        with self._store.open(digest) as file:
            return _shown(file)

    def _show(self, place: PackedBlob) -> memoryview:
        pack = self._packs.get(place.pack)
        if pack is None:
            with open(place.pack, "rb") as file:
                pack = self._packs[place.pack] = _shown(file)
        return pack[place.offset : place.offset + place.size]


def _shown(file: BinaryIO) -> memoryview:
    if isinstance(file, io.BytesIO):
        return file.getbuffer()
    if not os.fstat(file.fileno()).st_size:
        return memoryview(b"")
    return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
