"""File contents by their sha256, on this machine, so that a job gets what was there when it was
submitted, however the files change later."""

import hashlib
import os
import secrets
import time
from typing import BinaryIO

from towline.errors import NotFound
from towline.model.units import shown

#: Files up to this size are read at once and written only if their content is new.
SMALL = 1 << 20
#: Nothing takes this long to write.
OLD_S = 86400


class BlobStore:
    """A folder of blobs, each under its hash; writes are atomic, for this user alone."""

    def __init__(self, root: str) -> None:
        self.root = root
        os.makedirs(os.path.dirname(root) or ".", exist_ok=True)
        self._make_folder(root)
        self._clean_up()

    def path(self, digest: str) -> str:
        if len(digest) != 64 or not digest.isalnum():
            raise NotFound(f"{shown(digest)} is not the hash of anything")
        return f"{self.root}/{digest[:2]}/{digest[2:]}"

    def has(self, digest: str, size: int | None = None) -> bool:
        """True if the blob is there; with `size`, if it is there as a whole."""
        path = self.path(digest)
        try:
            found = os.stat(path)
            if found.st_mtime < time.time() - OLD_S / 2:
                os.utime(path)  # in use again: what is old may be swept away (sweep.py)
        except FileNotFoundError:
            return False
        return size is None or found.st_size == size

    def open(self, digest: str) -> BinaryIO:
        return open(self.path(digest), "rb")

    def drop(self, digest: str) -> None:
        """Forget a blob, say because it was found damaged."""
        _unlink_if_there(self.path(digest))

    def put_file(self, path: str) -> tuple[str, int]:
        """Copy a file's content into the store; its hash and size."""
        with open(path, "rb", opener=_open_plain) as source:
            return self.put(source)

    def put(self, source: BinaryIO) -> tuple[str, int]:
        """Copy what is left of an open file into the store; its hash and size."""
        start = source.read(SMALL)
        following = source.read(SMALL) if len(start) == SMALL else b""
        if not following:
            return self.put_bytes(start), len(start)
        return self._put_stream(source, [start, following])

    def put_bytes(self, content: bytes) -> str:
        """Keep some bytes; their hash."""
        digest = hashlib.sha256(content).hexdigest()
        if not self.has(digest, len(content)):
            temporary = self._temporary()
            try:
                with open(temporary, "wb", opener=_open_new) as target:
                    target.write(content)
                self._rename(temporary, digest)
            finally:
                _unlink_if_there(temporary)
        return digest

    def _put_stream(self, source: BinaryIO, chunks: list[bytes]) -> tuple[str, int]:
        hashed = hashlib.sha256()
        size = 0
        temporary = self._temporary()
        try:
            with open(temporary, "wb", opener=_open_new) as target:
                while chunks:
                    for chunk in chunks:
                        hashed.update(chunk)
                        target.write(chunk)
                        size += len(chunk)
                    chunk = source.read(SMALL)
                    chunks = [chunk] if chunk else []
            digest = hashed.hexdigest()
            if not self.has(digest, size):
                self._rename(temporary, digest)
            return digest, size
        finally:
            _unlink_if_there(temporary)

    def _clean_up(self) -> None:
        """Remove what was half written when an earlier Engine was killed."""
        with os.scandir(self.root) as entries:
            for entry in entries:
                if entry.name.startswith("new-") and entry.stat().st_mtime < time.time() - OLD_S:
                    _unlink_if_there(entry.path)

    def _temporary(self) -> str:
        return f"{self.root}/new-{secrets.token_hex(8)}"

    def _rename(self, temporary: str, digest: str) -> None:
        path = self.path(digest)
        try:
            os.rename(temporary, path)
        except FileNotFoundError:
            self._make_folder(os.path.dirname(path))
            os.rename(temporary, path)

    def _make_folder(self, folder: str) -> None:
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            pass


def _open_new(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_EXCL | os.O_CLOEXEC, 0o600)


def _open_plain(path: str, flags: int) -> int:
    # A file swapped for a link or a fifo since it was listed is neither followed nor waited on.
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def _unlink_if_there(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
