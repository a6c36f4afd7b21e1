"""Files on their way home that have not arrived whole: each lies beside its place, under another
name.

What is long keeps its name as long as this machine runs: if the Engine is killed meanwhile, the
next one goes on where it was. After a power cut nobody knows what of it is on disk: then it begins
anew.
"""

import functools
import hashlib
import itertools
import os
import secrets
import shutil
from typing import BinaryIO

#: How the names of such files begin.
_PART = ".towline-part-"
_CHUNK = 1 << 20

#: What tells the parts of this process from those of others, and from each other.
_own = secrets.token_hex(8)
_numbers = itertools.count()


class PartialFile:
    """`what` says which content it will be: what is here of the same is gone on with."""

    def __init__(self, folder: str, what: str = "") -> None:
        name = _lasting_name(what) if what else ""
        #: It outlives an Engine that is killed.
        self.lasts = bool(name)
        self.left = False
        # Not the target's name with something behind it: that may be as long as names can be.
        self.path = os.path.join(folder, name or own_name())
        self.file: BinaryIO = open(self.path, "r+b" if name else "xb", opener=_private)
        self.size = 0
        self._hash = new_hash()
        while piece := self.file.read(_CHUNK) if name else b"":
            self._hash.update(piece)
            self.size += len(piece)
        #: So much of it was here already.
        self.found = self.size

    def write(self, content: bytes) -> None:
        self.file.write(content)
        self._hash.update(content)
        self.size += len(content)

    def finish(self, mode: int) -> str:
        """The digest of all that was written."""
        self.file.flush()
        os.fchmod(self.file.fileno(), mode)
        self.file.close()
        return self._hash.hexdigest()

    def leave(self) -> None:
        """Let it be, for whoever goes on with it; what nobody could find again is removed."""
        self.file.close()
        self.left = self.lasts
        if not self.lasts:
            self.discard()

    def discard(self) -> None:
        self.file.close()
        if os.path.lexists(self.path):
            os.unlink(self.path)


def size_here(folder: str, what: str) -> int:
    """How much of a content is here already."""
    name = _lasting_name(what) if what else ""
    try:
        return os.lstat(os.path.join(folder, name)).st_size if name else 0
    except OSError:
        return 0


def own_name() -> str:
    """A name that no other part has."""
    return f"{_PART}{_own}-{next(_numbers)}"


def remove_parts(folder: str) -> list[str]:
    """Remove what an Engine that was killed left among a job's results.

    What can be gone on with stays; those in the job's own folder, which may not be needed any more.
    """
    top = os.path.dirname(folder)
    beside = os.listdir(top) if os.path.isdir(top) else []
    lasting = []
    for place, folders, names in itertools.chain([(top, [], beside)], os.walk(folder)):
        for name in [*folders, *names]:
            path = os.path.join(place, name)
            if _boot() and name.startswith(_PART + _boot()):
                lasting += [path] if place != top else []
            elif name.startswith(_PART):
                _remove(path)
        folders[:] = [name for name in folders if not name.startswith(_PART)]
    return lasting


def _remove(path: str) -> None:
    """Remove a file, or a folder that was being filled."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def _lasting_name(what: str) -> str:
    """The same for the same content until this machine restarts; empty where that is not known."""
    digest = hashlib.blake2b(what.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
    return f"{_PART}{_boot()}-{digest}" if _boot() else ""


@functools.cache
def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return hashlib.blake2b(file.read().encode(), digest_size=8).hexdigest()
    except OSError:
        return ""


def new_hash() -> "hashlib.blake2b":
    return hashlib.blake2b(digest_size=16)


def _private(path: str, flags: int) -> int:
    create = os.O_CREAT if flags & os.O_RDWR else 0
    return os.open(path, flags | create | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
