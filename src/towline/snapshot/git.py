"""Which files of a git repository belong to it. Reads only: index, refs and objects stay as is."""

import os
import re
import subprocess
from collections.abc import Iterable

from towline.errors import UsageError

#: Untracked results of earlier jobs do not travel to the next one.
RESULTS = "job_results"


def find_root(folder: str) -> str:
    """The nearest folder, at or above, that holds a `.git`; "" if none does."""
    while True:
        if os.path.lexists(os.path.join(folder, ".git")):
            return folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return ""
        folder = parent


def list_files(root: str, without: Iterable[str] = ()) -> list[str]:
    """Tracked and untracked-not-ignored paths; those of a nested repository end with `/`."""
    # Exclusions do not touch what is tracked.
    left_out = [f"--exclude={RESULTS}/", "--exclude=__pycache__/"]
    left_out += [f"--exclude=/{literal(path)}" for path in without]
    return _paths(root, "--cached", "--others", "--exclude-standard", *left_out, "--")


def list_ignored(root: str) -> list[str]:
    """Paths that git ignores, file by file."""
    return _paths(root, "--others", "--ignored", "--exclude-standard", "--")


def literal(path: str) -> str:
    """The path as a pattern that matches nothing else."""
    return re.sub(r"([\\*?\[\]! ])", r"\\\1", path)


def is_ignored(root: str, path: str) -> bool:
    return run(root, "check-ignore", "-q", "--", path).returncode == 0


def _paths(root: str, *options: str) -> list[str]:
    done = run(root, "ls-files", "-z", *options)
    if done.returncode:
        message = done.stderr.decode(errors="replace").strip()
        raise UsageError(
            f"git cannot list the files of {root}: {message.splitlines()[0] if message else '?'}",
            f"`git -C {root} status` shows more; mend that and try again.",
        )
    return os.fsdecode(done.stdout).split("\0")[:-1]


def run(
    root: str, *arguments: str, index: str = "", given: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """git in the repository at `root`, on its own index or on another one."""
    # Variables of a surrounding git command (a hook, say) would point it at another repository.
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env.update(GIT_OPTIONAL_LOCKS="0", LC_ALL="C", GIT_TERMINAL_PROMPT="0")
    if index:
        env["GIT_INDEX_FILE"] = index
    try:
        return subprocess.run(
            ["git", "-c", "core.fsmonitor=false", "-C", root, *arguments],
            env=env,
            input=given,
            capture_output=True,
            check=False,
        )
    except FileNotFoundError:
        raise UsageError(
            f"{root} is a git repository, but there is no `git` to list its files", "Install git."
        ) from None
