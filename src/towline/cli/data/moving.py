"""`tow @team ls`, `cat`, `pull`, `push` of a domain: what they do, and how they say it."""

from __future__ import annotations

import os
import stat

from towline.cli.cwd import whole_path
from towline.cli.pulling import local_base, local_place
from towline.cli.terminal import note, printable, write
from towline.cli.terminal.travel import Travel
from towline.cli.terminal.wording import count
from towline.client.data import ArrivedDamaged, DataFolder, hash_of
from towline.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, BinaryIO


def listed(data: DataFolder, path: str) -> dict[str, Any]:
    """What is at a path, as a job's folder is told of."""
    found = data.stat(path)
    entries = data.entries(path) if found["kind"] == "dir" else [{**found, "name": path}]
    return {"entries": entries, "more": False}


def print_file(data: DataFolder, path: str) -> None:
    for piece in data.read(path):
        write(1, piece)


class DataPull:
    """One `tow pull` of a domain: what it brought, what was here already, what is in its way."""

    def __init__(self, data: DataFolder, *, force: bool) -> None:
        self.data = data
        self.force = force
        self.brought: list[str] = []
        self.same: list[str] = []
        self.in_the_way: list[str] = []
        self.bytes = 0
        self._total = 0
        self._before = 0

    def run(self, path: str, local: str | None) -> None:
        """Bring the file or folder `path` to `local`."""
        path = "" if path in (".", "/") else path.strip("/")
        found = self.data.stat(path)
        base = local_base(self.data.domain.replace(":", "-"), path, local)
        travel = Travel(f"pulling {printable(os.path.basename(path)) or 'all'}")
        try:
            if found["kind"] == "dir":
                self._bring_folder(path, base, travel)
            elif found["kind"] == "file":
                self._total = found["size"]
                self._bring(path, base, found, travel)
            else:
                raise UsageError(f"{path} is a link, or no plain file")
        finally:
            travel.end()

    def _bring_folder(self, path: str, base: str, travel: Travel) -> None:
        os.makedirs(base, exist_ok=True)
        found = list(self.data.walk(path))
        left_out = sum(1 for _, one in found if one["kind"] not in ("file", "dir"))
        if left_out:
            note(f"{count(left_out, 'link')} and the like left out")
        self._total = sum(one["size"] for _, one in found)
        for inside, one in found:
            place = local_place(base, inside[len(path) :].lstrip("/"))
            if one["kind"] == "dir":
                os.makedirs(place, exist_ok=True)
            elif one["kind"] == "file":
                self._bring(inside, place, one, travel)

    def _bring(self, path: str, place: str, about: dict[str, Any], travel: Travel) -> None:
        if os.path.lexists(place) and not self.force:
            (self.same if self._is_same(path, place) else self.in_the_way).append(place)
            return
        # Under this name, what came before a cut or a Ctrl-C is found and gone on with.
        part = f"{place}.{about_part(about)}.tow-part"
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(part, flags, about["mode"] & 0o777 | 0o600), "r+b") as file:
            if os.fstat(file.fileno()).st_size > about["size"]:
                file.truncate(0)
            before = self.bytes
            try:
                self.data.bring(path, file, lambda at, _: travel.at(before + at, self._total))
            except ArrivedDamaged:
                os.unlink(part)
                raise
            self.bytes += file.tell()
        if _settled(part, place, self.force):
            self.brought.append(place)
        else:
            self.in_the_way.append(place)

    def _is_same(self, path: str, place: str) -> bool:
        if os.path.islink(place) or not os.path.isfile(place):
            return False
        with open(place, "rb") as file:
            return bool(hash_of(file) == self.data.stat(path, hashed=True)["sha256"])


def _settled(part: str, place: str, force: bool) -> bool:
    """Give a file its name; False when somebody else took it meanwhile."""
    if force:
        if os.path.isdir(place) and not os.path.islink(place):
            raise UsageError(f"{place} is a folder here", "remove it first")
        os.replace(part, place)
        return True
    try:
        os.link(part, place, follow_symlinks=False)
    except FileExistsError:
        return False
    finally:
        os.unlink(part)
    return True


def about_part(about: dict[str, Any]) -> str:
    """What tells one content from another, as far as that is known without reading it."""
    return f"{about['size']:x}-{int(about['mtime'] * 1000):x}"


class DataPush:
    """One `tow push` to a domain: what it sent, and what was there already."""

    def __init__(self, data: DataFolder) -> None:
        self.data = data
        self.sent: list[str] = []
        self.bytes = 0

    def run(self, local: str, path: str | None) -> None:
        name = os.path.basename(whole_path(local))
        base = path if path is not None else name
        base = base + name if base.endswith("/") else base
        files = list(_files(local, base))
        total = sum(os.path.getsize(one) for one, _ in files)
        travel, before = Travel(f"pushing {count(len(files), 'file')}"), 0

        def tell(at: int, _: int) -> None:
            travel.at(before + at, total)

        try:
            for one, there in files:
                with _opened(one) as file:
                    mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                    self.bytes += self.data.send(there, file, mode, tell)
                    before += os.fstat(file.fileno()).st_size
                self.sent.append(there)
        finally:
            travel.end()


def _files(local: str, base: str) -> Iterator[tuple[str, str]]:
    """Every plain file to send, and its path over there."""
    if not os.path.isdir(local):
        yield local, base
        return
    for folder, _, names in os.walk(local):
        inner = os.path.relpath(folder, local)
        for name in sorted(names):
            file = os.path.join(folder, name)
            if os.path.islink(file) or not os.path.isfile(file):
                note(f"{file} is not a plain file: left out")
                continue
            path = name if inner == "." else f"{inner}/{name}"
            yield file, path if base == "." else f"{base.rstrip('/')}/{path}"


def _opened(local: str) -> BinaryIO:
    try:
        return open(local, "rb")
    except OSError as error:
        raise UsageError(f"cannot read {local}: {error.strerror}") from None
