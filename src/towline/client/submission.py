"""What goes with every submission: where it was made, in which environment, and its key."""

from __future__ import annotations

import os

from towline.config.paths import home_paths
from towline.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: The cluster that is this very machine, unless somebody configured another one of that name.
_HERE = "local"
_PROJECT_FILE = "towline.toml"


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


def own_environment(cluster: str | None, folder: str) -> dict[str, Any]:
    """What an ask says of the environment: it goes along where the job certainly stays here.

    Where that is not certain, the Engine is left to ask for it: no secret of this terminal leaves
    it for a job that runs elsewhere.
    """
    if _stays_here(cluster, folder):
        return {"environ": environment()}
    return {"environ_later": True}


def add_environment(body: Any) -> bool:
    """Add the environment to the asks that go without; False if there are none."""
    asks = [body, body.get("base"), *body.get("jobs", [])] if isinstance(body, dict) else []
    without = [ask for ask in asks if ask and ask.pop("environ_later", False)]
    for ask in without:
        ask["environ"] = environment()
    return bool(without)


def _stays_here(cluster: str | None, folder: str) -> bool:
    """Whether no file that may say otherwise mentions this; none is parsed, which takes long."""
    if cluster not in (None, _HERE):
        return False
    user = _text_of(home_paths().config_file)
    if user is None or b"\\" in user or _HERE.encode() in user:
        return False
    if cluster is not None:
        return True  # a project cannot make it another one
    return not any(b"default_cluster" in text for text in (user, *_projects(folder)))


def _projects(folder: str) -> list[bytes]:
    """What the project files in a folder and above it say."""
    found: list[bytes] = []
    while True:
        path = os.path.join(folder, _PROJECT_FILE)
        if os.path.lexists(path):
            # What cannot be read may say anything.
            found.append(_text_of(path) or b"default_cluster")
        above = os.path.dirname(folder)
        if above == folder:
            return found
        folder = above


def _text_of(file: str) -> bytes | None:
    """Nothing, where there is no such file; None where it cannot be read."""
    try:
        with open(file, "rb") as opened:
            return opened.read()
    except FileNotFoundError:
        return b""
    except OSError:
        return None


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
