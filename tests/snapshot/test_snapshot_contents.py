"""Contents are read once, kept by their hash, and made again when they were lost."""

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from towline.config.settings import SnapshotSettings
from towline.errors import NotFound, UsageError
from towline.snapshot.blobs import SMALL, BlobStore
from towline.snapshot.entries import load_snapshot
from towline.snapshot.take import HashCache, take_snapshot

from .conftest import Taking


def test_unchanged_files_are_not_read_again(take: Taking, repo: Path) -> None:
    first = take(repo)
    reads = take.cache.reads
    assert reads == 2
    assert take(repo) == first
    assert take.cache.reads == reads


def test_changed_file_gives_a_new_id_and_is_the_only_one_read(take: Taking, repo: Path) -> None:
    first = take(repo)
    reads = take.cache.reads
    (repo / "tracked").write_text("Tracked\n")
    second = take(repo)
    assert second.id != first.id
    assert take.cache.reads == reads + 1
    assert take.content(first, "tracked") == b"tracked\n"
    assert take.content(second, "tracked") == b"Tracked\n"


def test_file_that_may_change_unseen_is_not_remembered(repo: Path, tmp_path: Path) -> None:
    store = BlobStore(str(tmp_path / "blobs"))
    cache = HashCache(now_ns=lambda: (repo / "tracked").stat().st_ctime_ns)
    for _ in range(2):
        take_snapshot(str(repo), SnapshotSettings(), cache, store)
    assert cache.reads == 4


def test_cache_stays_within_its_bound(repo: Path, take: Taking) -> None:
    take.cache.most = 1
    assert take(repo) == take(repo)
    assert len(take.cache._known) == 1


def test_blob_that_was_lost_is_made_again(take: Taking, repo: Path) -> None:
    snapshot = take(repo)
    digest = snapshot.entries[0][2]
    os.unlink(take.store.path(digest))
    Path(take.store.path(snapshot.entries[1][2])).write_bytes(b"")
    # As after a power failure: another Engine looks at what is there.
    take.store = BlobStore(take.store.root)
    assert take(repo).entries == snapshot.entries
    for entry in snapshot.entries:
        content = take.content(snapshot, entry[0])
        assert hashlib.sha256(content).hexdigest() == entry[2]


def test_a_store_that_somebody_removed_is_made_again(take: Taking, plain: Path) -> None:
    for size in (SMALL - 1, SMALL + 1):
        (plain / "a").write_bytes(b"a" * size)
        shutil.rmtree(take.store.root)
        assert take.content(take(plain), "a") == b"a" * size
        assert Path(take.store.root).stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("size", [0, 1, SMALL - 1, SMALL, SMALL + 1, 3 * SMALL + 5])
def test_contents_of_every_size_are_kept(take: Taking, plain: Path, size: int) -> None:
    content = (b"towline " * (size // 8 + 1))[:size]
    (plain / "a").write_bytes(content)
    (plain / "b").write_bytes(content)
    snapshot = take(plain)
    assert take.content(snapshot, "a") == content
    assert snapshot.bytes == 2 * size
    assert not list(Path(take.store.root).glob("new-*"))


def test_blobs_are_for_this_user_alone(take: Taking, plain: Path) -> None:
    (plain / "a").write_text("secret")
    (plain / "a").chmod(0o755)
    take(plain)
    for path in [Path(take.store.root), *Path(take.store.root).rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0


def test_snapshot_can_be_loaded_by_its_id(take: Taking, repo: Path) -> None:
    snapshot = take(repo)
    assert load_snapshot(take.store, snapshot.id) == snapshot.entries
    Path(take.store.path(snapshot.id)).write_bytes(b"[]")
    with pytest.raises(NotFound, match="is no longer on this machine"):
        load_snapshot(take.store, snapshot.id)
    for unknown in ("0" * 64, "../../etc/passwd", ""):
        with pytest.raises(NotFound):
            load_snapshot(take.store, unknown)


def test_half_written_blobs_are_cleaned_up_later(tmp_path: Path) -> None:
    BlobStore(str(tmp_path / "blobs"))
    for name in ("new-old", "new-now"):
        (tmp_path / "blobs" / name).touch()
    os.utime(tmp_path / "blobs" / "new-old", (0, 0))
    BlobStore(str(tmp_path / "blobs"))
    assert os.listdir(tmp_path / "blobs") == ["new-now"]


def test_unreadable_file_is_named(
    take: Taking, plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (plain / "a").write_text("x")

    def refuse(path: str, flags: int) -> int:
        raise PermissionError(13, "Permission denied", path)

    # Root may read everything, so the refusal is made here.
    monkeypatch.setattr("towline.snapshot.reading.open_plain", refuse)
    with pytest.raises(UsageError, match="plain/a: Permission denied") as caught:
        take(plain)
    assert "`/a`" in caught.value.hint


def test_full_disk_is_named(take: Taking, plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (plain / "a").write_text("x")

    def full(content: bytes) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(take.store, "put_bytes", full)
    with pytest.raises(UsageError, match="No space left on device") as caught:
        take(plain)
    assert "Make room" in caught.value.hint
