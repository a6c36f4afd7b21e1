"""`tow push`: files from here to a job."""

from __future__ import annotations

import os
import stat

from towline.cli.cwd import whole_path
from towline.cli.options import Parser
from towline.cli.patience import patience
from towline.cli.session import domain_in, open_session
from towline.cli.terminal import note, say, say_json
from towline.cli.terminal.travel import Travel
from towline.cli.terminal.wording import count, size
from towline.client.names import job_number
from towline.client.transport import PIECE, FrameUpload
from towline.errors import NotFound, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator
    from typing import Any, BinaryIO

    from towline.client.data import DataFolder

EXAMPLES = """
tow push 12 config.yaml
tow push 12 data/ inputs
tow @team push home images/ sets/images
"""


def parser() -> Parser:
    parser = Parser(
        "push",
        "[--json] JOB LOCAL [PATH]",
        "Copy a file or a whole folder from here into the folder of a job, also while it runs.",
        EXAMPLES,
    )
    parser.add_job()
    parser.add_argument("local", metavar="LOCAL", help="a file or folder here")
    parser.add_argument("path", nargs="?", metavar="PATH", help="where to (default: same name)")
    parser.add_json()
    return parser


def main(args: list[str]) -> int:
    options = parser().read(args)
    if not os.path.exists(options.local):
        raise NotFound(f"there is no file or folder {options.local} here")
    session = open_session()
    if (data := domain_in(session, options.job)) is not None:
        return _push_data(data, options)
    job = job_number(session, options.job)
    base = _target(options.local, options.path)
    sending = Push(list(_files(options.local, base)))
    try:
        with patience(session, job):
            session.open("POST", f"/v1/jobs/{job}/store", FrameUpload(sending.frames)).close()
    finally:
        sending.travel.end()
    sent, total = sending.sent, sending.bytes
    if options.json:
        say_json({"sent": sent, "bytes": total})
    else:
        say(f"{count(len(sent), 'file')}, {size(total)} to job {job}")
    return 0


def _push_data(data: DataFolder, options: Namespace) -> int:
    from towline.cli.data.moving import DataPush

    push = DataPush(data)
    push.run(options.local, options.path)
    if options.json:
        say_json({"sent": push.sent, "bytes": push.bytes})
    else:
        say(f"{count(len(push.sent), 'file')}, {size(push.bytes)} to {data.domain}")
    return 0


def _target(local: str, path: str | None) -> str:
    name = os.path.basename(whole_path(local))
    if path is None:
        return name
    return path + name if path.endswith("/") else path


def _files(local: str, base: str) -> Iterator[tuple[str, str]]:
    """Every file to send and its path over there."""
    if not os.path.isdir(local):
        yield local, base
        return
    for folder, _, names in os.walk(local):
        inner = os.path.relpath(folder, local)
        for name in sorted(names):
            path = name if inner == "." else f"{inner}/{name}"
            yield os.path.join(folder, name), path if base == "." else f"{base}/{path}"


class Push:
    """One `tow push`: what it sent."""

    def __init__(self, files: list[tuple[str, str]]) -> None:
        self.files = files
        self.sent: list[str] = []
        self.bytes = 0
        self.travel = Travel(f"pushing {count(len(files), 'file')}")

    def frames(self) -> Iterator[tuple[dict[str, Any], bytes]]:
        """All files, piece by piece; from the beginning whenever it is called."""
        self.sent, self.bytes = [], 0
        total = sum(map(_size, self.files))
        for local, path in self.files:
            with _opened(local) as source:
                found = os.fstat(source.fileno())
                if not stat.S_ISREG(found.st_mode):
                    note(f"{local} is not a plain file: left out")
                    continue
                mode = stat.S_IMODE(found.st_mode) & 0o777
                for offset, piece, last in _pieces(source):
                    yield {"path": path, "mode": mode, "offset": offset, "last": last}, piece
                    self.bytes += len(piece)
                    self.travel.at(self.bytes, total)
            self.sent.append(path)


def _size(file: tuple[str, str]) -> int:
    try:
        return os.path.getsize(file[0])
    except OSError:
        return 0  # opening it says why


def _pieces(source: BinaryIO) -> Iterator[tuple[int, bytes, bool]]:
    """The contents of a file; the last piece is known as such, and may be empty."""
    offset, piece = 0, source.read(PIECE)
    while True:
        following = source.read(PIECE) if len(piece) == PIECE else b""
        yield offset, piece, not following
        if not following:
            return
        offset, piece = offset + len(piece), following


def _opened(local: str) -> BinaryIO:
    try:
        # A pipe would otherwise be waited for before it could be recognised.
        return open(os.open(local, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except OSError as error:
        raise UsageError(f"cannot read {local}: {error.strerror}") from None
