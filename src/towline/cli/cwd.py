"""The folder in which a command was typed, and paths as they are seen from it."""

from __future__ import annotations

import os

from towline.cli.terminal import printable
from towline.errors import UsageError


def this_folder() -> str:
    """Its whole path; a shell may stand in one that is gone."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise UsageError("this folder does not exist any more", "cd to one that does") from None


def whole_path(path: str) -> str:
    """The path of what was named from this folder."""
    return os.path.normpath(path if os.path.isabs(path) else os.path.join(this_folder(), path))


def umask() -> int:
    """The permissions that this shell withholds from new files."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def short_path(path: str) -> str:
    """A whole path as it is told: from this folder, as long as there is one."""
    try:
        return printable(os.path.relpath(path))
    except FileNotFoundError:
        return printable(path)
