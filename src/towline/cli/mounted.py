"""A job's folder as the kernel sees it: what FUSE asks, answered from `tow://`."""

import errno
import itertools
import os
import stat
import time
from collections.abc import Callable
from typing import Any

from fuse import FUSE, Operations

from towline.client.read_ahead import ReadAhead
from towline.client.session import Session
from towline.filesystem import TowFileSystem, told_as_os_error

#: So long what a listing said of a file is good enough; the kernel keeps it for a second as well.
FRESH_S = 1.0
#: So long after a folder was listed, its entries are looked at together again.
TOGETHER_S = 10.0
SHOWN = {"file": stat.S_IFREG, "directory": stat.S_IFDIR}


def serve(job: int, folder: str, ready: Callable[[], None], session: Session | None = None) -> None:
    """Show the job's folder at `folder` until it is unmounted or a signal ends us."""
    FUSE(
        JobFolder(job, ready, session),
        _as_bytes(folder),
        foreground=True,
        fsname=f"tow-{job}",
        ro=True,
        nosuid=True,
        nodev=True,
        # Also when we are killed.
        auto_unmount=True,
        # fusepy decodes strictly, and a name need not be UTF-8: this lets every byte through.
        encoding="latin-1",
    )


class JobFolder(Operations):
    """Read-only: fusepy refuses by itself whatever is not defined here."""

    def __init__(self, job: int, ready: Callable[[], None], session: Session | None = None) -> None:
        self._top = str(job)
        self._ready = ready
        self._files = TowFileSystem(session)
        self._fresh: dict[str, tuple[float, dict[str, Any]]] = {}
        #: Folders whose entries somebody asks for, and when they were last listed.
        self._listed: dict[str, float] = {}
        self._handles = itertools.count(1)
        self._readers: dict[int, ReadAhead] = {}

    def init(self, _path: str) -> None:
        self._ready()

    def getattr(self, path: str, _handle: int | None = None) -> dict[str, Any]:
        seen = self._seen(path)
        if (
            seen is None
            and time.monotonic() - self._listed.get(_above(path), -TOGETHER_S) < TOGETHER_S
        ):
            # Somebody looks at all of them, one after the other: one question answers for all.
            self.readdir(_above(path), 0)
            seen = self._seen(path)
        if seen is not None:
            return seen
        found = self._files.info(self._place(path))
        if found["type"] not in SHOWN:
            raise OSError(errno.ENOENT, "not a file or folder")
        return _attributes(found)

    def _seen(self, path: str) -> dict[str, Any] | None:
        """What a listing just said of a path."""
        seen = self._fresh.get(path)
        return seen[1] if seen and seen[0] > time.monotonic() - FRESH_S else None

    def readdir(self, path: str, _handle: int) -> list[str]:
        entries = self._files.ls(self._place(path))
        now = time.monotonic()
        self._listed = {folder: at for folder, at in self._listed.items() if now - at < TOGETHER_S}
        self._listed[path] = now
        fresh = {p: seen for p, seen in self._fresh.items() if seen[0] > now - FRESH_S}
        names = [".", ".."]
        for entry in filter(_is_listed, entries):
            name = _as_bytes(entry["name"].rpartition("/")[2])
            names.append(name)
            fresh[f"{path.rstrip('/')}/{name}"] = (now, _attributes(entry))
        self._fresh = fresh
        return names

    def open(self, path: str, flags: int) -> int:
        if flags & os.O_ACCMODE != os.O_RDONLY:
            raise OSError(errno.EROFS, "only reads")
        handle = next(self._handles)
        self._readers[handle] = self._files.reader(self._place(path))
        return handle

    def read(self, _path: str, size: int, offset: int, handle: int) -> bytes:
        with told_as_os_error(_path):
            return self._readers[handle].read(offset, offset + size)

    def release(self, _path: str, handle: int) -> None:
        self._readers.pop(handle).close()

    def _place(self, path: str) -> str:
        return self._top + path.encode("latin-1").decode("utf-8", "surrogateescape")


def _above(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _is_listed(entry: dict[str, Any]) -> bool:
    """Links to folders can be entered, but are not listed: whoever walks would walk in circles."""
    is_link = entry.get("islink", False)
    return entry["type"] in SHOWN and not (is_link and entry["type"] == "directory")


def _attributes(entry: dict[str, Any]) -> dict[str, Any]:
    size, changed = entry["size"], entry["mtime"]
    return {
        # What may be run may still be run; nothing can be written, and nobody's rights are taken.
        "st_mode": SHOWN[entry["type"]] | entry["mode"] & 0o555,
        "st_nlink": 1,
        "st_uid": os.getuid(),
        "st_gid": os.getgid(),
        "st_size": size,
        "st_blocks": -(-size // 512),
        "st_atime": changed,
        "st_mtime": changed,
        "st_ctime": changed,
    }


def _as_bytes(text: str) -> str:
    """Text with one character for each byte, as it goes to and comes from the kernel."""
    return text.encode("utf-8", "surrogateescape").decode("latin-1")
