"""A full disk loses no exit code, no output and no result of a job that ran."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from towline.agent.remote.records import record

from .conftest import NewAgent
from .driver import Driver

pytestmark = pytest.mark.real
PAGE = 4096


@pytest.fixture
def small_disk(root: Path) -> Iterator[Path]:
    root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", root], check=True)
    yield root
    subprocess.run(["umount", "-l", root], check=True)


def leave_pages(disk: Path, pages: int) -> None:
    """Fill the disk but for so many pages."""
    (disk / "filling").unlink(missing_ok=True)
    with open(disk / "filling", "wb", buffering=0) as file:
        try:
            while file.write(bytes(PAGE)):
                pass
        except OSError:
            pass
        file.truncate(max(0, file.tell() - pages * PAGE))


def test_a_job_whose_results_cannot_be_listed_keeps_its_code_and_its_results(
    small_disk: Path, new_agent: NewAgent
) -> None:
    agent = new_agent()
    script = "for n in $(seq 200); do : > made-$n; done; echo said; cat /dev/zero > big; exit 7"
    end = agent.run("a", "sh", "-c", script)
    assert (end["code"], end["cause"], end["made"]) == (7, "", -1)
    assert end["started"] and agent.output("a") == b"said\n"
    found = {entry["name"] for entry in agent.call("changed", key="a")["files"]}
    assert {f"made-{n}" for n in range(1, 201)} | {"big"} == found
    assert agent.call("observe", keys=["a"])["states"]["a"]["ending"]["code"] == 7


@pytest.mark.parametrize("pages", range(8))
def test_a_job_runs_with_a_record_or_not_at_all(
    small_disk: Path, new_agent: NewAgent, tmp_path: Path, pages: int
) -> None:
    agent = new_agent()
    agent.run("first", "true")
    leave_pages(small_disk, pages)
    ran = tmp_path / "ran"
    end = agent.run("a", "sh", "-c", f"echo >> '{ran}'; exit 7", env={"A": "x" * 6000})
    if ran.exists():
        assert (end["code"], end["cause"]) == (7, "") and end["started"]
        assert agent.call("observe", keys=["a"])["states"]["a"]["ending"]["code"] == 7
    else:
        assert (end["code"], end["cause"], end["started"]) == (None, "no_space", 0)
    assert_runs_with_room(agent, small_disk)


def assert_runs_with_room(agent: Driver, disk: Path) -> None:
    (disk / "filling").unlink()
    assert agent.run("b", "true")["code"] == 0


def test_a_long_ending_in_any_language_fits_the_room_that_was_reserved(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "life", os.O_RDWR | os.O_CREAT)
    record.reserve(fd, b"{}")
    size = os.fstat(fd).st_size
    record.write_life(fd, {"text": "\U0001f600" * 1000, "code": 3}, b"{}")
    assert os.fstat(fd).st_size == size
    assert record.read_life(fd)["code"] == 3
    os.close(fd)
