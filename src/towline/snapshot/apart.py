"""Folders that `tow checkout` made: where they lie in a project, they are no part of it."""

import os

from towline.snapshot import git

#: In such a folder, where there is no git to be told.
MARK = ".towline-checkout"
_ABOUT = "tow checkout made this folder; jobs leave it out. Remove this file, and it travels.\n"


def set_apart(folder: str, project: str) -> None:
    """Have a folder left out of what travels, if it lies in the folder of a project."""
    root = git.find_root(os.path.dirname(folder))
    if root:
        _exclude(root, os.path.relpath(os.path.realpath(folder), os.path.realpath(root)))
    elif os.path.realpath(folder).startswith(os.path.realpath(project) + os.sep):
        with open(os.path.join(folder, MARK), "w") as file:
            file.write(_ABOUT)


def _exclude(root: str, path: str) -> None:
    """Tell git, in its own list for this clone: no file of the project changes."""
    found = git.run(root, "rev-parse", "--git-path", "info/exclude")
    if found.returncode:
        return
    place = os.path.join(root, os.fsdecode(found.stdout.rstrip(b"\n")))
    line = f"/{git.literal(path)}/\n"
    os.makedirs(os.path.dirname(place), exist_ok=True)
    with open(place, "a+", errors="surrogateescape") as file:
        file.seek(0)
        text = file.read()
        if line not in text.splitlines(keepends=True):
            file.write(line if text.endswith("\n") or not text else f"\n{line}")
