"""The directory of a job as the kernel sees it, read-only; and the child that serves a mount."""

import errno
import os
import signal
import stat
import time
from typing import Any, NoReturn

from fuse import FUSE, FuseOSError, Operations

from towline.cli.data.mounted import serve_domain
from towline.cli.pit.data.domains import DomainTree
from towline.cli.pit.data.tree import FILE, FOLDER, JobTree
from towline.errors import NotFound, TowlineError

#: So long what was said of a path is good enough.
FRESH_S = 1.0
SHOWN = {FILE: stat.S_IFREG, FOLDER: stat.S_IFDIR}


def serve(tree: JobTree | DomainTree, folder: str, pipe: int) -> NoReturn:
    """What the child does that answers the kernel; `pipe` hears when it does, or why not."""
    try:
        # Ctrl-C is for whoever waits: it unmounts, and then this ends.
        os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        nothing = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(nothing, fd)
        if isinstance(tree, DomainTree):
            serve_domain(tree.data, folder, lambda: _tell(pipe), tree.writable)
        else:
            _serve_job(tree, folder, pipe)
    except Exception as error:
        os.write(pipe, f"{type(error).__name__}: {error}".encode())
    finally:
        os._exit(0)


def _serve_job(tree: JobTree, folder: str, pipe: int) -> None:
    FUSE(
        PitFolder(tree, pipe),
        folder,
        foreground=True,
        nothreads=True,
        fsname=f"pit-{tree.number}",
        ro=True,
        nosuid=True,
        nodev=True,
    )


def _tell(pipe: int) -> None:
    os.write(pipe, b"ready")
    os.close(pipe)


class PitFolder(Operations):
    """fusepy refuses by itself whatever is not defined here."""

    def __init__(self, tree: JobTree, pipe: int) -> None:
        self._tree = tree
        self._pipe = pipe
        self._fresh: dict[str, tuple[float, dict[str, Any]]] = {}

    def init(self, _path: str) -> None:
        _tell(self._pipe)

    def getattr(self, path: str, _handle: int | None = None) -> dict[str, Any]:
        seen = self._fresh.get(path)
        if seen is None or seen[0] < time.monotonic() - FRESH_S:
            with _as_os_error():
                seen = (time.monotonic(), self._tree.stat(path))
            self._fresh[path] = seen
        about = seen[1]
        if about["kind"] not in SHOWN:
            raise FuseOSError(errno.ENOENT)
        return {
            "st_mode": SHOWN[about["kind"]] | about["mode"] & 0o555,
            "st_nlink": 1,
            "st_uid": os.getuid(),
            "st_gid": os.getgid(),
            "st_size": about["size"],
            "st_mtime": about["mtime"],
        }

    def readdir(self, path: str, _handle: int) -> list[str]:
        with _as_os_error():
            found = self._tree.entries(path)
        now = time.monotonic()
        above = path.rstrip("/")
        self._fresh = {f"{above}/{one['name']}": (now, one) for one in found}
        return [".", "..", *(one["name"] for one in found)]

    def open(self, path: str, flags: int) -> int:
        if flags & os.O_ACCMODE != os.O_RDONLY:
            raise FuseOSError(errno.EROFS)
        return 0

    def read(self, path: str, size: int, offset: int, _handle: int) -> bytes:
        with _as_os_error():
            return b"".join(self._tree.read(path, offset, size))


class _as_os_error:
    """What the server refuses, as the kernel knows it."""

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, NotFound):
            raise FuseOSError(errno.ENOENT) from None
        if isinstance(error, TowlineError):
            raise FuseOSError(errno.EIO) from None
