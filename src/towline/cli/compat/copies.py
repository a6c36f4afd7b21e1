"""`--copy-forwards` and `--copy-backwards`: what goes along with a job, and what comes home."""

from __future__ import annotations

import os

from towline.client.submission import this_folder
from towline.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser

#: All of the current folder, which is what is copied when nothing is said.
EVERYTHING = ["."]
RESULTS = "job_results"


def add_copies(parser: ArgumentParser, default: list[str] | None) -> None:
    told = "everything in the current folder" if default else "nothing"
    parser.add_argument(
        "--copy-forwards",
        nargs="*",
        metavar="PATH",
        default=default,
        help=f"files and folders to send along; default: {told}",
    )
    parser.add_argument(
        "--copy-backwards",
        nargs="*",
        metavar="PATH",
        default=default,
        help=f"files and folders to bring home from there; default: {told}",
    )


def forwards(paths: list[str], where: str = "") -> list[str]:
    """Paths to send, as the Engine takes them; each must be here, and below the current folder."""
    found = [_inside(path, "--copy-forwards", where) for path in paths]
    for path in found:
        if not os.path.lexists(path):
            raise UsageError(f"{where}there is no {path} here to be sent", "see --copy-forwards")
    return found


def backwards(paths: list[str], where: str = "") -> list[str]:
    """Paths to bring home; each must lie below the folder in which the job runs."""
    # To the Engine no path at all means everything that changed; the empty path is nothing.
    return [_inside(path, "--copy-backwards", where) for path in paths] or ["/"]


def _inside(path: str, option: str, where: str) -> str:
    """`./a/` and `/the/current/folder/a` -> `a`; what lies outside is refused."""
    here = this_folder()
    normal = os.path.relpath(path, here) if os.path.isabs(path) else os.path.normpath(path)
    if not path or normal.split("/")[0] == ".." or "\0" in path:
        raise UsageError(
            f"{where}{option} {path}: this is not inside the current folder",
            "a job's folder is a copy of the current one; only what is in it can be named",
        )
    return normal


def existing_results(name: str) -> bool:
    """Whether a job of this name has left results here, if only what it printed."""
    place = os.path.join(RESULTS, name)
    return any(os.path.lexists(place + ending) for ending in ("", ".out", ".err"))


def checked_name(name: str, where: str = "") -> str:
    """A job's name, which is the name of a folder in `job_results`."""
    odd = "/" in name or name.startswith(".") or not name.isprintable()
    if odd or not name or len(name.encode(errors="replace")) > 200:
        raise UsageError(
            f"{where}{name!r} cannot be the name of a job",
            "its results go to job_results/<name>: no `/`, and no `.` in front",
        )
    return name
