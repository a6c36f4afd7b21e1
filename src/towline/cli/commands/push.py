"""`tow push`: files from here to a job."""

from __future__ import annotations

import os
import stat

from towline.cli.client import Upload, with_query
from towline.cli.engine import Engine
from towline.cli.here import whole_path
from towline.cli.jobs import job_number
from towline.cli.options import Parser
from towline.cli.terminal import note, say, say_json
from towline.cli.wording import count, size
from towline.errors import NotFound, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = """
tow push 12 config.yaml
tow push 12 data/ inputs
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
    engine = Engine()
    job = job_number(engine, options.job)
    base = _target(options.local, options.path)
    sent, total = [], 0
    for local, path in _files(options.local, base):
        total += _send(engine, job, local, path)
        sent.append(path)
    if options.json:
        say_json({"sent": sent, "bytes": total})
    else:
        say(f"{count(len(sent), 'file')}, {size(total)} to job {job}")
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


def _send(engine: Engine, job: int, local: str, path: str) -> int:
    try:
        # A pipe would otherwise be waited for before it could be recognised.
        source = open(os.open(local, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except OSError as error:
        raise UsageError(f"cannot read {local}: {error.strerror}") from None
    with source:
        found = os.fstat(source.fileno())
        if not stat.S_ISREG(found.st_mode):
            note(f"{local} is not a plain file: left out")
            return 0
        mode = f"{stat.S_IMODE(found.st_mode) & 0o777:04o}"
        target = with_query(f"/v1/jobs/{job}/file", path=path, mode=mode)
        engine.open("PUT", target, Upload(source, found.st_size)).close()
        return found.st_size
