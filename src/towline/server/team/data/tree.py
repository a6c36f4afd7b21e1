"""Files and folders of a domain: listed, described, read, made, deleted."""

import contextlib
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from typing import NamedTuple

from towline.api.team import DataEntry, DataStat
from towline.errors import Exists, UsageError
from towline.server.team.data.beneath import OWN, open_file, open_folder

#: So many entries of a folder are told at once.
MOST_ENTRIES = 10_000
_PIECE = 1 << 20
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "dir", stat.S_IFLNK: "link"}


class OpenedData(NamedTuple):
    """A file that is open, and what it is: `version` is another one once it has changed."""

    fd: int
    size: int
    version: str


def entries(top: str, names: list[str], after: str) -> tuple[list[DataEntry], bool]:
    """What is in a folder, by name, behind the name `after`; and whether there is more."""
    with open_folder(top, names) as folder:
        found = sorted(name for name in os.listdir(folder) if name > after)
        if not names:
            found = [name for name in found if name != OWN]
        told = []
        for name in found[:MOST_ENTRIES]:
            # What is deleted meanwhile is not there.
            with contextlib.suppress(FileNotFoundError):
                told.append(_described(name, os.lstat(name, dir_fd=folder)))
        return told, len(found) > MOST_ENTRIES


def described(top: str, names: list[str], hashed: bool) -> DataStat:
    """What a path is; of a file, if that is wanted, with the hash of its content."""
    if not names:
        with open_folder(top, names) as folder:
            return {**_described("", os.fstat(folder)), "version": "", "sha256": ""}
    with open_folder(top, names[:-1]) as above:
        facts = os.lstat(names[-1], dir_fd=above)
    entry = _described(names[-1], facts)
    if entry["kind"] != "file" or not hashed:
        return {**entry, "version": version(facts), "sha256": ""}
    with open_file(top, names) as file:
        digest = hash_of(file)
        facts = os.fstat(file)
        return {**_described(names[-1], facts), "version": version(facts), "sha256": digest}


def hash_of(file: int, size: int | None = None) -> str:
    """The hash of the first `size` bytes of a file, or of all."""
    return hashed(file, size).hexdigest()


def hashed(file: int, size: int | None = None) -> "hashlib._Hash":
    digest, offset = hashlib.sha256(), 0
    while size is None or offset < size:
        wanted = _PIECE if size is None else min(_PIECE, size - offset)
        piece = os.pread(file, wanted, offset)
        if not piece:
            break
        digest.update(piece)
        offset += len(piece)
    return digest


def opened(top: str, names: list[str], known: str) -> OpenedData:
    """A file to be read, which whoever asked has to close; `known` is the version that they have
    a part of."""
    with open_file(top, names) as file:
        facts = os.fstat(file)
        if known and known != version(facts):
            raise Exists(f"{'/'.join(names)[:100]!r} has changed meanwhile", "read it anew")
        return OpenedData(os.dup(file), facts.st_size, version(facts))


def make_folder(top: str, names: list[str]) -> None:
    """Make a folder, and those that it is in; on disk once this returns."""
    with open_folder(top, names, make=True):
        pass


def move(top: str, names: list[str], to: list[str]) -> int:
    """Give something another name; how many bytes were there under that name before."""
    if not names or not to:
        raise UsageError("the top of a domain cannot be moved")
    if to[: len(names)] == names and len(to) > len(names):
        raise UsageError("a folder cannot be moved into itself")
    with open_folder(top, names[:-1]) as above, open_folder(top, to[:-1]) as below:
        before = size_of(below, to[-1]) if to != names else 0
        os.rename(names[-1], to[-1], src_dir_fd=above, dst_dir_fd=below)
        os.fsync(below)
        os.fsync(above)
    return before


def delete(top: str, names: list[str]) -> int:
    """Delete a file, or a folder with all that is in it; how many bytes that were.

    It is gone at once and as a whole: what has to be emptied first is out of sight by then.
    """
    if not names:
        raise UsageError("that would be all of it", "name what is to be deleted")
    aside = f"gone-{secrets.token_hex(8)}"
    with open_folder(top, names[:-1]) as above, own_folder(top) as own:
        size = size_of(above, names[-1])
        os.rename(names[-1], aside, src_dir_fd=above, dst_dir_fd=own)
        os.fsync(above)
        remove(aside, own)
    return size


def remove(name: str, folder: int) -> None:
    """Remove what is in one of our own folders; links in it are removed, not followed."""
    if stat.S_ISDIR(os.lstat(name, dir_fd=folder).st_mode):
        _open_up(name, folder)
        shutil.rmtree(name, dir_fd=folder)
    else:
        os.unlink(name, dir_fd=folder)


def _open_up(name: str, folder: int) -> None:
    """Let ourselves into folders that a job has closed."""
    _let_in(name, folder)
    for _, folders, _, inside in os.fwalk(name, dir_fd=folder, follow_symlinks=False):
        for one in folders:
            _let_in(one, inside)


def _let_in(name: str, folder: int) -> None:
    try:
        at = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return
    try:
        facts = os.fstat(at)
        if stat.S_ISDIR(facts.st_mode) and facts.st_mode & 0o700 != 0o700:
            os.chmod(f"/proc/self/fd/{at}", 0o700)
    except OSError:
        pass  # Somebody else's: removing it says why that cannot be.
    finally:
        os.close(at)


@contextlib.contextmanager
def own_folder(top: str) -> Iterator[int]:
    """Our own folder in a domain; it is not there for longer than anything is in it."""
    with open_folder(top, []) as root:
        with contextlib.suppress(FileExistsError):
            os.mkdir(OWN, 0o700, dir_fd=root)
        own = os.open(OWN, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root)
        try:
            yield own
        finally:
            os.close(own)
            with contextlib.suppress(OSError):
                os.rmdir(OWN, dir_fd=root)


def size_of(folder: int, name: str) -> int:
    """The bytes of a file, or of all files below a folder; what goes away meanwhile has none."""
    try:
        facts = os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return 0
    if not stat.S_ISDIR(facts.st_mode):
        return facts.st_size if stat.S_ISREG(facts.st_mode) else 0
    total = 0
    for _, _, files, inside in os.fwalk(name, dir_fd=folder, follow_symlinks=False):
        for file in files:
            with contextlib.suppress(OSError):
                found = os.lstat(file, dir_fd=inside)
                total += found.st_size if stat.S_ISREG(found.st_mode) else 0
    return total


def version(facts: os.stat_result) -> str:
    """What is another one as soon as a file has changed."""
    return f"{facts.st_ino:x}-{facts.st_size:x}-{facts.st_mtime_ns:x}"


def _described(name: str, facts: os.stat_result) -> DataEntry:
    kind = _KINDS.get(stat.S_IFMT(facts.st_mode), "other")
    return {
        "name": name,
        "kind": kind,
        "size": facts.st_size if kind == "file" else 0,
        "mtime": facts.st_mtime,
        "mode": stat.S_IMODE(facts.st_mode),
    }
