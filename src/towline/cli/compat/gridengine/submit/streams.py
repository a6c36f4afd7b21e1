"""Where a job's output goes, and what it reads."""

from __future__ import annotations

import os

from towline.cli.compat.gridengine.submit.refusals import rejected

TYPE_CHECKING = False
if TYPE_CHECKING:
    from towline.cli.compat.gridengine.submit.wanted import Wanted


def streams(wanted: Wanted) -> tuple[str, str]:
    """Where output and errors go, with `$JOB_ID` and `$TASK_ID` for what is known later."""
    out = _stream(wanted, wanted.options.get("-o", ""), "o")
    return out, out if wanted.on("-j") else _stream(wanted, wanted.options.get("-e", ""), "e")


def _stream(wanted: Wanted, path: str, letter: str) -> str:
    name = f"{wanted.name}.{letter}$JOB_ID" + (".$TASK_ID" if wanted.tasks else "")
    # A host in front of the path says where it is valid.
    path = path.rpartition(":")[2]
    path = _filled(wanted, path)
    whole = _below(wanted, path) if path else wanted.folder
    folder = not path or path.endswith("/") or os.path.isdir(whole)
    return os.path.join(whole, name) if folder else whole


def _filled(wanted: Wanted, path: str) -> str:
    """With what is known of it now."""
    for token, value in (
        ("$HOME", os.path.expanduser("~")),
        ("$USER", os.environ.get("USER", "")),
        ("$JOB_NAME", wanted.name),
    ):
        path = path.replace(token, value)
    return os.path.expanduser(path)


def _below(wanted: Wanted, path: str) -> str:
    return os.path.join(wanted.folder, os.path.expanduser(path.rpartition(":")[2]))


def check_streams(wanted: Wanted) -> None:
    """A Grid Engine takes a job whose output has no place to go, and sets it aside (`Eqw`)."""
    if not os.path.isdir(wanted.folder):
        return  # which is refused in any case
    for path in dict.fromkeys(streams(wanted)):
        folder = os.path.dirname(path)
        if "$" in folder:
            continue
        wrong = "No such file or directory" if not os.path.isdir(folder) else ""
        if wrong or not os.access(folder, os.W_OK):
            reason = wrong or "Permission denied"
            raise rejected(f'can\'t open output file "{path}": {reason}')


def input_here(wanted: Wanted) -> str:
    """The file that it reads on this very machine; empty for none."""
    path = wanted.options.get("-i", "")
    return _below(wanted, _filled(wanted, path)) if path else ""


def input_there(wanted: Wanted) -> tuple[str, str]:
    """The same where it runs elsewhere, and what of the folder travels for it.

    A file of the folder travels; any other path is one over there.
    """
    path = wanted.options.get("-i", "").rpartition(":")[2]
    if not path:
        return "", ""
    if path.startswith(("~/", "$HOME/")):
        return path, ""
    base = wanted.folder if wanted.travels else wanted.here
    whole = os.path.normpath(os.path.join(base, path))
    inside = os.path.relpath(whole, base)
    if inside.startswith("../"):
        if os.path.isabs(path):
            return path, ""
        raise rejected(
            f"the input file {path} is not in the folder that travels, {base}"
            "\n-cwd or -wd choose another folder; an absolute path is one over there"
        )
    if not any(sign in inside for sign in "$") and not os.path.isfile(whole):
        raise rejected(f'can\'t open input file "{whole}": No such file or directory')
    return inside, inside
