"""Paths as they are seen from the folder in which a command was typed."""

from __future__ import annotations

import os

from towline.cli.terminal import printable
from towline.client.submission import this_folder


def whole_path(path: str) -> str:
    """The path of what was named from this folder."""
    return os.path.normpath(path if os.path.isabs(path) else os.path.join(this_folder(), path))


def short_path(path: str) -> str:
    """A whole path as it is told: from this folder, as long as there is one."""
    try:
        return printable(os.path.relpath(path))
    except FileNotFoundError:
        return printable(path)
