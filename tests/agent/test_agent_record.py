"""Files of which only the first counts: whoever loses finds all of what the winner wrote."""

import errno
import os
from pathlib import Path
from typing import IO, Any

import pytest

from towline.agent.remote.content import files
from towline.agent.remote.records import record


def race(path: Path, runners: int) -> list[bool]:
    """Which of these processes was first; they all begin when the start is closed."""
    waiting, start = os.pipe()
    children = []
    for number in range(runners):
        children.append(os.fork())
        if not children[-1]:
            os.close(start)
            os.read(waiting, 1)
            os._exit(0 if record.write_first(str(path), b"%d\n" % number * 1000) else 1)
    os.close(waiting)
    os.close(start)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0 for child in children]


def test_of_many_one_is_first_and_nothing_else_is_left(tmp_path: Path) -> None:
    won = race(tmp_path / "claim", 16)
    assert won.count(True) == 1
    assert (tmp_path / "claim").read_bytes() == b"%d\n" % won.index(True) * 1000
    assert os.listdir(tmp_path) == ["claim"]


def test_a_link_that_was_made_though_its_answer_was_lost_is_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def lossy(source: str, target: str) -> None:
        link(source, target)
        raise FileExistsError(errno.EEXIST, "so it is")

    monkeypatch.setattr(os, "link", lossy)
    assert record.write_first(str(tmp_path / "claim"), b"mine")
    monkeypatch.undo()
    assert not record.write_first(str(tmp_path / "claim"), b"theirs")
    assert (tmp_path / "claim").read_bytes() == b"mine"


def test_a_file_system_without_hard_links_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(source: str, target: str) -> None:
        raise PermissionError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(os, "link", refused)
    assert record.write_first(str(tmp_path / "claim"), b"mine")
    assert not record.write_first(str(tmp_path / "claim"), b"theirs")
    assert (tmp_path / "claim").read_bytes() == b"mine" and os.listdir(tmp_path) == ["claim"]


@pytest.mark.parametrize(("ran_s", "synced"), [(0.5, []), (5.0, ["life"])])
def test_the_end_of_a_job_that_took_its_time_survives_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran_s: float, synced: list[str]
) -> None:
    found: list[str] = []

    def note(fd: int) -> None:
        found.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))

    monkeypatch.setattr(os, "fdatasync", note)
    life = record.open_life(str(tmp_path), create=True)
    assert life is not None
    record.write_exit(str(tmp_path), life, {"code": 0, "started": 9.0, "ended": 9.0 + ran_s}, b"{}")
    os.close(life)
    assert found == synced
    assert os.listdir(tmp_path) == ["exit"]


def test_what_a_job_was_asked_to_be_is_found_in_the_very_moment_of_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "life").write_text('{"spec": {"argv": ["true"]}}')

    def just_ended(path: str, *how: str) -> IO[Any]:
        if path.endswith("/life") and (tmp_path / "life").exists():
            os.rename(tmp_path / "life", tmp_path / "exit")
        return open(path, *how)

    monkeypatch.setattr(record, "open", just_ended, raising=False)
    assert record.read_spec(str(tmp_path)) == {"argv": ["true"]}


@pytest.mark.parametrize(
    ("number", "code"),
    [(errno.EMFILE, "failed"), (errno.EACCES, "denied"), (errno.ENOENT, "no_such_file")],
)
def test_a_machine_that_is_too_busy_to_open_a_file_says_nothing_of_the_file(
    number: int, code: str
) -> None:
    assert files.refusal_of(OSError(number, "so it is"), "made").code == code
