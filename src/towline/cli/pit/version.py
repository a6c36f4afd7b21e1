"""Which version of a folder travels: what git knows of it, as `pit run` tells it."""

from __future__ import annotations

import os
import re
import subprocess

from towline.cli.pit.files import CONNECT, USER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

#: Longer files are not read to count their lines.
_LONGEST = 10_000_000
NONE = "none"


class Version:
    """The commit that others can get, and how much differs from it."""

    def __init__(self, remote: str, url: str, commit: str, lines: int) -> None:
        self.remote = remote
        self.url = url
        self.commit = commit
        #: Lines that were added or removed since, in files that git does not know yet, too.
        self.lines = lines

    @property
    def shown(self) -> str:
        return f"{self.remote} <{self.url}>" if self.url else self.remote

    @property
    def origin(self) -> str:
        """What `pit show` says of the job."""
        if self.commit == NONE:
            return "Folder"
        source = f" from {self.url}" if self.url else ""
        more = f" with {self.lines} LoC diff" if self.lines else ""
        return f"Git commit {self.commit}{source}{more}"


def version_here() -> Version:
    """That of this folder; one that git knows nothing of travels as well."""
    upstream = _git("rev-parse", "--abbrev-ref", "--symbolic-full-name", "@{upstream}")
    if not upstream or upstream.startswith("@"):
        known = (name for name in ("origin/master", "origin/main") if _commit(name))
        upstream = next(known, "")
    commit = _commit(upstream) if upstream else _commit("HEAD")
    if not commit:
        return Version(NONE, "", NONE, 0)
    remote = _remote_of(upstream) or _git("remote").split("\n")[0]
    url = without_credentials(_git("remote", "get-url", "--push", remote)) if remote else ""
    return Version(remote or NONE, url, commit, _differing(commit))


def keep_token_out() -> None:
    """Let git ignore who one is, here alone: nobody commits it, and no record has it."""
    if not os.path.exists(USER) or _git("check-ignore", USER):
        return
    if listed := _git("rev-parse", "--git-path", "info/exclude"):
        try:
            os.makedirs(os.path.dirname(listed), exist_ok=True)
            with open(listed, "a", encoding="utf-8") as file:
                file.write(f"\n{USER}\n")
        except OSError:
            pass  # It does not travel in any case.


def without_credentials(url: str) -> str:
    """An address as it may be shown; a name and password in it are nobody's business."""
    url = url.replace("git@github.com:", "https://github.com/", 1)
    return re.sub(r"//[^/@]*@", "//", url)


def _remote_of(upstream: str) -> str:
    remotes = _git("remote").split("\n")
    return next((name for name in remotes if name and upstream.startswith(f"{name}/")), "")


def _commit(name: str) -> str:
    return _git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")


def _differing(commit: str) -> int:
    changed = sum_of_changes(_git("diff", "--numstat", commit, "--").split("\n"))
    new = _git("ls-files", "-z", "--others", "--exclude-standard", "--full-name").split("\0")
    top = _git("rev-parse", "--show-toplevel")
    theirs = [name for name in new if name and name.rpartition("/")[2] not in (CONNECT, USER)]
    return changed + sum(_lines_in(f"{top}/{name}") for name in theirs)


def sum_of_changes(rows: Sequence[str]) -> int:
    """Of `git diff --numstat`: lines added and removed; of binaries nobody counts them."""
    numbers = [word for row in rows for word in row.split("\t")[:2]]
    return sum(int(word) for word in numbers if word.isdecimal())


def _lines_in(path: str) -> int:
    try:
        with open(path, "rb") as file:
            text = file.read(_LONGEST + 1)
    except OSError:
        return 0
    if len(text) > _LONGEST or b"\0" in text:
        return 0
    return text.count(b"\n") + (not text.endswith(b"\n") and bool(text))


def _git(*words: str) -> str:
    """What git answers; nothing where it knows nothing, or is not installed."""
    try:
        done = subprocess.run(
            ["git", *words], stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
    except OSError:
        return ""
    return done.stdout.decode("utf-8", "surrogateescape").strip("\n") if not done.returncode else ""
