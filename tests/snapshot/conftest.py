"""Takes snapshots of folders and repositories as the Engine does."""

import hashlib
import subprocess
from pathlib import Path
from typing import Any

import pytest

from towline.config.settings import SnapshotSettings
from towline.snapshot.blobs import BlobStore
from towline.snapshot.take import HashCache, Snapshot, take_snapshot

FAR_AHEAD_NS = 10**19


class Taking:
    """Takes snapshots with one cache and one blob store, as the Engine does."""

    def __init__(self, root: Path) -> None:
        # A clock far ahead: no file is too young to be remembered.
        self.cache = HashCache(now_ns=lambda: FAR_AHEAD_NS)
        self.store = BlobStore(str(root))

    def __call__(self, folder: Path, **settings: Any) -> Snapshot:
        return take_snapshot(
            str(folder),
            SnapshotSettings(**settings),  # type: ignore[arg-type]
            self.cache,
            self.store,
        )

    def content(self, snapshot: Snapshot, path: str) -> bytes:
        digest = next(entry[2] for entry in snapshot.entries if entry[0] == path)
        with self.store.open(digest) as file:
            return file.read()


@pytest.fixture
def take(tmp_path: Path) -> Taking:
    return Taking(tmp_path / "blobs")


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    folder = tmp_path / "plain"
    folder.mkdir()
    return folder


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return new_repo(tmp_path / "repo")


def git(folder: Path, *arguments: str) -> None:
    settings = ["user.name=t", "user.email=t@t", "protocol.file.allow=always", "gc.auto=0"]
    options = [word for setting in settings for word in ("-c", setting)]
    subprocess.run(
        ["git", *options, "-C", str(folder), *arguments], check=True, capture_output=True
    )


def new_repo(folder: Path) -> Path:
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "tracked").write_text("tracked\n")
    (folder / ".gitignore").write_text("*.log\n/data/\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def paths(snapshot: Snapshot) -> list[str]:
    return [entry[0] for entry in snapshot.entries]


def kinds(snapshot: Snapshot) -> dict[str, str]:
    return {entry[0]: entry[1] for entry in snapshot.entries}


def state_of(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Every file below with its mode, its time and the hash of its content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            stat = path.lstat()
            found[str(path)] = (stat.st_mode, stat.st_mtime_ns, digest)
    return found
