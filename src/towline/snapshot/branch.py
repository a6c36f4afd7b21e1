"""What a git repository calls the submitted state: its commit, or a branch that records it.

A dirty tree is written as a commit on a branch of its own, through a temporary index: the working
copy, the index, HEAD and every other branch stay as they are, even if we are killed in between.
"""

import os
import re
import shutil
import tempfile
import time

from msgspec import Struct

from towline.errors import UsageError
from towline.snapshot.git import RESULTS, find_root, run

PREFIX = "towline/dirty/"
_LONGEST_SLUG = 40
#: Untracked folders that no job is sent.
_STAYS = frozenset({RESULTS, "__pycache__"})


class Recorded(Struct, frozen=True, omit_defaults=True):
    """Where the submitted version is in git; all empty outside a repository."""

    root: str = ""
    #: The commit it is: HEAD of a clean tree, the branch's of a dirty one; "" in an empty one.
    commit: str = ""
    #: Set for a dirty tree.
    branch: str = ""
    #: What differs from HEAD, as (letter, path): A added, M modified, D deleted, ? untracked ...
    changed: tuple[tuple[str, str], ...] = ()


def record(folder: str, title: str, now: float) -> Recorded:
    """Name the present state of the repository that `folder` is in."""
    root = find_root(os.path.realpath(folder))
    if not root:
        return Recorded()
    head = _git(root, "rev-parse", "--verify", "-q", "HEAD^{commit}", may_fail=True).strip()
    changed = _changes(root)
    if not changed:
        return Recorded(root, head)
    try:
        commit = _commit(root, head, changed, title)
        branch = _free_name(root, title, now)
        quiet = ("-c", "core.logAllRefUpdates=false", "-c", f"core.hooksPath={os.devnull}")
        _git(root, *quiet, "update-ref", f"refs/heads/{branch}", commit, "")
    except UsageError:
        # A repository one may only read: the job runs all the same, its own copy is complete.
        return Recorded(root, head, "", tuple(changed))
    return Recorded(root, commit, branch, tuple(changed))


def branches(folder: str) -> list[tuple[str, str, float, str]]:
    """The recorded branches of a repository: name, commit, time, title; oldest first."""
    root = find_root(os.path.realpath(folder))
    if not root:
        return []
    form = "%(refname:short)%00%(objectname)%00%(committerdate:unix)%00%(contents:subject)"
    text = _git(
        root, "for-each-ref", "--sort=committerdate", f"--format={form}", f"refs/heads/{PREFIX}"
    )
    rows = [line.split("\0") for line in text.splitlines()]
    return [(name, commit, float(at), subject) for name, commit, at, subject in rows]


def forget(folder: str, names: list[str]) -> None:
    """Remove recorded branches; never any other branch."""
    root = find_root(os.path.realpath(folder))
    for name in names:
        if not name.startswith(PREFIX):
            raise UsageError(f"{name} is not a branch that Towline made")
        _git(root, "update-ref", "-d", f"refs/heads/{name}")


def _changes(root: str) -> list[tuple[str, str]]:
    """What differs from HEAD, one entry per path."""
    text = _git(
        root,
        "status",
        "--porcelain=v1",
        "-z",
        "--untracked-files=all",
        "--no-renames",
        "--ignore-submodules=none",
    )
    found = []
    for entry in text.split("\0"):
        if entry:
            letters, path = entry[:2], entry[3:]
            if letters == "??" and not _STAYS.isdisjoint(path.split("/")):
                continue
            found.append((letters.strip()[:1] or "M", path))
    return found


def _commit(root: str, head: str, changed: list[tuple[str, str]], title: str) -> str:
    """A commit of HEAD with all changes; its objects are all that is written."""
    with tempfile.TemporaryDirectory(prefix="towline-") as beside:
        index = os.path.join(beside, "index")
        present = os.path.join(root, _git(root, "rev-parse", "--git-path", "index").strip())
        if os.path.exists(present):
            shutil.copyfile(present, index)
        paths = "".join(f"{path.rstrip('/')}\0" for _, path in changed)
        # Through the filters of .gitattributes, as `git add` would: LFS files become pointers here.
        _git(
            root,
            "update-index",
            "--add",
            "--remove",
            "-z",
            "--stdin",
            index=index,
            given=os.fsencode(paths),
        )
        tree = _git(root, "write-tree", index=index).strip()
    parents = ("-p", head) if head else ()
    return _git(root, "commit-tree", tree, *parents, "-m", title or "a dirty tree").strip()


def _free_name(root: str, title: str, now: float) -> str:
    slug = re.sub(r"[^A-Za-z0-9_-]+", "-", title).strip("-")[:_LONGEST_SLUG].strip("-") or "job"
    name = f"{PREFIX}{slug}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(now))}"
    taken = {found for found, *_ in branches(root)}
    return next(
        candidate
        for candidate in (name, *(f"{name}-{number}" for number in range(2, 100_000)))
        if candidate not in taken
    )


def _git(
    root: str, *arguments: str, index: str = "", given: bytes = b"", may_fail: bool = False
) -> str:
    if "commit-tree" in arguments and run(root, "var", "GIT_COMMITTER_IDENT").returncode:
        # A machine without a git identity can still record.
        arguments = ("-c", "user.name=Towline", "-c", "user.email=towline@localhost", *arguments)
    done = run(root, *arguments, index=index, given=given)
    if done.returncode and not may_fail:
        message = done.stderr.decode(errors="replace").strip() or "it says nothing"
        raise UsageError(
            f"git cannot record the state of {root}: {message.splitlines()[-1]}",
            f"`git -C {root} status` shows more; mend that and try again.",
        )
    return os.fsdecode(done.stdout)
