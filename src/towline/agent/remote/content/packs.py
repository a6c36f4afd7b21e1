"""Many small contents in one file, which is far quicker than a file for each.

NAME.pack holds them one behind the other, NAME.index says where each of them is. The index is
written after what it speaks of, so whatever it names is there as a whole; a pack without an index
is nobody's. Whoever adds contents begins a pack of their own.
"""

import os
import struct
import time
from binascii import hexlify, unhexlify

from ..home import checked_hash
from ..machine import unique
from ..records.record import write_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Iterator

    from ..home import Home
    from ..typed import Contents, PackPlace

#: SHA-256, offset, size.
RECORD = struct.Struct(">32sQQ")
PACK, INDEX = ".pack", ".index"
#: Fewer contents than this get a file each, so that packs do not become many.
FEWEST = 16
MOST_BYTES = 64 << 20
#: A pack that nobody added to for so long may be swept away by another agent.
LONGEST_PAUSE_S = 600.0
#: For fewer contents than this, an index is searched and not read record by record.
FEW = 8
STALE_S = 24 * 3600


class BlobPackWriter:
    """Adds contents to one pack after the other, each group of them as a whole or not at all."""

    def __init__(self, home: "Home") -> None:
        self.home = home
        self.pack: "BlobPack | None" = None

    def add(self, contents: "Contents", data: bytes) -> None:
        """`contents` are [hash, size] in the order in which they are in `data`."""
        pack = self.pack
        if pack is None or not pack.is_open(len(data)):
            self.close()
            pack = self.pack = BlobPack(self.home.packs)
        try:
            pack.add(contents, data)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self.pack is not None:
            self.pack.close()
            self.pack = None


class BlobPack:
    def __init__(self, folder: str) -> None:
        stem = "%s/%s" % (folder, unique())
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self.pack, self.index = stem + PACK, stem + INDEX
        self.data = os.open(self.pack, flags, 0o600)
        try:
            self.records = os.open(self.index, flags, 0o600)
        except OSError:
            os.close(self.data)
            os.unlink(self.pack)
            raise
        self.size = self.count = 0
        self.added = time.monotonic()

    def is_open(self, more: int) -> bool:
        """False once it has enough, or when somebody may have removed it."""
        return (
            self.size + more <= MOST_BYTES
            and time.monotonic() - self.added < LONGEST_PAUSE_S
            and os.path.exists(self.index)
        )

    def add(self, contents: "Contents", data: bytes) -> None:
        records = []
        at = self.size
        for digest, size in contents:
            records.append(RECORD.pack(unhexlify(digest), at, size))
            at += size
        write_all(self.data, data)
        write_all(self.records, b"".join(records))
        self.size = at
        self.count += len(records)
        self.added = time.monotonic()

    def close(self) -> None:
        """What was half added, on a full disk say, is forgotten."""
        try:
            if self.count:
                os.ftruncate(self.records, self.count * RECORD.size)
                os.ftruncate(self.data, self.size)
            else:
                os.unlink(self.index)
                os.unlink(self.pack)
        except OSError:
            pass
        os.close(self.data)
        os.close(self.records)


def indexes(home: "Home") -> "list[str]":
    """Paths of all indexes."""
    return [home.packs + "/" + name for name in os.listdir(home.packs) if name.endswith(INDEX)]


def index_of(pack: str) -> str:
    return pack[: -len(PACK)] + INDEX


def pack_of(index: str) -> str:
    return index[: -len(INDEX)] + PACK


def records(index: str) -> bytes:
    """The whole records of an index as bytes; none if it is gone."""
    try:
        with open(index, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return b""
    return data[: len(data) // RECORD.size * RECORD.size]


def contents(index: str) -> "Iterator[tuple[str, int, int]]":
    """(hash, offset, size) of everything in the pack."""
    for digest, offset, size in RECORD.iter_unpack(records(index)):
        yield hexlify(digest).decode("ascii"), offset, size


def locate(home: "Home", digests: "Iterable[str]") -> "dict[str, PackPlace]":
    """hash -> (path of the pack, offset, size), of those contents that are in packs."""
    wanted = {unhexlify(checked_hash(digest)): digest for digest in digests}
    found = {}
    for index in indexes(home) if wanted else ():
        data = records(index)
        pack = pack_of(index)
        try:
            length = os.stat(pack).st_size
        except OSError:
            continue  # somebody removed it, or a sweep did just now
        for digest, offset, size in matching(data, wanted):
            if offset + size <= length:
                found[wanted[digest]] = (pack, offset, size)
    return found


def matching(data: bytes, wanted: "Any") -> "Iterator[Any]":
    if len(wanted) >= FEW:
        for record in RECORD.iter_unpack(data):
            if record[0] in wanted:
                yield record
        return
    for digest in wanted:
        at = data.find(digest)
        while at >= 0 and at % RECORD.size:
            at = data.find(digest, at + 1)
        if at >= 0:
            yield RECORD.unpack_from(data, at)


def tidy(home: "Home") -> None:
    """Remove packs of which an agent was killed before it wrote, or after it removed, the index."""
    for name in os.listdir(home.packs):
        path = home.packs + "/" + name
        if name.endswith(PACK) and not os.path.exists(index_of(path)):
            try:
                if os.stat(path).st_mtime < time.time() - STALE_S:
                    os.unlink(path)
            except OSError:
                pass
