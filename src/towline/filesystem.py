"""`tow://12/out.csv`: the files of a job, for pandas and every other program that knows fsspec.

Reads only, and only the range that is asked for. The first part of a path is a job, as people
name it; the rest is a path in the folder that the job runs in.
"""

import errno
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from fsspec import AbstractFileSystem
from fsspec.spec import AbstractBufferedFile

from towline.client.names import job_number
from towline.client.read_ahead import ReadAhead
from towline.client.session import MOST_TRIES, Session
from towline.client.transport import Gone, Reply, with_query
from towline.errors import TowlineError

log = logging.getLogger("towline")
#: What travels from a machine in one piece.
PIECE = 256 * 1024
#: So many jobs are listed at the very top.
LOOK_BACK = 10_000
TYPES = {"file": "file", "dir": "directory", "link": "link"}
NUMBERS = {"not_found": errno.ENOENT, "usage": errno.EINVAL}


class TowFileSystem(AbstractFileSystem):
    """The files of every job, read-only; the Engine is started when it does not run."""

    protocol = "tow"
    root_marker = ""
    # What an instance would share is TOWLINE_HOME, which may be another one the next time.
    cachable = False

    def __init__(self, session: Session | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._session = session or Session()

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """The entries of a folder, or a file alone; at the very top, all jobs."""
        path = self._strip_protocol(path)
        entries = self._entries(path) if path else self._jobs()
        return entries if detail else [entry["name"] for entry in entries]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """What a path is; a link inside the job's folder is followed."""
        path = self._strip_protocol(path)
        if not path:
            return _described("", {"kind": "dir"})
        return _described(path, self._ask("stat", path))

    def modified(self, path: str) -> datetime:
        return datetime.fromtimestamp(self.info(path)["mtime"], UTC)

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **options: Any
    ) -> bytes:
        """The bytes from `start` up to `end`, and no others travel."""
        if end is None or end < 0 or (start or 0) < 0:
            content: bytes = super().cat_file(path, start, end, **options)
            return content
        path = self._strip_protocol(path)
        with told_as_os_error(path):
            return self._read(*self._place(path), start or 0, end)

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        cache_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> "TowFile":
        if mode != "rb":
            self._refuse(path)
        with told_as_os_error(path):
            # `last` may mean another job before the file is closed.
            job, inside = self._place(path)
        path = f"{job}/{inside}"
        found = self.info(path)
        if found["type"] == "directory":
            raise IsADirectoryError(errno.EISDIR, "is a folder", f"tow://{path}")
        options.setdefault("size", found["size"])
        return TowFile(
            self, path, mode, block_size or PIECE, cache_options=cache_options, **options
        )

    def _jobs(self) -> list[dict[str, Any]]:
        with told_as_os_error(""):
            answer = self._session.call("GET", with_query("/v1/jobs", all=1, limit=LOOK_BACK))
        return [_described(str(job["id"]), {"kind": "dir"}) for job in answer["jobs"]]

    def _entries(self, path: str) -> list[dict[str, Any]]:
        try:
            answer = self._ask("files", path)
        except FileNotFoundError:
            alone = self.info(path)
            if alone["type"] == "directory":
                raise
            return [alone]
        if answer.get("more"):
            log.warning("tow://%s holds more files than can be listed", path)
        return [self._followed(f"{path}/{entry['name']}", entry) for entry in answer["entries"]]

    def _followed(self, path: str, entry: dict[str, Any]) -> dict[str, Any]:
        """An entry of a folder; a link is shown as what it leads to, unless that is outside."""
        if entry["kind"] == "link" and entry.get("leads_to"):
            return {**_described(path, entry["leads_to"]), "islink": True}
        return _described(path, entry)

    def _ask(self, what: str, path: str) -> dict[str, Any]:
        with told_as_os_error(path):
            job, inside = self._place(path)
            answer: dict[str, Any] = self._session.call(
                "GET", with_query(f"/v1/jobs/{job}/{what}", path=inside)
            )
            return answer

    def _place(self, path: str) -> tuple[int, str]:
        job, _, inside = path.partition("/")
        return job_number(self._session, job), inside

    def reader(self, path: str) -> ReadAhead:
        """Reads one file, mostly from front to back."""
        with told_as_os_error(path):
            job, inside = self._place(self._strip_protocol(path))

        def stream(offset: int) -> Reply:
            target = with_query(f"/v1/jobs/{job}/file", path=inside, offset=offset)
            return self._session.open("GET", target)

        return ReadAhead(stream, lambda start, end: self._read(job, inside, start, end))

    def _read(self, job: int, path: str, start: int, end: int) -> bytes:
        pieces: list[bytes] = []
        tries = MOST_TRIES
        while start < end:
            target = with_query(f"/v1/jobs/{job}/file", path=path, offset=start, limit=end - start)
            try:
                with self._session.open("GET", target) as reply:
                    while piece := reply.read():
                        pieces.append(piece)
                        start += len(piece)
                break
            except Gone:
                tries -= 1
                if not tries:
                    raise
        return b"".join(pieces)

    def _refuse(self, path: str, *_: Any, **__: Any) -> None:
        place = f"tow://{self._strip_protocol(path)}"
        raise OSError(errno.EROFS, "tow:// only reads; `tow push` sends files", place)

    # fsspec would take some of these for done without doing anything.
    mkdir = makedirs = rmdir = rm = rm_file = _rm = cp_file = mv = touch = _refuse


class TowFile(AbstractBufferedFile):
    """One file of a job, read piece by piece; as long as it was when it was opened."""

    fs: TowFileSystem
    _reader: ReadAhead | None = None

    def _fetch_range(self, start: int, end: int) -> bytes:
        if self._reader is None:
            self._reader = self.fs.reader(self.path)
        with told_as_os_error(self.path):
            return self._reader.read(start, end)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        super().close()


def _described(path: str, entry: dict[str, Any]) -> dict[str, Any]:
    is_file = entry["kind"] == "file"
    return {
        "name": path,
        "type": TYPES.get(entry["kind"], "other"),
        "size": entry["size"] if is_file else 0,
        "mtime": entry.get("mtime", 0.0),
        "mode": entry.get("mode", 0o700),
    }


@contextmanager
def told_as_os_error(path: str) -> Iterator[None]:
    """What fsspec's users know to handle, with the words of the Engine."""
    try:
        yield
    except TowlineError as error:
        number = NUMBERS.get(error.code, errno.EIO)
        text = "; ".join(filter(None, (error.text, error.hint))) or os.strerror(number)
        raise OSError(number, text, f"tow://{path}") from None
