"""Make sure that what was written survives a power cut: one call for many files."""

import ctypes
import os
import threading
from collections.abc import Callable, Iterable

#: So many files are synced one by one; for more, the whole file system is.
_FEW = 8


def sync_files(paths: Iterable[str]) -> None:
    """Returns once these files, and the folders they are in, are on disk."""
    there = list(dict.fromkeys(paths))
    folders = list(dict.fromkeys(os.path.dirname(path) for path in there))
    if len(there) > _FEW:
        sync_file_systems(folders)
        return
    for path in there:
        if path not in folders and not os.path.islink(path):
            _sync(path, os.fdatasync)
    for folder in folders:
        _sync(folder, os.fsync)


def sync_file_systems(paths: Iterable[str]) -> None:
    """Returns once everything on the file systems that these paths are on is on disk."""
    devices: dict[int, str] = {}
    for path in paths:
        try:
            devices.setdefault(os.stat(path).st_dev, path)
        except FileNotFoundError:
            continue  # somebody removed it
    for path in devices.values():
        _sync(path, _syncfs)


def _sync(path: str, how: Callable[[int], None]) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, PermissionError):
        return  # removed meanwhile, or its owner may not even read it: then it is synced in time
    try:
        how(fd)
    finally:
        os.close(fd)


def _syncfs(fd: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "syncfs"):
        os.sync()
    elif libc.syncfs(fd) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class Unsynced:
    """Files that were written and may not be on disk yet; for several threads."""

    def __init__(self) -> None:
        self._paths: list[str] = []
        self._one_by_one = threading.Lock()

    def add(self, *paths: str) -> None:
        self._paths += paths

    def sync(self) -> None:
        """Returns once all that was added before is on disk, be it that another thread does it."""
        if not self._paths and not self._one_by_one.locked():
            return
        with self._one_by_one:
            paths, self._paths = self._paths, []
            try:
                sync_files(paths)
            except OSError:
                self._paths += paths
                raise
