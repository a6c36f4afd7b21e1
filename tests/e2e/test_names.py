"""Jobs and batches as people name them, in front of the real Engine."""

from pathlib import Path

import pytest

from testbed.tow import Tow
from towline.filesystem import TowFileSystem


def test_a_line_of_a_batch_is_a_job_everywhere(tow: Tow, monkeypatch: pytest.MonkeyPatch) -> None:
    (tow.folder / "sweep.txt").write_text("# two\necho one > made.txt\necho two; exit 3\n")
    assert tow("batch", "sweep.txt").returncode == 1
    assert tow("log", "sweep.3").stdout == "two\n"
    assert tow("log", "sweep").stdout == "two\n"
    assert tow("cat", "sweep.2", "made.txt").stdout == "one\n"
    assert "made.txt" in tow("ls", "sweep.2").stdout
    assert tow.json("show", "sweep.3")["exit_code"] == 3
    assert tow("show", "last").stdout.startswith("batch sweep · failed")
    monkeypatch.setenv("TOWLINE_HOME", str(tow.home))
    assert TowFileSystem().cat_file("tow://sweep.2/made.txt") == b"one\n"
    assert tow("attach", "sweep").returncode == 1
    assert tow("retry", "-f", "sweep.3").returncode == 3
    done = tow("log", "sweep.1")
    assert done.returncode == 2 and "batch sweep has no line 1" in done.stderr


@pytest.mark.parametrize("title", ["5", "last", "all", "3-4"])
def test_a_title_that_means_other_jobs_is_refused(tow: Tow, title: str) -> None:
    done = tow("run", "-t", title, "true")
    assert done.returncode == 2 and "means other jobs" in done.stderr
    assert tow("status").stdout == "no jobs yet: tow run COMMAND starts one\n"


def test_stopping_a_batch_and_jobs_that_are_not_there(tow: Tow, tmp_path: Path) -> None:
    (tow.folder / "b.txt").write_text("sleep 600\nsleep 600\n")
    assert tow("batch", "-d", "b.txt").returncode == 0
    number = tow.json("run", "-d", "-t", "sleeps", "sleep", "600")["id"]
    done = tow("stop", "b", "sleeps", "4711")
    assert done.returncode == 2 and "there is no job 4711" in done.stderr
    assert f"job {number} " in done.stdout and "batch b stopping" in done.stdout
    assert tow("attach", "b").returncode == tow("attach", "sleeps").returncode == 130
