"""Files of a job brought here, without ever overwriting what is here unasked."""

from __future__ import annotations

import os

from towline.cli.client import PIECE, with_query
from towline.cli.engine import ApiError
from towline.cli.terminal import note
from towline.errors import HostError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from towline.cli.engine import Engine


class Pull:
    """One `tow pull`: what it brought, what was here already, and what stands in its way."""

    def __init__(self, engine: Engine, job: int, *, force: bool) -> None:
        self.engine = engine
        self.job = job
        self.force = force
        self.brought: list[str] = []
        self.same: list[str] = []
        self.in_the_way: list[str] = []
        self.bytes = 0

    def run(self, path: str, local: str | None) -> None:
        """Bring the file or folder `path` to `local`."""
        base = local_base(self.job, path, local)
        # A name is judged before the first byte is written: all are good, or none is used.
        places = [(entry, local_place(base, entry["name"])) for entry in self._files(path)]
        for entry, place in places:
            self._bring(path, entry, place)

    def _files(self, path: str) -> list[dict[str, Any]]:
        """Every plain file below `path`, named from there; the name of `path` itself is empty."""
        try:
            answer = self.engine.call("GET", with_query(f"/v1/jobs/{self.job}/walk", path=path))
        except ApiError as error:
            if error.code != "not_found":
                raise
            return [self._single_file(path)]
        if answer.get("more"):
            note("there are more files than can be listed at once: pull the folders one by one")
        files = [entry for entry in answer["files"] if entry.get("kind", "file") == "file"]
        if left_out := len(answer["files"]) - len(files):
            note(f"links and special files are left out: {left_out}")
        return files

    def _single_file(self, path: str) -> dict[str, Any]:
        """What its folder says of a file; that it is not there, reading it will tell."""
        folder, _, name = path.rstrip("/").rpartition("/")
        target = with_query(f"/v1/jobs/{self.job}/files", path=folder)
        for entry in self.engine.call("GET", target)["entries"]:
            if entry["name"] == name and entry.get("kind") == "file":
                return {**entry, "name": ""}
        return {"name": ""}

    def _bring(self, path: str, entry: dict[str, Any], place: str) -> None:
        if os.path.lexists(place) and not self.force and not _may_be_same(place, entry):
            self.in_the_way.append(place)
            return
        os.makedirs(os.path.dirname(place) or ".", exist_ok=True)
        part = f"{place}.tow-{os.urandom(4).hex()}"
        try:
            self._download(_joined(path, entry["name"]), part, _mode(entry))
            self._settle(part, place)
        finally:
            if os.path.lexists(part):
                os.unlink(part)

    def _download(self, path: str, part: str, mode: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        target = with_query(f"/v1/jobs/{self.job}/file", path=path)
        with (
            self.engine.open("GET", target) as reply,
            open(os.open(part, flags, mode), "wb", buffering=0) as sink,
        ):
            while piece := reply.read():
                sink.write(piece)
                self.bytes += len(piece)

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


def local_base(job: int, path: str, local: str | None) -> str:
    """Where a file or folder of the job goes, as `cp -r` would have it."""
    name = os.path.basename(os.path.normpath(path)) if path else ""
    if name in ("", ".", "..", "/"):
        name = f"job-{job}"
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
