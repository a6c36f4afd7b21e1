"""The directory of a job, as the ancestor laid it out: `keep`, `workers`, `pit.log`, and `src` for
as long as it is not over."""

from __future__ import annotations

from towline.cli.pit.failures import Failed
from towline.client.transport import with_query
from towline.errors import NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from towline.cli.pit.session import PitSession

FOLDER = "dir"
FILE = "file"
_OVER = ("done", "failed", "stopped", "lost", "skipped")
_PIECE = 1 << 20


class JobTree:
    """What can be listed and read of one job; nothing of it can be changed."""

    def __init__(self, session: PitSession, number: int) -> None:
        self.session = session
        self.number = number
        self._job = session.call("GET", f"/v1/jobs/{number}")

    @property
    def name(self) -> str:
        return str(self.number)

    @property
    def processes(self) -> int:
        return max(1, len(self._job["processes"]))

    def stat(self, path: str) -> dict[str, Any]:
        """`kind`, `size` and `mtime` of a path."""
        place = split(path)
        if not place or place in (["workers"], ["keep"], ["src"]):
            self._check_top(place)
            return {"kind": FOLDER, "size": 0, "mtime": self._changed(), "mode": 0o755}
        if place == ["pit.log"] or place[0] == "workers":
            return self._made_up(place)
        return self._found(place, "stat")

    def entries(self, path: str) -> list[dict[str, Any]]:
        """What is in a folder; links are left out."""
        place = split(path)
        if not place:
            names = ["keep", *([] if self._over() else ["src"]), "workers"]
            return [self._folder(name) for name in names] + [self._named("pit.log", ["pit.log"])]
        if place == ["workers"]:
            return [self._folder(str(rank)) for rank in range(self.processes)]
        if place[0] == "workers":
            if len(place) > 2 or not self._is_rank(place[1]):
                raise NotFound(f"{path} is not there")
            return [self._named(name, [*place, name]) for name in ("status", "worker.log")]
        self._check_top(place)
        found = self._listed(place)
        return [one for one in found if one["kind"] in (FOLDER, FILE)]

    def read(self, path: str, offset: int = 0, limit: int | None = None) -> Iterator[bytes]:
        """The bytes of a file."""
        place = split(path)
        if place == ["pit.log"] or place[:1] == ["workers"]:
            text = self._text(place)
            yield text[offset : None if limit is None else offset + limit]
            return
        query = self._whose(place) | {"offset": offset}
        query |= {} if limit is None else {"limit": limit}
        target = with_query(f"/v1/jobs/{self.number}/file", **query)
        with self.session.open("GET", target) as reply:
            while piece := reply.read(_PIECE):
                yield piece

    def walk(self, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
        """Every file and folder below a path, folders before what is in them."""
        for one in self.entries(path):
            inside = f"{path}/{one['name']}" if path else one["name"]
            yield inside, one
            if one["kind"] == FOLDER:
                yield from self.walk(inside)

    def _folder(self, name: str) -> dict[str, Any]:
        return {"name": name, "kind": FOLDER, "size": 0, "mtime": self._changed(), "mode": 0o755}

    def _over(self) -> bool:
        return self._job["state"] in _OVER

    def _changed(self) -> float:
        job = self._job
        return float(job.get("ended") or job.get("started") or job["submitted"])

    def _check_top(self, place: list[str]) -> None:
        if place and (place[0] not in ("keep", "src", "workers") or self._gone(place[0])):
            raise NotFound(f"{'/'.join(place)} is not there")

    def _gone(self, top: str) -> bool:
        """As with the ancestor: what a job ran in goes with it."""
        return top == "src" and self._over()

    def _whose(self, place: list[str]) -> dict[str, Any]:
        """How a path is asked for: of the first process that has it."""
        self._check_top(place)
        if len(place) == 1:
            raise Failed("At the moment only file copying is supported.")
        query: dict[str, Any] = {"path": "/".join(place[1:])}
        query |= {"kept": 1} if place[0] == "keep" else {}
        if self.processes == 1:
            return query
        return {**query, "process": self._found(place, "stat")["process"]}

    def _found(self, place: list[str], what: str) -> dict[str, Any]:
        self._check_top(place)
        for process in range(self.processes):
            try:
                found: dict[str, Any] = self._ask(what, place, process)
                return {**found, "process": process}
            except NotFound:
                if process == self.processes - 1:
                    raise
        raise AssertionError

    def _listed(self, place: list[str]) -> list[dict[str, Any]]:
        """What any of its processes has there; of two of one name, the first."""
        found: dict[str, dict[str, Any]] = {}
        missing: NotFound | None = None
        for process in range(self.processes):
            try:
                for one in self._ask("files", place, process)["entries"]:
                    found.setdefault(one["name"], one)
            except NotFound as error:
                missing = error
        if missing is not None and not found and len(place) > 1:
            raise missing
        return list(found.values())

    def _ask(self, what: str, place: list[str], process: int) -> Any:
        query: dict[str, Any] = {"path": "/".join(place[1:]), "process": process}
        query |= {"kept": 1} if place[0] == "keep" else {}
        return self.session.call("GET", with_query(f"/v1/jobs/{self.number}/{what}", **query))

    def _named(self, name: str, place: list[str]) -> dict[str, Any]:
        return {"name": name, **self._made_up(place)}

    def _made_up(self, place: list[str]) -> dict[str, Any]:
        if place[0] == "workers" and len(place) == 2 and self._is_rank(place[1]):
            return {"kind": FOLDER, "size": 0, "mtime": self._changed(), "mode": 0o755}
        size = len(self._text(place))
        return {"kind": FILE, "size": size, "mtime": self._changed(), "mode": 0o644}

    def _is_rank(self, word: str) -> bool:
        return word.isdecimal() and int(word) < self.processes

    def _text(self, place: list[str]) -> bytes:
        from towline.cli.pit.logs import log_lines

        if place == ["pit.log"]:
            return b"".join(log_lines(self.session, self.number, until_end=False))
        if len(place) != 3 or not self._is_rank(place[1]):
            raise NotFound(f"{'/'.join(place)} is not there")
        if place[2] == "status":
            code = self._job["processes"][int(place[1])].get("exit_code")
            return b"" if code is None else b"%d\n" % code
        if place[2] != "worker.log":
            raise NotFound(f"{'/'.join(place)} is not there")
        mark = b"] [worker %s] " % place[1].encode()
        lines = log_lines(self.session, self.number, until_end=False)
        return b"".join(line.replace(mark, b"] ", 1) for line in lines if mark in line[:48])


def split(path: str) -> list[str]:
    """The names of a path inside of the job's directory; a leading `/` is nothing."""
    names = [name for name in path.split("/") if name not in ("", ".")]
    if ".." in names:
        raise NotFound(f"{path} leads out of the job's directory")
    return names
