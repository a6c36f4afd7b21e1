"""File contents by their sha256, on this machine, so that a job gets what was there when it was
submitted, however the files change later."""

import hashlib
import io
import os
import secrets
import time
from typing import BinaryIO

from towline.errors import NotFound
from towline.model.units import shown
from towline.snapshot.packs import Packs, write_all
from towline.snapshot.reading import SMALL, open_plain
from towline.snapshot.syncing import Unsynced

#: Nothing takes this long to write.
OLD_S = 86400
#: A folder changed again within this time may look the same as before.
_TICK_NS = 50_000_000


class BlobStore:
    """Blobs by their hash, in files of their own or together in packs; for this user alone.

    Writes are atomic: a blob is there as a whole or not at all.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        #: What was written and is not known to be on disk.
        self.unsynced = Unsynced()
        self.packs = Packs(f"{root}/packs", self.unsynced)
        #: Folder -> its time, and the blobs seen in it as a whole.
        self.seen: dict[str, tuple[tuple[int, float], set[str]]] = {}
        os.makedirs(os.path.dirname(root) or ".", exist_ok=True)
        self._make_folder(root)
        self._clean_up()

    def path(self, digest: str) -> str:
        """Where a blob is if it has a file of its own."""
        if len(digest) != 64 or not digest.isalnum():  # neither `/` nor `.`
            raise NotFound(f"{shown(digest)} is not the hash of anything")
        return f"{self.root}/{digest[:2]}/{digest[2:]}"

    def has(self, digest: str, size: int | None = None) -> bool:
        """True if the blob is there; with `size`, if it is there as a whole."""
        place = self.packs.place(digest)
        if place is not None and _use(place.index) is not None:
            return True
        found = _use(self.path(digest))
        return found is not None and (size is None or found.st_size == size)

    def shelf(self, name: str) -> set[str]:
        """What has a file of its own and a hash that begins with these two letters: the rest."""
        try:
            return set(os.listdir(f"{self.root}/{name}"))
        except FileNotFoundError:
            return set()

    def size(self, digest: str) -> int:
        place = self.packs.place(digest)
        return place.size if place is not None else os.path.getsize(self.path(digest))

    def open(self, digest: str) -> BinaryIO:
        path = self.path(digest)
        for _ in range(2):
            if (place := self.packs.place(digest)) is None:
                break
            try:
                return io.BytesIO(place.read())
            except FileNotFoundError:
                self.packs.look_again()  # what is needed of a pack may move to another one
        return open(path, "rb")

    def put_file(self, path: str) -> tuple[str, int]:
        """Copy a file's content into the store; its hash and size."""
        with open(path, "rb", opener=open_plain) as source:
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
            # Beside its place: a file system puts what one folder holds together.
            folder = os.path.dirname(self.path(digest))
            temporary = self._temporary(folder)
            try:
                self._write_new(temporary, content)
                os.rename(temporary, self.path(digest))
                self.unsynced.add(self.path(digest))
            finally:
                _unlink_if_there(temporary)
        return digest

    def _write_new(self, path: str, content: bytes) -> None:
        try:
            target = _open_new(path, os.O_WRONLY | os.O_CREAT)
        except FileNotFoundError:
            self._make_folder(os.path.dirname(path))
            target = _open_new(path, os.O_WRONLY | os.O_CREAT)
        try:
            write_all(target, content)
        finally:
            os.close(target)

    def _put_stream(self, source: BinaryIO, chunks: list[bytes]) -> tuple[str, int]:
        hashed = hashlib.sha256()
        size = 0
        temporary = self._temporary(self.root)
        self._make_folder(self.root)
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
        folders = [self.root]
        with os.scandir(self.root) as entries:
            folders += [entry.path for entry in entries if len(entry.name) == 2]
        for folder in folders:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.startswith("new-") and _is_old(entry):
                        _unlink_if_there(entry.path)
        self.packs.clean_up(OLD_S)

    def _temporary(self, folder: str) -> str:
        return f"{folder}/new-{secrets.token_hex(8)}"

    def _rename(self, temporary: str, digest: str) -> None:
        path = self.path(digest)
        try:
            os.rename(temporary, path)
        except FileNotFoundError:
            self._make_folder(os.path.dirname(path))
            os.rename(temporary, path)
        self.unsynced.add(path)

    def _make_folder(self, folder: str) -> None:
        """Also when somebody made room by hand and took all of it away."""
        if folder != self.root:
            self._make_folder(self.root)
        try:
            os.mkdir(folder, 0o700)
            self.unsynced.add(folder)
        except FileExistsError:
            pass


class PresentBlobs:
    """Which of very many blobs are there, looking only at folders that changed since last time."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self._folders: dict[str, set[str]] = {}

    def has(self, digest: str, size: int) -> bool:
        seen = self._folders.get(digest[:2])
        if seen is None:
            seen = self._folders[digest[:2]] = self._look(digest[:2])
        if digest in seen:
            return True
        if not self._store.has(digest, size):
            return False
        seen.add(digest)
        return True

    def _look(self, name: str) -> set[str]:
        try:
            changed_ns = os.stat(f"{self._store.root}/{name}").st_mtime_ns
        except FileNotFoundError:
            changed_ns = 0  # all of them are in packs
        # Every few hours in any case: `has` keeps what is in use from looking unused (sweep.py).
        state = (changed_ns, time.time() // (OLD_S / 4))
        known = self._store.seen.get(name)
        if known is not None and known[0] == state:
            return known[1]
        seen: set[str] = set()
        if time.time_ns() - changed_ns > _TICK_NS:
            self._store.seen[name] = state, seen
        return seen


def _use(path: str) -> os.stat_result | None:
    """The facts of a file, which is in use again: what is old may be swept away (sweep.py)."""
    try:
        found = os.stat(path)
        if found.st_mtime < time.time() - OLD_S / 2:
            os.utime(path)
    except FileNotFoundError:
        return None
    return found


def _is_old(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.stat().st_mtime < time.time() - OLD_S
    except FileNotFoundError:
        return False


def _open_new(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_EXCL | os.O_CLOEXEC, 0o600)


def _unlink_if_there(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
