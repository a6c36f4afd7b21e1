"""`tow mount`: a job's folder as a folder here."""

from __future__ import annotations

import os

from towline.cli.cwd import whole_path
from towline.cli.options import Parser
from towline.cli.session import domain_in, open_session
from towline.cli.terminal import say, say_json
from towline.client.names import job_number
from towline.client.transport import with_query
from towline.errors import TowlineError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from towline.client.session import Session

DEVICE = "/dev/fuse"
INSTALL = "Debian, Ubuntu: sudo apt install libfuse2 fuse3; Fedora: sudo dnf install fuse fuse-libs"
READY = b"ready"
EXAMPLES = """
tow mount 12
tow mount last /tmp/run
tow mount -d 12
tow @team mount home
"""


def parser() -> Parser:
    parser = Parser(
        "mount",
        "[options] JOB [FOLDER]",
        "Show the folder of a job as a folder here, also while it runs, until Ctrl-C. Nothing in\n"
        "it can be changed from here, and of a file only what is read travels. The data of a team\n"
        "(tow @team mount home) can be changed, where you may: a file is sent when it is closed.",
        EXAMPLES,
    )
    parser.add_job()
    parser.add_argument(
        "folder", nargs="?", metavar="FOLDER", help="a new or empty folder (job-NUMBER)"
    )
    parser.add_argument("-d", "--detach", action="store_true", help="return; it stays mounted")
    parser.add_json()
    return parser


def main(args: list[str]) -> int:
    options = parser().read(args)
    check_fuse("tow mount")
    session = open_session()
    shown = _shown(session, options.job)
    named = options.folder or shown.folder
    folder = whole_path(named)
    made = _prepare(folder)

    def tell() -> None:
        if options.json:
            say_json({shown.kind: shown.name, "folder": folder})
        else:
            until = "" if options.detach else "Ctrl-C, or "
            say(f"{shown.title} is shown in {named} until {until}fusermount -u {_quoted(named)}")

    if options.detach:
        _leave_behind(shown, folder, made)
        tell()
    else:
        _show(shown, folder, made, tell)
    return 0


class Shown:
    """What is mounted: its kind and name for programs, its title and folder for people."""

    def __init__(
        self, kind: str, name: int | str, serve: Callable[[str, Callable[[], None]], None]
    ) -> None:
        self.kind = kind
        self.name = name
        self.serve = serve
        self.title = f"job {name}" if kind == "job" else f"{name}"
        self.folder = f"job-{name}" if kind == "job" else f"{name}".replace(":", "-")


def _shown(session: Session, typed: str) -> Shown:
    """What is meant; whatever is wrong with it is said while there is somebody to read it."""
    if (data := domain_in(session, typed)) is not None:
        data.stat("")

        def serve_data(folder: str, ready: Callable[[], None]) -> None:
            from towline.cli.data.mounted import serve_domain

            serve_domain(data, folder, ready, writable=data.domain != "shared")

        return Shown("domain", data.domain, serve_data)
    job = job_number(session, typed)
    session.call("GET", with_query(f"/v1/jobs/{job}/stat", path=""))

    def serve_job(folder: str, ready: Callable[[], None]) -> None:
        from towline.cli.mounted import serve

        serve(job, folder, ready, session)

    return Shown("job", job, serve_job)


def check_fuse(program: str) -> None:
    """Refuse, and say what is missing, where nothing can be mounted."""
    try:
        from fuse import FUSE  # noqa: F401
    except ImportError:
        hint = "install it where towline is installed: pip install fusepy"
        raise UsageError(f"{program} needs the Python package fusepy", hint) from None
    except OSError:
        raise UsageError(f"{program} needs libfuse 2, which is not here", INSTALL) from None
    from shutil import which

    if not os.path.exists(DEVICE):
        raise UsageError(f"this machine has no {DEVICE}", "load it: sudo modprobe fuse")
    if not which("fusermount"):
        raise UsageError(f"{program} needs the program fusermount", INSTALL)


def _prepare(folder: str) -> bool:
    """Make sure of an empty folder; True when it had to be made."""
    try:
        os.makedirs(folder, 0o700)
        return True
    except FileExistsError:
        pass
    except OSError as error:
        raise UsageError(f"cannot make the folder {folder}: {error.strerror}") from None
    hint = "give another one: tow mount JOB FOLDER"
    try:
        taken = os.path.ismount(folder) or bool(os.listdir(folder))
    except NotADirectoryError:
        raise UsageError(f"{folder} is not a folder", hint) from None
    except OSError as error:
        unmount = f"if an earlier mount broke: fusermount -u {_quoted(folder)}"
        raise UsageError(f"cannot use {folder}: {error.strerror}", unmount) from None
    if taken:
        raise UsageError(f"{folder} is in use or not empty", hint)
    return False


def _show(shown: Shown, folder: str, made: bool, ready: Callable[[], None]) -> None:
    """Serve the folder until it is unmounted."""
    from tempfile import TemporaryFile

    before = os.dup(2)
    # libfuse and fusermount write to stderr, also when all is well; it counts only when it is not.
    with TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            shown.serve(folder, ready)
        except RuntimeError:
            said.seek(0)
            reason = said.read().decode("utf-8", "replace").strip() or "libfuse does not say why"
            raise TowlineError(f"cannot mount {folder}", reason) from None
        finally:
            os.dup2(before, 2)
            os.close(before)
            if made:
                _remove(folder)


def _leave_behind(shown: Shown, folder: str, made: bool) -> None:
    """Serve the folder in a process of its own; returns once it is mounted."""
    reading, writing = os.pipe()
    if not os.fork():
        _serve_apart(shown, folder, made, writing)
    os.close(writing)
    with open(reading, "rb") as pipe:
        said = pipe.read()
    if said != READY:
        raise TowlineError(f"cannot mount {folder}", said.decode("utf-8", "replace"))


def _serve_apart(shown: Shown, folder: str, made: bool, pipe: int) -> NoReturn:
    """What the process that stays behind does; tells over `pipe` how it went."""

    def ready() -> None:
        os.write(pipe, READY)
        os.close(pipe)

    try:
        _cut_loose()
        _show(shown, folder, made, ready)
    except TowlineError as error:
        os.write(pipe, error.hint.encode())
    finally:
        os._exit(0)


def _cut_loose() -> None:
    """Away from the terminal and whoever reads what we write."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)
    os.close(nothing)


def _remove(folder: str) -> None:
    try:
        os.rmdir(folder)
    except OSError:
        pass  # Somebody uses it, or it is still mounted: then it is not ours to remove.


def _quoted(path: str) -> str:
    from shlex import quote

    return quote(path)
