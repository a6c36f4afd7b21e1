"""What stands in the folders of claims, by whomever: only claims of their owners are believed."""

import json
import os
import time
from pathlib import Path

import pytest

from towline.agent.remote.share import grants

ANN, BOB = 7711, 7712


def write(base: Path, uid: int, name: str, content: str, owner: int | None = None) -> int:
    """A claim of a user that is held for as long as the returned file is open."""
    folder = base / f"{grants.PREFIX}{uid}"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    os.chown(folder, uid, uid)
    (folder / name).write_text(content)
    os.chown(folder / name, *[uid if owner is None else owner] * 2)
    fd = os.open(folder / name, os.O_RDONLY)
    grants.fcntl.flock(fd, grants.fcntl.LOCK_EX)
    return fd


@pytest.mark.parametrize(
    "content",
    [
        "",
        "nonsense",
        "[" * 4000,
        "[]",
        '{"cpus": "many"}',
        '{"cpus": NaN}',
        '{"cpus": 1e300}',
        '{"cpus": true}',
        '{"mem_mb": -1}',
        '{"gpus": [-1]}',
        '{"gpus": [0.5]}',
        '{"gpus": {"0": 1}}',
        json.dumps({"gpus": list(range(65))}),
        json.dumps({"cpus": 1, "more": "x" * 5000}),
        '{"pid": 1.5}',
    ],
)
def test_what_is_not_a_claim_is_passed_over(base: Path, content: str) -> None:
    fd = write(base, ANN, "e-1-1-0", content)
    good = write(base, BOB, "f-1-1-0", '{"cpus": 1, "argv": "secret"}')
    (claim,) = grants.everybody()
    assert claim["user"] == str(BOB)
    assert "argv" not in claim
    os.close(fd)
    os.close(good)


def test_a_claim_counts_only_for_the_user_who_owns_file_and_folder(base: Path) -> None:
    held = [write(base, ANN, "e-1-1-0", '{"cpus": 1}', owner=BOB)]
    squat = base / f"{grants.PREFIX}{BOB}"
    squat.mkdir()
    os.chown(squat, ANN, ANN)
    held.append(write(base, ANN, "e-2-1-0", '{"cpus": 2}'))
    os.link(squat.with_name(f"{grants.PREFIX}{ANN}") / "e-2-1-0", squat / "e-2-1-0")
    (base / f"{grants.PREFIX}9999").symlink_to(base / f"{grants.PREFIX}{ANN}")
    (base / f"{grants.PREFIX}{ANN}" / "e-3-1-0").symlink_to("e-2-1-0")
    os.mkfifo(base / f"{grants.PREFIX}{ANN}" / "e-4-1-0")
    assert [claim["key"] for claim in grants.everybody()] == ["e-2-1-0"]
    (base / f"{grants.PREFIX}{ANN}").chmod(0o777)
    assert grants.everybody() == []
    for fd in held:
        os.close(fd)


def test_an_unlocked_claim_is_over_and_is_removed_after_a_while(base: Path) -> None:
    os.close(write(base, os.getuid(), "e-1-1-0", '{"cpus": 1}'))
    os.close(write(base, ANN, "f-1-1-0", '{"cpus": 1}'))
    file = base / f"{grants.PREFIX}{os.getuid()}" / "e-1-1-0"
    assert grants.everybody() == []
    assert file.exists()
    old = time.time() - 2 * grants.OVER_FOR_S
    os.utime(file, (old, old))
    assert grants.everybody() == []
    assert not file.exists()


def test_claims_are_not_shown_where_others_could_remove_or_replace_them(base: Path) -> None:
    grant = grants.Grant("e-1-1-0", {"cpus": 1})
    base.chmod(0o777)
    grant.show()
    assert list(base.iterdir()) == []
    base.chmod(0o1777)
    elsewhere = base / "elsewhere"
    elsewhere.mkdir()
    own = base / f"{grants.PREFIX}{os.getuid()}"
    own.symlink_to(elsewhere)
    grant.show()
    assert list(elsewhere.iterdir()) == []
    grant.release()


def test_folder_with_another_name_counts_only_for_its_owner(base: Path) -> None:
    theirs = base / f"{grants.PREFIX}{ANN}-0123456789abcdef"
    theirs.mkdir()
    fd = write(base, BOB, "e-1-1-0", '{"cpus": 1}')
    os.link(base / f"{grants.PREFIX}{BOB}" / "e-1-1-0", theirs / "e-1-1-0")
    os.chown(theirs, BOB, BOB)
    (base / f"{grants.PREFIX}{ANN}-odd").mkdir()
    assert [claim["user"] for claim in grants.everybody()] == [str(BOB)]
    os.close(fd)


def test_claim_cannot_be_opened_by_others_before_it_is_locked(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = []

    def flock(fd: int, kind: int) -> None:
        modes.append(os.fstat(fd).st_mode & 0o777)

    own = base / f"{grants.PREFIX}{os.getuid()}"
    own.mkdir(mode=0o755)
    # Left by one that was killed, and open to all.
    (own / ".e-1-1-0").touch(0o644)
    monkeypatch.setattr(grants.fcntl, "flock", flock)
    grant = grants.Grant("e-1-1-0", {"cpus": 1})
    grant.show()
    assert modes == [0o600]
    assert (own / "e-1-1-0").stat().st_mode & 0o777 == 0o644
    grant.release()


def test_a_claim_that_was_tidied_away_is_shown_again(base: Path) -> None:
    grant = grants.Grant("e-1-1-0", {"cpus": 1})
    grant.show()
    file = base / f"{grants.PREFIX}{os.getuid()}" / "e-1-1-0"
    assert file.stat().st_mode & 0o777 == 0o644
    file.unlink()
    assert grants.everybody() == []
    grant.touch()
    assert [claim["key"] for claim in grants.everybody()] == ["e-1-1-0"]
    grant.release()
    assert not file.exists()
