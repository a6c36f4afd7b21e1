"""Files on their way into a domain: piece by piece, over cuts, and there only once they are whole.

A file that is not whole lies beside, under a name made of what it will be. Whoever goes on with it
is told how much is there. It gets its name when its hash is right and all of it is on disk.
"""

import contextlib
import errno
import hashlib
import os
import stat
import threading
import time
from typing import NamedTuple

from towline.api.team import DataArrival
from towline.errors import Exists, OverQuota, UsageError
from towline.model.team.data import DataDomain
from towline.server.team.data import tree
from towline.server.team.data.beneath import open_folder, open_part
from towline.server.team.data.use import KEPT_S, DataUse, RoomWanted

#: What nobody goes on with is forgotten after so long.
_FORGOTTEN_S = 7 * 86400.0
_PART = "part-"
_LOCKS = 64


class ComingData(NamedTuple):
    """A file as it is announced."""

    size: int
    sha256: str
    mode: int


class WantedData(NamedTuple):
    """A file as it is to be, and where."""

    domain: DataDomain
    top: str
    quota: int
    names: list[str]
    coming: ComingData

    @property
    def key(self) -> str:
        """What it is called until it is whole."""
        about = "\0".join([*self.names, str(self.coming.size), self.coming.sha256])
        return _PART + hashlib.sha256(os.fsencode(about)).hexdigest()


class _Hashing(NamedTuple):
    """The hash of so many bytes from the front."""

    size: int
    digest: "hashlib._Hash"


class Uploads:
    """All that are on their way."""

    def __init__(self, use: DataUse) -> None:
        self._use = use
        #: One at a time for each file: a connection that is cut, and not known to be, may still
        #: have a piece to write.
        self._locks = [threading.Lock() for _ in range(_LOCKS)]
        self._hashes: dict[tuple[DataDomain, str], _Hashing] = {}

    def begin(self, wanted: WantedData) -> DataArrival:
        """Whether there is room for it, and how much of it is there; it may be there already."""
        if not wanted.names:
            raise UsageError("a file has a name")
        size = wanted.coming.size
        with self._alone(wanted):
            if _is_there(wanted):
                return {"offset": size, "complete": True}
            before = _size_now(wanted.top, wanted.names)
            with tree.own_folder(wanted.top) as own:
                self._use.changed(wanted.domain, -_forget_old(own))
                have = _size_in(own, wanted.key)
                self._let_in(wanted, own, size - have - before)
                if size:
                    os.close(open_part(own, wanted.key, os.O_WRONLY | os.O_CREAT))
                    return {"offset": min(have, size), "complete": False}
                self._place(wanted, own)
            return {"offset": size, "complete": True}

    def _let_in(self, wanted: WantedData, own: int, more: int) -> None:
        """Make room, if need be, by what nobody goes on with."""
        room = RoomWanted(wanted.domain, wanted.top, wanted.quota, wanted.key, more)
        try:
            self._use.let_in(room)
        except OverQuota:
            dropped = _forget_old(own, KEPT_S, but=wanted.key)
            if not dropped:
                raise
            self._use.changed(wanted.domain, -dropped)
            self._use.let_in(room)

    def take(self, wanted: WantedData, offset: int, data: bytes) -> DataArrival:
        """Write a piece; with the last one the file is there, on disk and with the hash it is to
        have."""
        with self._alone(wanted), tree.own_folder(wanted.top) as own:
            try:
                file = open_part(own, wanted.key, os.O_RDWR)
            except FileNotFoundError:
                raise Exists("nothing of that file is here (any more)", "begin anew") from None
            try:
                return self._write(wanted, own, file, offset, data)
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    # Half a file on a full disk is in everybody's way.
                    self._drop(wanted, own)
                raise
            finally:
                os.close(file)

    def _write(
        self, wanted: WantedData, own: int, file: int, offset: int, data: bytes
    ) -> DataArrival:
        have, size = os.fstat(file).st_size, wanted.coming.size
        if offset > have:
            return {"offset": have, "complete": False}
        if offset + len(data) > size:
            raise UsageError(f"more came than the {size} bytes that were announced")
        if offset < have:
            os.ftruncate(file, offset)
        digest = self._digest(wanted, file, offset)
        at, left = offset, memoryview(data)
        while left:
            wrote = os.pwrite(file, left, at)
            at, left = at + wrote, left[wrote:]
        digest.update(data)
        self._hashes[wanted.domain, wanted.key] = _Hashing(at, digest)
        self._use.written(wanted.domain, wanted.key, at - have)
        if at < size:
            return {"offset": at, "complete": False}
        if digest.hexdigest() != wanted.coming.sha256:
            self._drop(wanted, own)
            raise UsageError("what came has another hash than it should have", "send it again")
        self._place(wanted, own)
        return {"offset": at, "complete": True}

    def _digest(self, wanted: WantedData, file: int, offset: int) -> "hashlib._Hash":
        known = self._hashes.pop((wanted.domain, wanted.key), None)
        if known is not None and known.size == offset:
            return known.digest
        return tree.hashed(file, offset)

    def _place(self, wanted: WantedData, own: int) -> None:
        """Give it its name: from one moment to the next, and only once it is on disk."""
        file = open_part(own, wanted.key, os.O_WRONLY | os.O_CREAT)
        try:
            os.fchmod(file, wanted.coming.mode & 0o777 | 0o600)
            os.fsync(file)
        finally:
            os.close(file)
        name = wanted.names[-1]
        with open_folder(wanted.top, wanted.names[:-1], make=True) as above:
            before = _size_in(above, name)
            os.rename(wanted.key, name, src_dir_fd=own, dst_dir_fd=above)
            os.fsync(above)
        self._use.changed(wanted.domain, -before)
        self._forget(wanted)

    def _drop(self, wanted: WantedData, own: int) -> None:
        with contextlib.suppress(FileNotFoundError):
            size = _size_in(own, wanted.key)
            os.unlink(wanted.key, dir_fd=own)
            self._use.changed(wanted.domain, -size)
        self._forget(wanted)

    def _forget(self, wanted: WantedData) -> None:
        self._hashes.pop((wanted.domain, wanted.key), None)
        self._use.settled(wanted.domain, wanted.key)

    def _alone(self, wanted: WantedData) -> threading.Lock:
        return self._locks[hash((wanted.domain, wanted.key)) % _LOCKS]


def _is_there(wanted: WantedData) -> bool:
    """Whether just this content is there already."""
    top, names, coming = wanted.top, wanted.names, wanted.coming
    try:
        found = tree.described(top, names, hashed=False)
        if found["kind"] == "dir":
            raise IsADirectoryError(errno.EISDIR, "is a folder")
        if found["kind"] != "file" or found["size"] != coming.size:
            return False
        return tree.described(top, names, hashed=True)["sha256"] == coming.sha256
    except FileNotFoundError:
        return False


def _size_now(top: str, names: list[str]) -> int:
    """The bytes of what will be replaced."""
    try:
        with open_folder(top, names[:-1]) as above:
            return _size_in(above, names[-1])
    except FileNotFoundError:
        return 0


def _size_in(folder: int, name: str) -> int:
    try:
        facts = os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return 0
    return facts.st_size if stat.S_ISREG(facts.st_mode) else 0


def _forget_old(own: int, age_s: float = _FORGOTTEN_S, but: str = "") -> int:
    """Remove what nobody has gone on with, or what a kill has left of a deletion; its bytes."""
    before, dropped = time.time() - age_s, 0
    for name in os.listdir(own):
        with contextlib.suppress(OSError):
            if name != but and os.lstat(name, dir_fd=own).st_mtime < before:
                dropped += tree.size_of(own, name)
                tree.remove(name, own)
    return dropped
