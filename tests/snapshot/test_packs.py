"""Many new contents lie together in one file, and are had, found, swept and lost as others are."""

import hashlib
import os
from pathlib import Path

import pytest

from towline.backends.staging.chunks import UploadPace, chunks
from towline.errors import UsageError
from towline.snapshot.blobs import BlobStore
from towline.snapshot.collecting import MANY
from towline.snapshot.sweep import sweep
from towline.snapshot.take import Snapshot
from towline.snapshot.views import Views

from .conftest import Taking

FAR_AHEAD = 10.0**11


def fill(folder: Path, count: int = 2 * MANY, word: str = "file") -> None:
    for number in range(count):
        (folder / f"{word}{number:03}").write_bytes(b"%s %d\n" % (word.encode(), number) * number)


def files_of(take: Taking) -> list[Path]:
    return [path for path in Path(take.store.root).rglob("*") if path.is_file()]


def packs_of(take: Taking) -> list[Path]:
    return [path for path in files_of(take) if path.suffix == ".pack"]


def check(take: Taking, snapshot: Snapshot, folder: Path) -> None:
    for path, _, digest in snapshot.entries:
        content = take.content(snapshot, path)
        assert content == (folder / path).read_bytes()
        assert hashlib.sha256(content).hexdigest() == digest
        assert take.store.has(digest, len(content)) and take.store.size(digest) == len(content)


def make_old(take: Taking) -> None:
    for path in files_of(take):
        os.utime(path, (1.0, 1.0))


def test_many_new_contents_make_one_pack(take: Taking, plain: Path) -> None:
    fill(plain)
    snapshot = take(plain)
    assert len(packs_of(take)) == 1
    # The pack, its index, and the list of entries.
    assert len(files_of(take)) == 3
    check(take, snapshot, plain)


def test_few_new_contents_get_a_file_each(take: Taking, plain: Path) -> None:
    fill(plain, MANY - 1)
    snapshot = take(plain)
    assert not packs_of(take)
    check(take, snapshot, plain)


def test_another_engine_finds_what_is_in_packs(take: Taking, plain: Path) -> None:
    fill(plain)
    first = take(plain)
    take.store = BlobStore(take.store.root)
    check(take, first, plain)
    take.cache = type(take.cache)()
    assert take(plain).entries == first.entries
    assert len(packs_of(take)) == 1


def test_only_what_is_new_is_written_again(take: Taking, plain: Path) -> None:
    fill(plain)
    take(plain)
    sizes = [path.stat().st_size for path in packs_of(take)]
    fill(plain, word="other")
    check(take, take(plain), plain)
    assert sum(path.stat().st_size for path in packs_of(take)) < 3 * sizes[0]
    assert len(packs_of(take)) == 2


def test_a_snapshot_that_fails_leaves_no_pack(
    take: Taking, plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(plain)
    real = os.open

    def refuse(path: str, flags: int) -> int:
        if path.endswith(f"file{MANY + 5:03}"):
            raise PermissionError(13, "Permission denied", path)
        return real(path, flags)

    with monkeypatch.context() as patch:
        patch.setattr("towline.snapshot.reading.open_plain", refuse)
        with pytest.raises(UsageError, match="Permission denied"):
            take(plain)
    assert not packs_of(take)
    check(take, take(plain), plain)


def test_a_disk_that_is_full_at_the_end_is_told_and_leaves_nothing(
    take: Taking, plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(plain)

    def full(source: str, target: str) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("towline.snapshot.packs.os.rename", full)
        with pytest.raises(UsageError, match="No space left on device"):
            take(plain)
    assert files_of(take) == []


def test_a_pack_without_its_index_is_cleaned_up_later(take: Taking, plain: Path) -> None:
    fill(plain)
    take(plain)
    (pack,) = packs_of(take)
    pack.with_suffix(".index").unlink()
    BlobStore(take.store.root)
    assert pack.exists()
    os.utime(pack, (1.0, 1.0))
    BlobStore(take.store.root)
    assert not pack.exists()


def test_a_pack_that_is_cut_short_is_made_up_for(take: Taking, plain: Path) -> None:
    fill(plain)
    first = take(plain)
    (pack,) = packs_of(take)
    os.truncate(pack, pack.stat().st_size // 2)
    take.store = BlobStore(take.store.root)
    assert take(plain).entries == first.entries
    check(take, first, plain)


def test_a_pack_goes_once_no_job_needs_it(take: Taking, plain: Path) -> None:
    fill(plain)
    snapshot = take(plain)
    make_old(take)
    assert sweep(take.store, [snapshot.id], FAR_AHEAD, dry_run=False) == []
    assert len(sweep(take.store, [], FAR_AHEAD, dry_run=True)) == len(snapshot.sizes) + 1
    assert len(packs_of(take)) == 1
    gone = sweep(take.store, [], FAR_AHEAD, dry_run=False)
    assert sum(gone) > snapshot.bytes
    assert files_of(take) == []
    check(take, take(plain), plain)


def test_a_pack_in_use_stays(take: Taking, plain: Path) -> None:
    fill(plain)
    snapshot = take(plain)
    make_old(take)
    assert take.store.has(next(iter(snapshot.sizes)))
    assert len(sweep(take.store, [], 1000.0, dry_run=False)) == 1  # the list of entries
    check(take, snapshot, plain)


def test_what_is_needed_of_a_pack_stays_when_the_rest_goes(take: Taking, plain: Path) -> None:
    fill(plain)
    first = take(plain)
    before = Views(take.store)
    digest = first.entries[5][2]
    shown = before.whole(digest)
    for path in sorted(plain.iterdir())[MANY:]:
        path.unlink()
    second = take(plain)
    make_old(take)
    (old,) = packs_of(take)
    gone = sweep(take.store, [second.id], FAR_AHEAD, dry_run=False)
    assert len(gone) == len(first.sizes) - len(second.sizes) + 1
    (new,) = packs_of(take)
    assert new != old
    check(take, second, plain)
    assert hashlib.sha256(shown).hexdigest() == digest
    assert bytes(before.joined([entry[2] for entry in second.entries])) == b"".join(
        (plain / entry[0]).read_bytes() for entry in second.entries
    )


def test_contents_that_lie_together_travel_as_they_lie(take: Taking, plain: Path) -> None:
    fill(plain)
    (plain / "large").write_bytes(os.urandom(3 << 20))
    snapshot = take(plain)
    digests = list(dict.fromkeys(entry[2] for entry in snapshot.entries))
    found: dict[str, bytes] = {}
    for chunk in chunks(take.store, digests, UploadPace()):
        body = bytes(chunk.body)
        if chunk.op == "blob":
            name = chunk.fields["hash"]
            assert chunk.fields["offset"] == len(found.get(name, b""))
            found[name] = found.get(name, b"") + body
            continue
        assert isinstance(chunk.body, memoryview)
        for name, size in chunk.fields["contents"]:
            found[name], body = body[:size], body[size:]
        assert not body
    assert {hashlib.sha256(content).hexdigest() for content in found.values()} == set(digests)
    assert set(found) == set(digests)


def test_of_an_interrupted_content_only_the_rest_travels(take: Taking, plain: Path) -> None:
    (plain / "large").write_bytes(os.urandom(3 << 20))
    digest = take(plain).entries[0][2]
    rest = list(chunks(take.store, [digest], UploadPace(), {digest: 1 << 20}))
    assert rest[0].fields["offset"] == 1 << 20
    assert sum(chunk.size for chunk in rest) == 2 << 20
    nothing = list(chunks(take.store, [digest], UploadPace(), {digest: 3 << 20}))
    assert [(len(chunk.body), chunk.fields["last"]) for chunk in nothing] == [(0, True)]
