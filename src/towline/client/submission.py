"""What goes with every submission: where it was made, in which environment, and its key."""

from __future__ import annotations

import os

from towline.errors import UsageError


def new_key() -> str:
    """What tells this submission from every other: sent again, it is still the same job."""
    return os.urandom(12).hex()


def this_folder() -> str:
    """The whole path of the folder we stand in, which may be gone."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise UsageError("this folder does not exist any more", "cd to one that does") from None


def umask() -> int:
    """The permissions that this process withholds from new files."""
    try:
        with open("/proc/self/status", "rb") as status:
            return next(int(line.split()[1], 8) for line in status if line.startswith(b"Umask:"))
    except (OSError, StopIteration, ValueError):
        # Only by changing it, for a moment in which another thread may make a file.
        mask = os.umask(0o077)
        os.umask(mask)
        return mask


def environment() -> dict[str, str]:
    """The environment of this process, without values that are not text."""
    return {name: value for name, value in os.environ.items() if _is_text(name + value)}


def _is_text(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
