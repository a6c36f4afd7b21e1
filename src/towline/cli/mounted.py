"""A job's folder as the kernel sees it: what FUSE asks, answered from `tow://`."""

import errno
import os
import stat
import time
from collections.abc import Callable
from typing import Any

from fuse import FUSE, Operations

from towline.filesystem import TowFileSystem

#: So long what a listing said of a file is good enough; the kernel keeps it for a second as well.
FRESH_S = 1.0
SHOWN = {"file": stat.S_IFREG, "directory": stat.S_IFDIR}


def serve(job: int, folder: str, ready: Callable[[], None]) -> None:
    """Show the job's folder at `folder` until it is unmounted or a signal ends us."""
    FUSE(
        JobFolder(job, ready),
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

    def __init__(self, job: int, ready: Callable[[], None]) -> None:
        self._top = str(job)
        self._ready = ready
        self._files = TowFileSystem()
        self._fresh: dict[str, tuple[float, dict[str, Any]]] = {}

    def init(self, _path: str) -> None:
        self._ready()

    def getattr(self, path: str, _handle: int | None = None) -> dict[str, Any]:
        seen = self._fresh.get(path)
        if seen and seen[0] > time.monotonic() - FRESH_S:
            return seen[1]
        found = self._files.info(self._place(path))
        if found["type"] not in SHOWN:
            raise OSError(errno.ENOENT, "not a file or folder")
        return _attributes(found)

    def readdir(self, path: str, _handle: int) -> list[str]:
        entries = self._files.ls(self._place(path))
        now = time.monotonic()
        fresh = {p: seen for p, seen in self._fresh.items() if seen[0] > now - FRESH_S}
        names = [".", ".."]
        for entry in filter(_is_listed, entries):
            name = _as_bytes(entry["name"].rpartition("/")[2])
            names.append(name)
            fresh[f"{path.rstrip('/')}/{name}"] = (now, _attributes(entry))
        self._fresh = fresh
        return names

    def read(self, path: str, size: int, offset: int, _handle: int) -> bytes:
        return self._files.cat_file(self._place(path), offset, offset + size)

    def _place(self, path: str) -> str:
        return self._top + path.encode("latin-1").decode("utf-8", "surrogateescape")


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
