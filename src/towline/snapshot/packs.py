"""Many small contents in one file, which is far quicker than a file for each.

NAME.pack holds them one behind the other, NAME.index says where each of them is. The index is
put into place last and as a whole: a pack without an index is nobody's.
"""

import os
import secrets
import struct
import threading
import time
from collections.abc import Iterator

from msgspec import Struct

from towline.snapshot.syncing import Unsynced

#: SHA-256, offset, size.
RECORD = struct.Struct(">32sQQ")
_PACK, _INDEX = ".pack", ".index"
_NEW = "new-"


class PackedBlob(Struct, frozen=True, gc=False):
    """Where a content is: a range of a pack."""

    stem: str
    offset: int
    size: int

    @property
    def pack(self) -> str:
        return self.stem + _PACK

    @property
    def index(self) -> str:
        return self.stem + _INDEX

    def follows(self, other: "PackedBlob") -> bool:
        return self.offset == other.offset + other.size and self.stem == other.stem

    def longer_by(self, size: int) -> "PackedBlob":
        return PackedBlob(self.stem, self.offset, self.size + size)

    def read(self) -> bytes:
        fd = os.open(self.pack, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(fd, self.size, self.offset)
        finally:
            os.close(fd)


class Packs:
    """The packs of one folder; what is in them is remembered from the first look on."""

    def __init__(self, folder: str, unsynced: Unsynced) -> None:
        self.folder = folder
        #: What was written and is not known to be on disk.
        self.unsynced = unsynced
        self._places: dict[bytes, PackedBlob] | None = None
        self._lock = threading.Lock()

    def place(self, digest: str) -> PackedBlob | None:
        places = self._places
        try:
            name = bytes.fromhex(digest)
        except ValueError:
            return None
        return (self._load() if places is None else places).get(name)

    def stems(self) -> list[str]:
        """The path of every pack, without its ending."""
        try:
            names = sorted(os.listdir(self.folder))
        except FileNotFoundError:
            return []
        return [f"{self.folder}/{n.removesuffix(_INDEX)}" for n in names if n.endswith(_INDEX)]

    def _load(self) -> dict[bytes, PackedBlob]:
        with self._lock:
            if self._places is None:
                places: dict[bytes, PackedBlob] = {}
                for stem in self.stems():
                    places.update(contents(stem))
                self._places = places
            return self._places

    def added(self, stem: str) -> None:
        self.unsynced.add(stem + _PACK, stem + _INDEX)
        places = self._load()
        with self._lock:
            places.update(contents(stem))

    def look_again(self) -> None:
        """Forget what was seen: somebody removed a pack."""
        self._places = None

    def remove(self, stem: str, before: float) -> bool:
        """False if it stays, because somebody used it since a time."""
        aside = f"{self.folder}/{_NEW}{secrets.token_hex(8)}"
        try:
            if not remove_unused(stem + _INDEX, aside, before):
                return False
            os.unlink(stem + _PACK)
        except FileNotFoundError:
            return False
        finally:
            self.look_again()
        return True

    def clean_up(self, older_than_s: float) -> None:
        """Remove what was half written, or half removed, when an earlier Engine was killed."""
        wanted = {os.path.basename(stem) + _PACK for stem in self.stems()}
        for name in os.listdir(self.folder) if os.path.isdir(self.folder) else []:
            path = f"{self.folder}/{name}"
            unfinished = name.startswith(_NEW) or (name.endswith(_PACK) and name not in wanted)
            if unfinished and os.stat(path).st_mtime < time.time() - older_than_s:
                os.unlink(path)


class PackWriter:
    """One new pack; nobody sees it before `finish`, and nothing is left of it after `abandon`."""

    def __init__(self, packs: Packs) -> None:
        self._packs = packs
        self._stem = f"{packs.folder}/{secrets.token_hex(8)}"
        os.makedirs(packs.folder, 0o700, exist_ok=True)
        self._fd = _create(self._stem + _PACK)
        self._records: list[bytes] = []
        self._size = 0

    def add(self, digest: str, content: bytes) -> None:
        write_all(self._fd, content)
        self._records.append(RECORD.pack(bytes.fromhex(digest), self._size, len(content)))
        self._size += len(content)

    def finish(self) -> None:
        temporary = f"{self._packs.folder}/{_NEW}{secrets.token_hex(8)}"
        fd = _create(temporary)
        try:
            write_all(fd, b"".join(self._records))
            os.rename(temporary, self._stem + _INDEX)
        except BaseException:
            os.unlink(temporary)
            self.abandon()
            raise
        finally:
            os.close(fd)
        os.close(self._fd)
        self._packs.added(self._stem)

    def abandon(self) -> None:
        os.close(self._fd)
        os.unlink(self._stem + _PACK)


def contents(stem: str) -> Iterator[tuple[bytes, PackedBlob]]:
    """The hash and the place of everything in a pack; nothing if it is not there as a whole."""
    try:
        with open(stem + _INDEX, "rb") as file:
            records = file.read()
        size = os.stat(stem + _PACK).st_size
    except FileNotFoundError:
        return
    if len(records) % RECORD.size:
        return
    for digest, offset, length in RECORD.iter_unpack(records):
        if offset + length <= size:
            yield digest, PackedBlob(stem, offset, length)


def is_older(stem: str, than: float) -> bool:
    """True if nobody used the pack since a time."""
    try:
        return os.stat(stem + _INDEX).st_mtime < than
    except FileNotFoundError:
        return False


def remove_unused(path: str, aside: str, before: float) -> bool:
    """Take it aside, look again, and put it back if somebody used it meanwhile."""
    try:
        os.rename(path, aside)
        if os.stat(aside).st_mtime >= before:
            os.rename(aside, path)
            return False
        os.unlink(aside)
    except FileNotFoundError:
        return False
    return True


def write_all(fd: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(fd, left) :]


def _create(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
