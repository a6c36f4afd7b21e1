"""What was acknowledged is on disk, and what is on disk is not synced again."""

import os
import threading
from pathlib import Path

import pytest

from towline.errors import UsageError
from towline.snapshot import syncing
from towline.snapshot.syncing import Unsynced, sync_files

from .conftest import Taking


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what was synced; a whole file system is called *."""
    found: list[str] = []

    def note(fd: int) -> None:
        found.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))

    monkeypatch.setattr(os, "fdatasync", note)
    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(syncing, "_syncfs", lambda fd: found.append("*"))
    return found


def test_contents_are_on_disk_when_a_snapshot_is_taken_and_not_again_for_the_next(
    take: Taking, plain: Path, synced: list[str]
) -> None:
    (plain / "new").write_text("content")
    first = take(plain)
    digests = {entry[2] for entry in first.entries if entry[1] in "fx"} | {first.id}
    assert {digest[2:] for digest in digests} <= set(synced)
    synced.clear()
    assert take(plain) == first
    assert synced == []
    (plain / "new").write_text("another")
    changed = take(plain)
    assert changed.id[2:] in synced


def test_many_contents_are_synced_at_once(take: Taking, plain: Path, synced: list[str]) -> None:
    for number in range(20):
        (plain / f"f{number}").write_text(str(number))
    take(plain)
    assert synced == ["*"]


def test_packs_are_on_disk_as_well(take: Taking, plain: Path, synced: list[str]) -> None:
    for number in range(40):
        (plain / f"f{number}").write_text(str(number))
    take(plain)
    names = set(synced)
    assert {".pack", ".index"} <= {os.path.splitext(name)[1] for name in names} or names == {"*"}


def test_a_disk_that_cannot_keep_it_refuses_the_submission(
    take: Taking, plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(fd: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        for owner, name in ((os, "fdatasync"), (os, "fsync"), (syncing, "_syncfs")):
            broken.setattr(owner, name, fail)
        with pytest.raises(UsageError, match="Input/output error"):
            take(plain)
        # Still not: what is there already was never synced.
        with pytest.raises(UsageError, match="Input/output error"):
            take(plain)
    take(plain)


def test_one_who_finds_the_content_of_another_waits_until_that_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, may_end, over = threading.Event(), threading.Event(), threading.Event()

    def slow(paths: list[str]) -> None:
        if paths:
            began.set()
            assert may_end.wait(30)

    monkeypatch.setattr(syncing, "sync_files", slow)
    unsynced = Unsynced()
    unsynced.add(str(tmp_path / "a"))
    first = threading.Thread(target=unsynced.sync)
    first.start()
    assert began.wait(30)
    second = threading.Thread(target=lambda: (unsynced.sync(), over.set()))
    second.start()
    assert not over.is_set()
    may_end.set()
    assert over.wait(30)
    first.join(30)
    second.join(30)


def test_files_that_are_gone_and_links_do_not_matter(tmp_path: Path, synced: list[str]) -> None:
    (tmp_path / "here").touch()
    (tmp_path / "link").symlink_to("/no/such")
    sync_files([str(tmp_path / name) for name in ("here", "link", "gone")])
    assert synced == ["here", tmp_path.name]


def test_real_files_and_file_systems_are_synced(tmp_path: Path) -> None:
    names = [str(tmp_path / str(number)) for number in range(20)]
    for name in names:
        Path(name).touch()
    sync_files(names[:2])
    sync_files(names)
