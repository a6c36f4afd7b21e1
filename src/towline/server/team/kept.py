"""What is kept on a team's server of what jobs made: a folder and outputs for each job."""

import os
import stat
from collections.abc import Generator, Iterator
from typing import BinaryIO

from towline.api.team import MadeFile, MadePiece
from towline.engine.engine import request_of
from towline.errors import NotFound
from towline.model.job import Job
from towline.model.odd_text import original
from towline.snapshot.reading import open_plain

_STREAMS = ("out", "err")
#: What a cut costs at most.
_PIECE = 1 << 18


def made_by(results: str, job: Job) -> list[MadeFile]:
    """The files of a job and its outputs, as the job names them."""
    folder = os.path.join(results, str(job.id))
    found = [
        _described(path, process, stream=stream)
        for process in _processes(job)
        for stream in _STREAMS
        if os.path.isfile(path := _output(folder, process, stream))
    ]
    for process in _processes(job):
        top = os.path.join(folder, process) if process else folder
        found += [_described(path, process, os.path.relpath(path, top)) for path in _below(top)]
    return found


def contents_of(
    results: str, job: Job, first: int, offset: int
) -> Generator[tuple[MadePiece, bytes]]:
    """All of those files, piece by piece, from a byte of one of them on."""
    for index, file in enumerate(made_by(results, job)[first:], first):
        yield from _pieces(results, job, index, file, offset if index == first else 0)


def _pieces(
    results: str, job: Job, index: int, file: MadeFile, offset: int
) -> Iterator[tuple[MadePiece, bytes]]:
    if file["link"]:
        yield {**file, "index": index, "offset": 0, "last": True}, b""
        return
    with open_made(results, job, file["process"], file["name"], file["stream"]) as opened:
        opened.seek(offset)
        piece = opened.read(_PIECE)
        while True:
            following = opened.read(_PIECE) if len(piece) == _PIECE else b""
            head: MadePiece = {**file, "index": index, "offset": offset, "last": not following}
            yield head, piece
            if not following:
                return
            offset += len(piece)
            piece = following


def open_made(results: str, job: Job, process: str, name: str, stream: str) -> BinaryIO:
    """One of them; nothing that leads elsewhere is opened."""
    folder = os.path.join(results, str(job.id))
    if process not in _processes(job) or (stream and stream not in _STREAMS):
        raise _nothing(name or stream)
    top = os.path.join(folder, process) if process else folder
    parts = original(name).split("/")
    if not stream and any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise _nothing(name)
    path = _output(folder, process, stream) if stream else os.path.join(top, *parts)
    if os.path.realpath(os.path.dirname(path)) != os.path.normpath(
        os.path.join(os.path.realpath(results), os.path.relpath(os.path.dirname(path), results))
    ):
        raise _nothing(name)
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise _nothing(name)
        return open(path, "rb", opener=open_plain)
    except OSError:
        raise _nothing(name or stream) from None


def _processes(job: Job) -> list[str]:
    """What the processes of a job are called in its results; a single one has no name."""
    found = list(request_of(job.spec.request).processes())
    if len(found) == 1:
        return [""]
    return [f"{group}.{process}" for group, process, _ in found]


def _output(folder: str, process: str, stream: str) -> str:
    return ".".join(filter(None, (folder, process, stream)))


def _described(path: str, process: str, name: str = "", stream: str = "") -> MadeFile:
    facts = os.lstat(path)
    link = os.readlink(path) if stat.S_ISLNK(facts.st_mode) else ""
    return {
        "process": process,
        "name": name,
        "stream": stream,
        "mode": stat.S_IMODE(facts.st_mode),
        "size": 0 if link else facts.st_size,
        "link": link,
    }


def _below(folder: str) -> Iterator[str]:
    for top, folders, files in os.walk(folder):
        folders.sort()
        links = [name for name in folders if os.path.islink(os.path.join(top, name))]
        yield from (os.path.join(top, name) for name in sorted([*files, *links]))


def _nothing(name: str) -> NotFound:
    return NotFound(f"there is nothing called {name[:100]!r} among what came home of it")
