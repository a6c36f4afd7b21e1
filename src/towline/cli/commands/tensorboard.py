"""`tow tensorboard`: several jobs in one TensorBoard, on this machine."""

from __future__ import annotations

import os
import signal
import time

from towline.cli.event_files import EventFiles
from towline.cli.options import Parser
from towline.cli.session import open_session
from towline.cli.terminal import note, printable, say, say_json
from towline.client.names import job_numbers
from towline.errors import TowlineError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from subprocess import Popen
    from types import FrameType
    from typing import NoReturn

    from towline.client.session import Session

FIRST_PORT, PORTS = 6006, 100
FETCH_EVERY_S = 2.0
LOOK_EVERY_S = 0.1
NOT_INSTALLED = 69
PR_SET_PDEATHSIG = 1
EXAMPLES = """
tow tensorboard 12 13 14
tow tensorboard 12-20 --logdir runs
"""


def parser() -> Parser:
    parser = Parser(
        "tensorboard",
        "[options] JOB...",
        "Show what jobs wrote so far in one TensorBoard on this machine, until Ctrl-C. What they\n"
        "go on to write is fetched every two seconds.",
        EXAMPLES,
    )
    parser.add_argument("jobs", nargs="+", metavar="JOB", help="numbers, titles, or e.g. 12-20")
    parser.add_argument(
        "--logdir", metavar="PATH", default="", help="only what is below this, in each job's folder"
    )
    parser.add_argument(
        "--port", metavar="N", type=int, default=0, help="the port here (6006 or next)"
    )
    parser.add_json()
    return parser


def main(args: list[str]) -> int:
    options = parser().read(args)
    session = open_session()
    jobs = job_numbers(session, options.jobs)
    port = free_port(options.port)

    def say_where(url: str) -> None:
        if options.json:
            say_json({"url": url, "jobs": jobs})
            return
        say(url)
        named = ", ".join(map(str, jobs[:10])) + (" …" if len(jobs) > 10 else "")
        note(f"of job{'s' if len(jobs) > 1 else ''} {named}; Ctrl-C ends it")

    show_until_left(session, jobs, port, say_where, options.logdir.strip("/"))
    return 0


def show_until_left(
    session: Session,
    jobs: list[int],
    port: int,
    say_where: Callable[[str], None],
    logdir: str = "",
    alone: bool = False,
) -> None:
    """Have a TensorBoard on a port here, until Ctrl-C or the end of the terminal.

    `alone`: the runs of the one job have the names that its own TensorBoard gave them.
    """
    import tempfile

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    with tempfile.TemporaryDirectory(prefix="tow-tensorboard-") as root:
        shown = [EventFiles(session, job, logdir, root) for job in jobs]
        log = os.path.join(root, ".log")
        board = start(shown[0].own_place() if alone else root, port, log)
        try:
            watch(board, shown, port, log, say_where)
        except KeyboardInterrupt:
            return
        finally:
            board.terminate()
            board.wait()


def watch(
    board: Popen[bytes],
    shown: list[EventFiles],
    port: int,
    log: str,
    say_where: Callable[[str], None],
) -> NoReturn:
    """Fetch again and again; say where to look as soon as there is something to see."""
    said = False
    fetch_at = 0.0
    while board.poll() is None:
        if not said and is_open(port):
            said = True
            say_where(f"http://localhost:{port}")
        if time.monotonic() >= fetch_at:
            for one in shown:
                one.fetch()
            fetch_at = time.monotonic() + FETCH_EVERY_S
        time.sleep(LOOK_EVERY_S)
    if board.returncode == NOT_INSTALLED:
        raise TowlineError("TensorBoard is not installed here", "pip install tensorboard")
    raise TowlineError(f"TensorBoard ended by itself: {last_line(log)}", "start it again")


def last_line(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = [printable(line.strip()) for line in file if line.strip()]
    return lines[-1] if lines else ""


def start(root: str, port: int, log: str) -> Popen[bytes]:
    """TensorBoard from this environment; what it prints matters only when it fails."""
    import subprocess

    from towline.model.service import Service, argv_of

    with open(log, "wb") as sink:
        return subprocess.Popen(
            argv_of(Service("tensorboard", logdir=root)),
            env={**os.environ, "PORT": str(port)},
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
            preexec_fn=_ends_with_us(),
        )


def _ends_with_us() -> Callable[[], object] | None:
    """For a program that we start: let it end when we are gone, even if we are killed."""
    import ctypes
    import sys

    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def free_port(wanted: int) -> int:
    import socket

    ports = [wanted] if wanted else range(FIRST_PORT, FIRST_PORT + PORTS)
    for port in ports:
        try:
            with socket.socket() as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind(("127.0.0.1", port))
                return port
        except (OSError, OverflowError):
            continue
    raise UsageError(f"port {wanted or FIRST_PORT} is not free here", "choose another with --port")


def is_open(port: int) -> bool:
    import socket

    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True


def _leave(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
