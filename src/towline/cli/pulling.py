"""Files of a job brought here, without ever overwriting what is here unasked."""

from __future__ import annotations

import os

from towline.cli.terminal import note, printable
from towline.cli.terminal.travel import Travel
from towline.client.session import MOST_TRIES, ApiError
from towline.client.transport import PIECE, Gone, with_query
from towline.errors import HostError, NotFound, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, BinaryIO

    from towline.client.session import Session


class Coming:
    """A file on its way here, under a name of its own until it is whole."""

    def __init__(self, path: str, entry: dict[str, Any], place: str) -> None:
        self.path = path
        #: As its machine calls it.
        self.name: str = entry["name"]
        self.size = entry.get("size", 0)
        self.mode = _mode(entry)
        self.place = place
        self.part = f"{place}.tow-{os.urandom(4).hex()}"
        self.received = 0
        self.arrived = False
        self._sink: BinaryIO | None = None

    def asked(self) -> dict[str, Any]:
        return {"path": self.path, "size": self.size, "offset": self.received}

    def write(self, offset: int, data: bytes | memoryview) -> None:
        if offset != self.received:
            raise Gone("the Engine sent another piece than the next one")
        if self._sink is None:
            os.makedirs(os.path.dirname(self.place) or ".", exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            self._sink = open(os.open(self.part, flags, self.mode), "wb", buffering=0)
        self._sink.write(data)
        self.received += len(data)

    def complete(self) -> None:
        self.arrived = True
        if self._sink is not None:
            self._sink.close()

    def discard(self) -> None:
        """Remove what has not got its name."""
        self.complete()
        if os.path.lexists(self.part):
            os.unlink(self.part)


class Pull:
    """One `tow pull`: what it brought, what was here already, and what stands in its way."""

    def __init__(self, session: Session, job: int, *, force: bool) -> None:
        self.session = session
        self.job = job
        self.force = force
        self.brought: list[str] = []
        self.same: list[str] = []
        self.in_the_way: list[str] = []
        self.bytes = 0
        #: Of all that is to come.
        self.total = 0

    def run(self, path: str, local: str | None) -> None:
        """Bring the file or folder `path` to `local`."""
        path, pattern = self._split(path)
        base = (local or ".") if pattern else local_base(f"job-{self.job}", path, local)
        travel = Travel(f"pulling {printable(os.path.basename(path)) or 'all'}")
        coming: list[Coming] = []
        try:
            if pattern:
                coming = self._expected(path, base, self._matching(path, pattern))
            else:
                coming = self._gather(path, base, travel)
            self._bring(coming, travel)
        finally:
            travel.end()
            for file in coming:
                file.discard()

    def _expected(self, path: str, base: str, found: list[dict[str, Any]]) -> list[Coming]:
        """What of these files is to come; a name is judged before the first byte is written."""
        places = [(entry, local_place(base, entry["name"])) for entry in found]
        coming = [
            Coming(_joined(path, entry["name"]), entry, place)
            for entry, place in places
            if not self._is_in_the_way(entry, place)
        ]
        self.total += sum(file.size for file in coming)
        return coming

    def _gather(self, path: str, base: str, travel: Travel) -> list[Coming]:
        """Bring every short file below `path`, in one round trip; the others are still to come."""
        later: list[Coming] = []
        left_out = 0
        for found in self._found(path):
            files = {entry["name"]: data for entry, data in found if entry["kind"] == "file"}
            left_out += len(found) - len(files)
            listed = [entry for entry, _ in found if entry["name"] in files]
            for file in self._expected(path, base, listed):
                content = files[file.name]
                if content is None:
                    later.append(file)
                else:
                    self._take(file, content)
            travel.at(self.bytes, self.total)
        if left_out:
            note(f"links and special files are left out: {left_out}")
        return later

    def _found(self, path: str) -> Iterator[list[tuple[dict[str, Any], memoryview | None]]]:
        """Every file below `path`, once, with its contents if it is short."""
        target = with_query(f"/v1/jobs/{self.job}/gather", path=path)
        tries = MOST_TRIES
        known: set[str] = set()
        while True:
            before = len(known)
            try:
                for header, blob in self.session.frames("GET", target):
                    found = with_contents(header["files"], memoryview(blob))
                    yield [one for one in found if one[0]["name"] not in known]
                    known.update(entry["name"] for entry, _ in found)
                return
            except Gone:
                tries = tries - 1 if len(known) == before else MOST_TRIES
                if not tries:
                    raise

    def _take(self, file: Coming, content: memoryview) -> None:
        """Put a file into its place of which all is here."""
        try:
            file.write(0, content)
            file.complete()
            self._settle(file.part, file.place)
            self.bytes += len(content)
        finally:
            file.discard()

    def _split(self, path: str) -> tuple[str, str]:
        """The folder to look in and the pattern of what is wanted; no pattern: all of it."""
        parts = path.split("/")
        place = next((n for n, part in enumerate(parts) if set(part) & set("*?[")), len(parts))
        if place < len(parts):
            try:
                self.session.call("GET", with_query(f"/v1/jobs/{self.job}/stat", path=path))
            except ApiError as error:
                if error.code != "not_found":
                    raise
                return "/".join(parts[:place]), "/".join(parts[place:])
        return path, ""

    def _matching(self, path: str, pattern: str) -> list[dict[str, Any]]:
        """Every plain file below `path` that a shell would mean by the pattern."""
        answer = self.session.call("GET", with_query(f"/v1/jobs/{self.job}/walk", path=path))
        if answer.get("more"):
            note("there are more files than can be listed at once: pull the folders one by one")
        found = [
            entry
            for entry in answer["files"]
            if entry.get("kind", "file") == "file" and matches(entry["name"], pattern)
        ]
        if not found:
            raise NotFound(f"the job has no file like {_joined(path, pattern)}")
        return found

    def _is_in_the_way(self, entry: dict[str, Any], place: str) -> bool:
        if not os.path.lexists(place) or self.force or _may_be_same(place, entry):
            return False
        self.in_the_way.append(place)
        return True

    def _bring(self, coming: list[Coming], travel: Travel) -> None:
        """All of them in one stream; after a cut, what is still missing."""
        tries = MOST_TRIES
        while left := [file for file in coming if not file.arrived]:
            before = self.bytes
            try:
                self._receive(left, travel)
            except Gone:
                tries = tries - 1 if self.bytes == before else MOST_TRIES
                if not tries:
                    raise

    def _receive(self, coming: list[Coming], travel: Travel) -> None:
        asked = [file.asked() for file in coming]
        target = f"/v1/jobs/{self.job}/fetch"
        for header, blob in self.session.frames("POST", target, {"files": asked}):
            file = coming[header["file"]]
            if "refused" in header:
                note(f"left out: {header['refused']['text']}")
                file.arrived = True
                continue
            file.write(header["offset"], blob)
            self.bytes += len(blob)
            travel.at(self.bytes, self.total)
            if header["last"]:
                file.complete()
                self._settle(file.part, file.place)
                file.discard()

    def _settle(self, part: str, place: str) -> None:
        """Give the file its name, which fails when somebody else took it meanwhile."""
        if self.force:
            if os.path.isdir(place) and not os.path.islink(place):
                raise UsageError(f"{place} is a folder here", "remove it first")
            os.replace(part, place)
            self.brought.append(place)
            return
        try:
            os.link(part, place, follow_symlinks=False)
            self.brought.append(place)
        except FileExistsError:
            (self.same if _same(part, place) else self.in_the_way).append(place)


def with_contents(
    entries: list[dict[str, Any]], contents: memoryview
) -> list[tuple[dict[str, Any], memoryview | None]]:
    """Files, each with those of the bytes that are its own; None where it came without."""
    found: list[tuple[dict[str, Any], memoryview | None]] = []
    at = 0
    for entry in entries:
        size = entry.get("got")
        found.append((entry, None if size is None else contents[at : at + size]))
        at += size or 0
    return found


def matches(name: str, pattern: str) -> bool:
    """Whether a shell would mean this file by the pattern: `*` does not lead into folders."""
    from fnmatch import fnmatchcase

    parts, wanted = name.split("/"), pattern.split("/")
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))


def local_base(all_of_it: str, path: str, local: str | None) -> str:
    """Where a file or folder goes, as `cp -r` would have it; `all_of_it` has no name of its own."""
    name = os.path.basename(os.path.normpath(path)) if path else ""
    if name in ("", ".", "..", "/"):
        name = all_of_it
    if local is None:
        return name
    return os.path.join(local, name) if os.path.isdir(local) or local.endswith("/") else local


def local_place(base: str, name: str) -> str:
    """Where one file goes; a name from the other side never leads out of `base`."""
    if name in ("", "."):
        return base
    parts = name.split("/")
    if "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise HostError(f"the machine sent a file name that cannot be used here: {name!r}")
    place = base
    for part in parts[:-1]:
        place = os.path.join(place, part)
        if os.path.islink(place):
            raise UsageError(f"{place} is a link here, so nothing is written through it")
    return os.path.join(place, parts[-1])


def _joined(path: str, name: str) -> str:
    if name in ("", "."):
        return path
    return f"{path.rstrip('/')}/{name}" if path else name


def _mode(entry: dict[str, Any]) -> int:
    """Only the plain permission bits: never set-user-id from elsewhere."""
    mode = entry.get("mode")
    value = int(mode, 8) if isinstance(mode, str) else int(mode or 0o644)
    return value & 0o777 | 0o600


def _may_be_same(place: str, entry: dict[str, Any]) -> bool:
    return (
        os.path.isfile(place)
        and not os.path.islink(place)
        and os.path.getsize(place) == entry.get("size", os.path.getsize(place))
    )


def _same(one: str, other: str) -> bool:
    if os.path.islink(other) or not os.path.isfile(other):
        return False
    with open(one, "rb") as first, open(other, "rb") as second:
        while True:
            piece = first.read(PIECE)
            if piece != second.read(PIECE):
                return False
            if not piece:
                return True
