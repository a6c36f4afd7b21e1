"""A domain of a team's data as the kernel sees it.

What is written is kept here until its file is flushed or closed, and then sent as a whole: a
program hears from `fsync` and `close` whether it is on the server.
"""

import contextlib
import errno
import itertools
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, cast

from fuse import FUSE, FuseOSError, Operations

from towline.client.data import DataFolder
from towline.client.read_ahead import ReadAhead
from towline.errors import TowlineError

#: So long what was said of a path is good enough.
FRESH_S = 1.0
SHOWN = {"file": stat.S_IFREG, "dir": stat.S_IFDIR}
NUMBERS = {
    "not_found": errno.ENOENT,
    "forbidden": errno.EACCES,
    "exists": errno.EEXIST,
    "usage": errno.EINVAL,
    "quota": errno.EDQUOT,
    "no_room": errno.ENOSPC,
}


def serve_domain(data: DataFolder, folder: str, ready: Callable[[], None], writable: bool) -> None:
    """Show a domain at `folder` until it is unmounted."""
    FUSE(
        ShownDomain(data, ready),
        _as_bytes(folder),
        foreground=True,
        nothreads=True,
        fsname=f"tow-{data.domain}",
        ro=not writable,
        nosuid=True,
        nodev=True,
        encoding="latin-1",
    )


class _Draft:
    """A file that somebody writes: its content is here, and sent when it is flushed."""

    def __init__(self, mode: int) -> None:
        self.file = cast("BinaryIO", tempfile.TemporaryFile(buffering=0))
        self.mode = mode
        self.changed = False
        self.users = 0

    def facts(self) -> dict[str, Any]:
        found = os.fstat(self.file.fileno())
        size, changed = found.st_size, found.st_mtime
        return {"kind": "file", "size": size, "mtime": changed, "mode": self.mode}


class ShownDomain(Operations):
    """fusepy refuses by itself whatever is not defined here."""

    def __init__(self, data: DataFolder, ready: Callable[[], None]) -> None:
        self._data = data
        self._ready = ready
        self._fresh: dict[str, tuple[float, dict[str, Any]]] = {}
        self._drafts: dict[str, _Draft] = {}
        self._handles = itertools.count(1)
        self._readers: dict[int, ReadAhead] = {}
        self._writers: dict[int, _Draft] = {}

    def init(self, _path: str) -> None:
        self._ready()

    # --- what there is -----------------------------------------------------------------------

    def getattr(self, path: str, _handle: int | None = None) -> dict[str, Any]:
        if path in self._drafts:
            return _attributes(self._drafts[path].facts())
        seen = self._fresh.get(path)
        if seen is None or seen[0] < time.monotonic() - FRESH_S:
            with _as_os_error():
                seen = (time.monotonic(), self._data.stat(_text(path)))
            self._fresh[path] = seen
        if seen[1]["kind"] not in SHOWN:
            raise FuseOSError(errno.ENOENT)
        return _attributes(seen[1])

    def readdir(self, path: str, _handle: int) -> list[str]:
        with _as_os_error():
            found = [one for one in self._data.entries(_text(path)) if one["kind"] in SHOWN]
        now, above = time.monotonic(), path.rstrip("/")
        names = [_as_bytes(one["name"]) for one in found]
        self._fresh = {
            f"{above}/{name}": (now, one) for name, one in zip(names, found, strict=True)
        }
        new = [
            name
            for one in self._drafts
            if (name := one.removeprefix(f"{above}/")) != one and "/" not in name
        ]
        return [".", "..", *dict.fromkeys([*names, *new])]

    # --- reading and writing -----------------------------------------------------------------

    def open(self, path: str, flags: int) -> int:
        handle = next(self._handles)
        if flags & os.O_ACCMODE != os.O_RDONLY:
            self._writers[handle] = self._draft(path, empty=bool(flags & os.O_TRUNC))
        elif path in self._drafts:
            self._writers[handle] = self._draft(path, empty=False)
        else:
            self._readers[handle] = self._reader(_text(path))
        return handle

    def create(self, path: str, mode: int, _info: object = None) -> int:
        with _as_os_error():
            self._data.stat(_text(path.rpartition("/")[0]))
        handle = next(self._handles)
        draft = self._drafts.setdefault(path, _Draft(mode & 0o777))
        draft.users += 1
        draft.changed = True
        self._writers[handle] = draft
        return handle

    def _draft(self, path: str, empty: bool) -> _Draft:
        draft = self._drafts.get(path)
        if draft is None:
            with _as_os_error():
                about = self._data.stat(_text(path))
                draft = _Draft(about["mode"])
                if not empty and about["size"]:
                    self._data.bring(_text(path), draft.file, lambda *_: None)
            self._drafts[path] = draft
        if empty:
            draft.file.truncate(0)
            draft.changed = True
        draft.users += 1
        return draft

    def _reader(self, path: str) -> ReadAhead:
        def fetch(start: int, end: int) -> bytes:
            return b"".join(self._data.read(path, start, end - start))

        return ReadAhead(lambda offset: self._data.stream(path, offset), fetch)

    def read(self, _path: str, size: int, offset: int, handle: int) -> bytes:
        if handle in self._writers:
            return os.pread(self._writers[handle].file.fileno(), size, offset)
        with _as_os_error():
            return self._readers[handle].read(offset, offset + size)

    def write(self, _path: str, data: bytes, offset: int, handle: int) -> int:
        draft = self._writers[handle]
        draft.changed = True
        return os.pwrite(draft.file.fileno(), data, offset)

    def truncate(self, path: str, length: int, handle: int | None = None) -> None:
        if handle is None or handle not in self._writers:
            draft = self._draft(path, empty=length == 0)
            try:
                draft.file.truncate(length)
                draft.changed = True
                self._send(path, draft)
            finally:
                self._leave(path, draft)
            return
        self._writers[handle].file.truncate(length)
        self._writers[handle].changed = True

    def flush(self, path: str, handle: int) -> None:
        if handle in self._writers:
            self._send(path, self._writers[handle])

    def fsync(self, path: str, _only_data: int, handle: int) -> None:
        self.flush(path, handle)

    def _send(self, path: str, draft: _Draft) -> None:
        if draft.changed and self._drafts.get(path) is draft:
            with _as_os_error():
                self._data.send(_text(path), draft.file, draft.mode, lambda *_: None)
            draft.changed = False
            self._fresh.pop(path, None)

    def release(self, path: str, handle: int) -> None:
        if handle in self._readers:
            self._readers.pop(handle).close()
            return
        draft = self._writers.pop(handle)
        try:
            self._send(path, draft)
        finally:
            self._leave(path, draft)

    def _leave(self, path: str, draft: _Draft) -> None:
        draft.users -= 1
        if not draft.users:
            draft.file.close()
            for known in [one for one, other in self._drafts.items() if other is draft]:
                del self._drafts[known]

    # --- names -------------------------------------------------------------------------------

    def mkdir(self, path: str, _mode: int) -> None:
        with _as_os_error():
            if self._data.exists(_text(path)):
                raise FuseOSError(errno.EEXIST)
            self._data.make_folder(_text(path))
        self._fresh.clear()

    def unlink(self, path: str) -> None:
        draft = self._drafts.pop(path, None)
        with _as_os_error():
            if draft is None or self._data.exists(_text(path)):
                self._data.delete(_text(path))
        self._fresh.clear()

    def rmdir(self, path: str) -> None:
        with _as_os_error():
            if self._data.entries(_text(path)):
                raise FuseOSError(errno.ENOTEMPTY)
            self._data.delete(_text(path))
        self._fresh.clear()

    def rename(self, old: str, new: str) -> None:
        if (draft := self._drafts.get(old)) is not None:
            self._send(old, draft)
        with _as_os_error():
            self._data.move(_text(old), _text(new))
        self._fresh.clear()
        self._drafts.pop(new, None)
        if draft is not None:
            self._drafts[new] = self._drafts.pop(old)

    def chmod(self, path: str, mode: int) -> None:
        """Of a file that is being written; what is on the server keeps its mode."""
        if path not in self._drafts:
            raise FuseOSError(errno.EOPNOTSUPP)
        self._drafts[path].mode = mode & 0o777
        self._drafts[path].changed = True

    def utimens(self, path: str, times: object = None) -> None:
        """The times of files are the server's."""


def _attributes(about: dict[str, Any]) -> dict[str, Any]:
    size, changed = about["size"], about["mtime"]
    return {
        "st_mode": SHOWN[about["kind"]] | about["mode"] & 0o777,
        "st_nlink": 1,
        "st_uid": os.getuid(),
        "st_gid": os.getgid(),
        "st_size": size,
        "st_blocks": -(-size // 512),
        "st_atime": changed,
        "st_mtime": changed,
        "st_ctime": changed,
    }


@contextlib.contextmanager
def _as_os_error() -> Iterator[None]:
    """What the server refuses, as the kernel knows it."""
    try:
        yield
    except TowlineError as error:
        raise FuseOSError(NUMBERS.get(error.code, errno.EIO)) from None


def _text(path: str) -> str:
    return path.encode("latin-1").decode("utf-8", "surrogateescape")


def _as_bytes(text: str) -> str:
    """Text with one character for each byte, as it goes to and comes from the kernel."""
    return text.encode("utf-8", "surrogateescape").decode("latin-1")
