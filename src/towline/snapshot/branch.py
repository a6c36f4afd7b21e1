"""What a git repository calls the submitted state: its commit, or a record of a dirty tree.

A dirty tree is written as a commit of its own, through a temporary index: the working copy, the
index, HEAD and every branch stay as they are, even if we are killed in between. What keeps the
commit is a ref beside the branches, so that `git branch` and `git push --all` do not see it.
"""

import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator

from msgspec import Struct

from towline.errors import UsageError
from towline.snapshot.git import RESULTS, find_root, run

PREFIX = "towline/dirty/"
#: Where records are: git finds `towline/dirty/...` in both, and lists only the second as branches.
_BESIDE, _BRANCHES = "refs/", "refs/heads/"
_LONGEST_SLUG = 40
#: How often a name is looked for that another submission may take at the same moment.
_TRIES = 5
#: Untracked folders that no job is sent.
_STAYS = frozenset({RESULTS, "__pycache__"})


class RecordedTree(Struct, frozen=True, omit_defaults=True):
    """Where the submitted version is in git; all empty outside a repository."""

    root: str = ""
    #: The commit it is: HEAD of a clean tree, the record of a dirty one; "" in an empty one.
    commit: str = ""
    #: What git calls the record of a dirty tree.
    branch: str = ""
    #: What differs from HEAD, as (letter, path): A added, M modified, D deleted, ? untracked ...
    changed: tuple[tuple[str, str], ...] = ()


class BranchRecord(Struct, frozen=True):
    """A dirty tree that is kept; `place` says whether git lists it as a branch."""

    place: str
    name: str
    commit: str
    tree: str
    parents: str
    at: float
    title: str


def record(folder: str, title: str, now: float, as_branch: bool = False) -> RecordedTree:
    """Name the present state of the repository that `folder` is in."""
    root = find_root(os.path.realpath(folder))
    if not root:
        return RecordedTree()
    head = _git(root, "rev-parse", "--verify", "-q", "HEAD^{commit}", may_fail=True).strip()
    changed = _changes(root)
    if not changed:
        return RecordedTree(root, head)
    try:
        commit, name = _kept(root, head, _tree(root, changed), title, now, as_branch)
    except UsageError:
        # A repository one may only read: the job runs all the same, its own copy is complete.
        return RecordedTree(root, head, "", tuple(changed))
    return RecordedTree(root, commit, name, tuple(changed))


def records(folder: str) -> list[BranchRecord]:
    """The dirty trees that a repository keeps, oldest first."""
    root = find_root(os.path.realpath(folder))
    return sorted(_records(root), key=lambda one: (one.at, one.name)) if root else []


def _records(root: str) -> Iterator[BranchRecord]:
    fields = ("refname", "objectname", "tree", "parent", "committerdate:unix", "contents:subject")
    form = "%00".join(f"%({field})" for field in fields)
    places = (f"{_BESIDE}{PREFIX}", f"{_BRANCHES}{PREFIX}")
    for line in _git(root, "for-each-ref", f"--format={form}", *places).splitlines():
        ref, commit, tree, parents, at, subject = line.split("\0")
        place = _BRANCHES if ref.startswith(_BRANCHES) else _BESIDE
        yield BranchRecord(
            place, ref.removeprefix(place), commit, tree, parents, float(at), subject
        )


def forget(folder: str, names: list[str]) -> None:
    """Remove recorded trees; never any other ref."""
    root = find_root(os.path.realpath(folder))
    for name in names:
        if not name.startswith(PREFIX):
            raise UsageError(f"{name} is not a record that Towline made")
        for place in (_BESIDE, _BRANCHES):
            _git(root, "update-ref", "-d", f"{place}{name}")


def _kept(
    root: str, head: str, tree: str, title: str, now: float, as_branch: bool, tries: int = _TRIES
) -> tuple[str, str]:
    """The commit and the name under which a tree is kept, which the same tree has again."""
    place = _BRANCHES if as_branch else _BESIDE
    known = list(_records(root))
    for one in known:
        if (one.tree, one.parents) == (tree, head) and (one.place == place or not as_branch):
            return one.commit, one.name
    commit = _commit(root, head, tree, title)
    name = _free_name({one.name for one in known}, title, now)
    quiet = ("-c", "core.logAllRefUpdates=false", "-c", f"core.hooksPath={os.devnull}")
    try:
        _git(root, *quiet, "update-ref", f"{place}{name}", commit, "")
    except UsageError:
        # Another submission may have taken the name, or kept the same tree.
        if tries <= 1:
            raise
        return _kept(root, head, tree, title, now, as_branch, tries - 1)
    return commit, name


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


def _tree(root: str, changed: list[tuple[str, str]]) -> str:
    """HEAD with all changes, as a tree; its objects are all that is written."""
    with tempfile.TemporaryDirectory(prefix="towline-") as beside:
        index = os.path.join(beside, "index")
        present = os.path.join(root, _git(root, "rev-parse", "--git-path", "index").strip())
        if os.path.exists(present):
            # With its time, by which git tells files that were changed right after it was written.
            shutil.copy2(present, index)
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
        return _git(root, "write-tree", index=index).strip()


def _commit(root: str, head: str, tree: str, title: str) -> str:
    parents = ("-p", head) if head else ()
    return _git(root, "commit-tree", tree, *parents, "-m", title or "a dirty tree").strip()


def _free_name(taken: set[str], title: str, now: float) -> str:
    slug = re.sub(r"[^A-Za-z0-9_-]+", "-", title).strip("-")[:_LONGEST_SLUG].strip("-") or "job"
    name = f"{PREFIX}{slug}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(now))}"
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
