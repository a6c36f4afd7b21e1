"""What travels to a machine: what you see is what runs, and nothing of yours is touched."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from towline.errors import UsageError
from towline.snapshot.entries import load_snapshot

from .conftest import Taking, git, kinds, new_repo, paths, state_of

ODD_NAMES = [
    "with space",
    "new\nline",
    "-dash",
    "ünïcode",
    'quo"te',
    "back\\slash",
    "tab\there",
    os.fsdecode(b"latin-\xe9"),
]


# --- a folder without git ------------------------------------------------------------------------


def test_empty_folder_is_the_empty_list(take: Taking, plain: Path) -> None:
    snapshot = take(plain)
    assert snapshot.id == hashlib.sha256(b"[]").hexdigest()
    assert (snapshot.entries, snapshot.files, snapshot.bytes) == ([], 0, 0)


def test_id_is_the_hash_of_the_sorted_entries(take: Taking, plain: Path) -> None:
    for name in ("b", "a", "a.b"):
        (plain / name).write_text(name)
    snapshot = take(plain)
    assert paths(snapshot) == ["a", "a.b", "b"]
    text = json.dumps(snapshot.entries, separators=(",", ":"), ensure_ascii=False)
    assert snapshot.id == hashlib.sha256(text.encode()).hexdigest()
    assert (snapshot.files, snapshot.bytes, snapshot.subfolder) == (3, 5, "")


def test_files_links_and_empty_folders_are_told_apart(take: Taking, plain: Path) -> None:
    (plain / "file").write_text("same")
    (plain / "run").write_text("same")
    (plain / "run").chmod(0o755)
    (plain / "link").symlink_to("file")
    (plain / "broken").symlink_to("/nowhere")
    (plain / "empty").mkdir()
    (plain / "full").mkdir()
    (plain / "full" / "folder-link").symlink_to("../empty")
    os.mkfifo(plain / "fifo")
    same = hashlib.sha256(b"same").hexdigest()
    snapshot = take(plain)
    assert snapshot.entries == [
        ["broken", "l", "/nowhere"],
        ["empty", "d", ""],
        ["file", "f", same],
        ["full/folder-link", "l", "../empty"],
        ["link", "l", "file"],
        ["run", "x", same],
    ]
    assert snapshot.sizes == {same: 4}


@pytest.mark.parametrize("in_git", [False, True])
def test_odd_names_travel_as_they_are(take: Taking, plain: Path, repo: Path, in_git: bool) -> None:
    folder = repo if in_git else plain
    for name in ODD_NAMES:
        (folder / name).write_text("x")
    snapshot = take(folder)
    assert set(ODD_NAMES) <= set(paths(snapshot))
    assert load_snapshot(take.store, snapshot.id) == snapshot.entries


def test_towignore_and_settings_leave_files_out(take: Taking, plain: Path) -> None:
    (plain / ".towignore").write_text("# big\n*.bin\n/top/\n!keep.bin\n")
    for name in ("a.bin", "keep.bin", "top/a", "sub/top/a", "sub/b.bin", "c.tmp", "job_results/x"):
        (plain / name).parent.mkdir(parents=True, exist_ok=True)
        (plain / name).write_text("x")
    (plain / "sub" / "__pycache__").mkdir()
    (plain / "sub" / "__pycache__" / "a.pyc").touch()
    assert paths(take(plain, exclude=["*.tmp"])) == [".towignore", "keep.bin", "sub/top/a"]


def test_home_folder_and_root_are_refused(
    take: Taking, plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(plain / "home"))
    (plain / "home" / "project").mkdir(parents=True)
    for folder in (plain / "home", plain, Path("/")):
        with pytest.raises(UsageError) as caught:
            take(folder)
        assert "cd into" in caught.value.hint
    assert take(plain / "home" / "project").entries == []


def test_missing_folder_is_said(take: Taking, plain: Path) -> None:
    with pytest.raises(UsageError, match="there is no folder"):
        take(plain / "gone")


def test_too_much_names_the_largest_files(take: Taking, plain: Path) -> None:
    for number in range(12):
        with open(plain / f"part{number}", "wb") as stream:
            stream.truncate((number + 1) << 20)
    with pytest.raises(UsageError) as caught:
        take(plain, limit_mb=77)
    lines = caught.value.text.splitlines()
    assert "78 MB in 12 files" in lines[0]
    assert [line.split()[-1] for line in lines[1:]] == [f"part{n}" for n in range(11, 1, -1)]
    assert ".towignore" in caught.value.hint and "limit_mb" in caught.value.hint
    assert take(plain, limit_mb=78).files == 12


# --- a git repository ----------------------------------------------------------------------------


def test_working_tree_travels_as_it_is(take: Taking, repo: Path) -> None:
    (repo / "tracked").write_text("changed\n")
    (repo / "untracked").write_text("new")
    (repo / "noise.log").write_text("ignored")
    (repo / "data").mkdir()
    (repo / "data" / "big").write_text("ignored")
    (repo / "gone").write_text("x")
    git(repo, "add", "gone")
    (repo / "gone").unlink()
    (repo / "job_results").mkdir()
    (repo / "job_results" / "old").touch()
    snapshot = take(repo)
    assert paths(snapshot) == [".gitignore", "tracked", "untracked"]
    assert take.content(snapshot, "tracked") == b"changed\n"


def test_ignored_files_travel_when_included(take: Taking, repo: Path) -> None:
    (repo / "noise.log").write_text("x")
    (repo / "data").mkdir()
    (repo / "data" / "weights").write_text("x")
    snapshot = take(repo, include=["/data/"], exclude=["tracked"])
    assert paths(snapshot) == [".gitignore", "data/weights"]


def test_sub_folder_of_a_repository_brings_the_whole_of_it(take: Taking, repo: Path) -> None:
    (repo / "src" / "deep").mkdir(parents=True)
    (repo / "src" / "deep" / "a").touch()
    snapshot = take(repo / "src" / "deep")
    assert snapshot.subfolder == "src/deep"
    assert paths(snapshot) == [".gitignore", "src/deep/a", "tracked"]


def test_folder_the_command_runs_in_exists_even_if_empty(take: Taking, repo: Path) -> None:
    (repo / "empty").mkdir()
    snapshot = take(repo / "empty")
    assert kinds(snapshot)["empty"] == "d"


def test_folder_that_git_ignores_is_a_plain_folder(take: Taking, repo: Path) -> None:
    (repo / "data" / "study").mkdir(parents=True)
    (repo / "data" / "study" / "a.log").touch()
    snapshot = take(repo / "data" / "study")
    assert (snapshot.subfolder, paths(snapshot)) == ("", ["a.log"])


def test_executable_bit_and_links_are_kept(take: Taking, repo: Path) -> None:
    (repo / "tracked").chmod(0o755)
    (repo / "link").symlink_to("tracked")
    assert kinds(take(repo)) == {".gitignore": "f", "link": "l", "tracked": "x"}


def test_folder_replaced_by_a_link_is_not_looked_through(
    take: Taking, repo: Path, plain: Path
) -> None:
    (repo / "sub").mkdir()
    (repo / "sub" / "a").write_text("mine")
    git(repo, "add", ".")
    shutil.rmtree(repo / "sub")
    (plain / "a").write_text("outside")
    (repo / "sub").symlink_to(plain)
    assert kinds(take(repo)) == {".gitignore": "f", "sub": "l", "tracked": "f"}


def test_submodules_and_nested_repositories_travel_too(
    take: Taking, repo: Path, tmp_path: Path
) -> None:
    library = new_repo(tmp_path / "library")
    git(repo, "submodule", "add", "-q", str(library), "lib")
    (repo / "lib" / "extra").touch()
    (repo / "lib" / "extra.log").touch()
    new_repo(repo / "nested")
    (repo / "nested" / "extra.log").touch()
    assert paths(take(repo)) == [
        ".gitignore",
        ".gitmodules",
        "lib/.gitignore",
        "lib/extra",
        "lib/tracked",
        "nested/.gitignore",
        "nested/tracked",
        "tracked",
    ]


def test_repository_below_a_plain_folder_keeps_its_ignored_files_back(
    take: Taking, plain: Path
) -> None:
    new_repo(plain / "one")
    (plain / "one" / "noise.log").touch()
    (plain / "noise.log").touch()
    assert paths(take(plain)) == ["noise.log", "one/.gitignore", "one/tracked"]


def test_worktree_of_a_repository_works(take: Taking, repo: Path, tmp_path: Path) -> None:
    git(repo, "worktree", "add", "-q", str(tmp_path / "tree"))
    assert paths(take(tmp_path / "tree")) == [".gitignore", "tracked"]


def test_repository_is_left_byte_for_byte_as_it_was(
    take: Taking, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repo / "untracked").touch()
    # A touched file makes git want to refresh its index.
    os.utime(repo / "tracked")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere")
    before = state_of(repo)
    take(repo)
    take(repo, include=["*.log"])
    assert state_of(repo) == before


def test_broken_repository_is_said(take: Taking, plain: Path) -> None:
    (plain / ".git").write_text("gitdir: /nowhere\n")
    with pytest.raises(UsageError, match="git cannot list the files of"):
        take(plain)


def test_missing_git_is_said(take: Taking, repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError, match="there is no `git`"):
        take(repo)
