"""The submitted version can be named, compared and brought back; the repository stays as it was."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from towline.config.settings import SnapshotSettings
from towline.errors import UsageError
from towline.snapshot import branch
from towline.snapshot.blobs import BlobStore
from towline.snapshot.branch import forget, record, records
from towline.snapshot.compare import changes, unified
from towline.snapshot.restore import restore
from towline.snapshot.take import HashCache, Snapshot, take_snapshot

NOW = 1_800_000_000.0


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = tmp_path / "a repo"
    root.mkdir()
    git(root, "init", "-q")
    git(root, "config", "user.name", "Somebody")
    git(root, "config", "user.email", "somebody@example.org")
    (root / "a.txt").write_text("one\n")
    (root / "gone.txt").write_text("gone\n")
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    return root


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return BlobStore(str(tmp_path / "blobs"))


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout


def make_dirty(root: Path) -> None:
    (root / "a.txt").write_text("two\n")
    (root / "gone.txt").unlink()
    (root / "a new\nfile ü").write_bytes(b"\0\1\2")
    (root / "staged.txt").write_text("staged\n")
    git(root, "add", "staged.txt")


def state_of(root: Path) -> tuple[object, ...]:
    """All that must not change: what git says, its index, HEAD and its log."""
    inside = root / ".git"
    return (
        git(root, "status", "--porcelain"),
        git(root, "stash", "list"),
        git(root, "rev-parse", "HEAD"),
        git(root, "symbolic-ref", "HEAD"),
        (inside / "index").read_bytes(),
        (inside / "logs" / "HEAD").read_bytes(),
    )


def snap(folder: Path, blobs: BlobStore) -> Snapshot:
    return take_snapshot(str(folder), SnapshotSettings(), HashCache(), blobs)


def test_a_clean_tree_is_its_commit(repo: Path) -> None:
    recorded = record(str(repo), "a job", NOW)
    assert (recorded.commit, recorded.branch) == (git(repo, "rev-parse", "HEAD").strip(), "")
    assert records(str(repo)) == []


def test_a_dirty_tree_is_recorded_beside_the_branches_and_nothing_else_changes(repo: Path) -> None:
    make_dirty(repo)
    before = state_of(repo)
    recorded = record(str(repo), "python train.py --lr 0.1", NOW)
    assert state_of(repo) == before
    assert recorded.branch.startswith("towline/dirty/python-train-py---lr-0-1-")
    assert set(recorded.changed) == {
        ("M", "a.txt"),
        ("D", "gone.txt"),
        ("A", "staged.txt"),
        ("?", "a new\nfile ü"),
    }
    names = git(repo, "ls-tree", "-r", "-z", "--name-only", recorded.branch).split("\0")[:-1]
    assert sorted(names) == ["a new\nfile ü", "a.txt", "staged.txt"]
    assert git(repo, "show", f"{recorded.branch}:a.txt") == "two\n"
    assert git(repo, "rev-parse", f"{recorded.branch}^") == git(repo, "rev-parse", "HEAD")
    assert "towline" not in git(repo, "branch", "--all")
    remote = repo.parent / "remote"
    git(repo.parent, "init", "-q", "--bare", str(remote))
    git(repo, "push", "-q", "--all", str(remote))
    assert "towline" not in git(remote, "for-each-ref")


def test_change_in_the_second_of_the_commit_is_recorded(repo: Path) -> None:
    file, index = repo / "a.txt", repo / ".git" / "index"
    git(repo, "config", "core.trustctime", "false")
    then = 1_700_000_000
    os.utime(file, (then, then))
    git(repo, "update-index", "--refresh")
    file.write_text("two\n")
    for path in (file, index):
        os.utime(path, (then, then))
    recorded = record(str(repo), "x", NOW)
    assert recorded.changed == (("M", "a.txt"),)
    assert git(repo, "show", f"{recorded.branch}:a.txt") == "two\n"


def test_same_dirty_tree_again_has_the_same_record(repo: Path) -> None:
    make_dirty(repo)
    first = record(str(repo), "python a.py", NOW)
    assert record(str(repo), "python b.py", NOW + 60) == first
    assert [one.name for one in records(str(repo))] == [first.branch]
    # Of another commit it is another version.
    git(repo, "commit", "-q", "--allow-empty", "-m", "next")
    assert record(str(repo), "python a.py", NOW + 120).branch != first.branch


def test_branch_is_made_where_it_is_asked_for(repo: Path) -> None:
    make_dirty(repo)
    beside = record(str(repo), "x", NOW)
    made = record(str(repo), "x", NOW + 1, as_branch=True)
    assert made.branch != beside.branch
    assert git(repo, "branch", "--list", "towline/*", "--format=%(refname:short)").split() == [
        made.branch
    ]
    assert record(str(repo), "x", NOW + 2, as_branch=True) == made
    assert len(records(str(repo))) == 2


def test_branches_of_earlier_versions_are_known_and_forgotten(repo: Path) -> None:
    make_dirty(repo)
    old = record(str(repo), "x", NOW, as_branch=True)
    assert record(str(repo), "y", NOW) == old
    forget(str(repo), [old.branch])
    assert records(str(repo)) == []


def test_name_that_another_submission_took_meanwhile_is_not_used_twice(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_dirty(repo)
    seen: list[str] = []
    look = branch._records

    def meanwhile(root: str) -> Iterator[branch.BranchRecord]:
        found = list(look(root))
        if not seen:
            seen.append(git(repo, "rev-parse", "HEAD").strip())
            stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(NOW))
            git(repo, "update-ref", f"refs/towline/dirty/x-{stamp}", seen[0])
        return iter(found)

    monkeypatch.setattr(branch, "_records", meanwhile)
    recorded = record(str(repo), "x", NOW)
    assert recorded.branch.endswith("-2")
    assert recorded.commit == git(repo, "rev-parse", recorded.branch).strip() != seen[0]


def test_two_dirty_states_in_one_second_get_two_records(repo: Path) -> None:
    make_dirty(repo)
    first = record(str(repo), "x", NOW)
    (repo / "a.txt").write_text("three\n")
    second = record(str(repo), "x", NOW)
    assert first.branch != second.branch and first.commit != second.commit


def test_an_empty_repository_and_a_detached_head_are_recorded(repo: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    git(empty, "init", "-q")
    (empty / "new").write_text("x")
    assert record(str(empty), "x", NOW).branch
    git(repo, "checkout", "-q", "--detach")
    make_dirty(repo)
    assert record(str(repo), "x", NOW).branch


def test_a_conflicted_merge_is_recorded_as_it_stands(repo: Path) -> None:
    git(repo, "checkout", "-qb", "other")
    (repo / "a.txt").write_text("theirs\n")
    git(repo, "commit", "-qam", "theirs")
    git(repo, "checkout", "-q", "-")
    (repo / "a.txt").write_text("ours\n")
    git(repo, "commit", "-qam", "ours")
    subprocess.run(["git", "-C", str(repo), "merge", "-q", "other"], capture_output=True)
    before = state_of(repo)
    recorded = record(str(repo), "x", NOW)
    assert state_of(repo) == before
    assert "<<<<<<<" in git(repo, "show", f"{recorded.branch}:a.txt")


def test_outside_a_repository_there_is_nothing_to_record(tmp_path: Path) -> None:
    recorded = record(str(tmp_path), "x", NOW)
    assert (recorded.root, recorded.commit, recorded.branch) == ("", "", "")


def test_only_records_can_be_forgotten(repo: Path) -> None:
    make_dirty(repo)
    name = record(str(repo), "x", NOW).branch
    git(repo, "branch", "mine")
    with pytest.raises(UsageError, match="not a record that Towline made"):
        forget(str(repo), ["mine"])
    forget(str(repo), [name])
    assert records(str(repo)) == []
    assert "mine" in git(repo, "branch")


def test_the_difference_of_two_snapshots_is_shown_file_by_file(
    repo: Path, blobs: BlobStore
) -> None:
    old = snap(repo, blobs).entries
    make_dirty(repo)
    (repo / "a.txt").chmod(0o755)
    new = snap(repo, blobs).entries
    assert [(letter, path) for letter, path, _, _ in changes(old, new)] == [
        ("A", "a new\nfile ü"),
        ("M", "a.txt"),
        ("D", "gone.txt"),
        ("A", "staged.txt"),
    ]

    def read(digest: str) -> bytes:
        with blobs.open(digest) as file:
            return file.read()

    text = "".join(unified(old, new, read))
    assert "kind file -> executable file" in text
    assert "-one\n+two\n" in text
    assert "binary file added" in text
    assert "--- a/gone.txt\n+++ /dev/null\n" in text
    assert "".join(unified(new, new, read)) == ""


def test_a_snapshot_comes_back_as_it_was(repo: Path, blobs: BlobStore, tmp_path: Path) -> None:
    make_dirty(repo)
    (repo / "run.sh").write_text("#!/bin/sh\n")
    (repo / "run.sh").chmod(0o755)
    (repo / "link").symlink_to("a.txt")
    taken = snap(repo, blobs)
    (repo / "a.txt").write_text("changed since\n")
    back = tmp_path / "back"
    assert restore(blobs, taken.entries, str(back)) == 4
    assert snap(back, blobs).entries == taken.entries
    assert os.readlink(back / "link") == "a.txt"


def test_nothing_is_overwritten_and_no_path_leaves_the_folder(
    blobs: BlobStore, tmp_path: Path
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("mine")
    with pytest.raises(UsageError, match="not an empty folder"):
        restore(blobs, [], str(tmp_path / "full"))
    for path in ("../out", "/out", "a//b", ""):
        with pytest.raises(UsageError, match="leaves its folder"):
            restore(blobs, [[path, "d", ""]], str(tmp_path / "new"))
