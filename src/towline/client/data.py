"""The data of a team, from outside: a domain's files listed, read, sent and brought, over cuts."""

from __future__ import annotations

import hashlib
import os
from contextlib import closing

from towline.client.session import MOST_TRIES
from towline.client.transport import BodyFromDisk, Gone, quoted, with_query
from towline.errors import NotFound, TowlineError, Unreachable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, BinaryIO

    from towline.client.session import Session
    from towline.client.transport import Reply

#: So much goes in one request, and is at most sent again after a cut.
PIECE_UP = 16 << 20
PIECE = 1 << 20
VERSION_OF_FILE = "towline-file-version"


class ArrivedDamaged(TowlineError):
    """What arrived has another hash than what was sent."""

    code = "damaged_on_the_way"


class DataFolder:
    """One domain: `home`, `shared`, `group:NAME` or `user:NAME`."""

    def __init__(self, session: Session, domain: str) -> None:
        self.session = session
        self.domain = domain

    def stat(self, path: str, *, hashed: bool = False) -> dict[str, Any]:
        """What a path is; with the hash of its content, if that is wanted."""
        found: dict[str, Any] = self._ask("stat", path=path, hash=1 if hashed else None)
        return found

    def exists(self, path: str) -> bool:
        try:
            self.stat(path)
        except NotFound:
            return False
        return True

    def entries(self, path: str) -> list[dict[str, Any]]:
        """All that is in a folder, by name."""
        found: list[dict[str, Any]] = []
        more = True
        while more:
            after = found[-1]["name"] if found else None
            answer = self._ask("files", path=path, after=after)
            found += answer["entries"]
            more = bool(answer["more"] and answer["entries"])
        return found

    def walk(self, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every file and folder below a folder, folders before what is in them."""
        for one in self.entries(path):
            inside = f"{path.rstrip('/')}/{one['name']}" if path else one["name"]
            yield inside, one
            if one["kind"] == "dir":
                yield from self.walk(inside)

    # --- reading -----------------------------------------------------------------------------

    def stream(self, path: str, offset: int, limit: int | None = None, version: str = "") -> Reply:
        query = {"path": path, "offset": offset, "limit": limit, "version": version or None}
        return self.session.open("GET", with_query(f"{self._at()}/file", **query))

    def read(self, path: str, offset: int = 0, limit: int | None = None) -> Iterator[bytes]:
        """The bytes of a file; where the connection breaks, it goes on at that byte."""
        version, tries = "", MOST_TRIES
        while limit is None or limit > 0:
            try:
                with closing(self.stream(path, offset, limit, version)) as reply:
                    version = reply.headers.get(VERSION_OF_FILE, "")
                    while piece := reply.read(PIECE):
                        yield piece
                        offset, tries = offset + len(piece), MOST_TRIES
                        limit = None if limit is None else limit - len(piece)
                return
            except (Gone, Unreachable):
                tries -= 1
                if not tries:
                    raise

    def bring(self, path: str, file: BinaryIO, tell: Callable[[int, int], None]) -> int:
        """Write a file's content behind what `file` holds of it already; its hash is checked."""
        about = self.stat(path, hashed=True)
        file.seek(0, os.SEEK_END)
        at = begun = file.tell()
        for piece in self.read(path, at):
            file.write(piece)
            at += len(piece)
            tell(at, about["size"])
        file.flush()
        if hash_of(file) != about["sha256"]:
            if self.stat(path)["version"] != about["version"]:
                raise ArrivedDamaged(f"{path} changed while it was copied", "copy it again")
            raise ArrivedDamaged(
                f"what arrived of {path} is not what is there", "copy it anew, from the beginning"
            )
        return at - begun

    # --- writing -----------------------------------------------------------------------------

    def send(self, path: str, file: BinaryIO, mode: int, tell: Callable[[int, int], None]) -> int:
        """Make a file there of the content of `file`; how many bytes had to travel.

        It goes on with what is there of the same content, also after a cut; it is there once this
        returns.
        """
        size = file.seek(0, os.SEEK_END)
        about = {"path": path, "size": size, "sha256": hash_of(file), "mode": f"{mode & 0o777:04o}"}
        sent, tries = 0, MOST_TRIES
        while True:
            try:
                arrived = self._announce(about)
                while not arrived["complete"]:
                    tell(arrived["offset"], size)
                    before = arrived["offset"]
                    arrived = self._send_piece(about, file, before)
                    sent += max(0, arrived["offset"] - before)
                    tries = MOST_TRIES if arrived["offset"] > before else tries - 1
                    if not tries:
                        raise Gone("the server takes no piece of the file")
                tell(size, size)
                return sent
            except (Gone, Unreachable):
                tries -= 1
                if tries <= 0:
                    raise

    def _announce(self, about: dict[str, Any]) -> dict[str, Any]:
        target = with_query(f"{self._at()}/file", **about)
        answer: dict[str, Any] = self.session.call("POST", target, repeat=True)
        return answer

    def _send_piece(self, about: dict[str, Any], file: BinaryIO, offset: int) -> dict[str, Any]:
        import json

        body = BodyFromDisk(file, min(PIECE_UP, about["size"] - offset), offset)
        target = with_query(f"{self._at()}/file", **about, offset=offset)
        with closing(self.session.open("PUT", target, body)) as reply:
            answer: dict[str, Any] = json.loads(reply.read_all())
            return answer

    def make_folder(self, path: str) -> None:
        self.session.call("PUT", with_query(f"{self._at()}/folder", path=path), repeat=True)

    def move(self, path: str, to: str) -> None:
        """Give a file or folder another name, in the same domain."""
        self.session.call("POST", with_query(f"{self._at()}/move", path=path, to=to))

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with all that is in it."""
        # Not again when the answer is lost: by then there may be something new of that name.
        self.session.open("DELETE", with_query(f"{self._at()}/file", path=path)).close()

    def _at(self) -> str:
        return f"/v1/data/{quoted(self.domain)}"

    def _ask(self, what: str, **query: object) -> Any:
        return self.session.call("GET", with_query(f"{self._at()}/{what}", **query))


def hash_of(file: BinaryIO) -> str:
    """The hash of all of a file."""
    file.seek(0)
    digest = hashlib.sha256()
    while piece := file.read(PIECE):
        digest.update(piece)
    return digest.hexdigest()
