"""What is typed for a Slurm out of habit, and how what waits there is found."""

import pytest

from e2e.jobs import complaint, submit
from e2e.slurm_jobs import configure, queue_lines
from testbed.slurm import Slurm
from testbed.tow import Tow
from testbed.waiting import wait_until

pytestmark = pytest.mark.real


def test_what_waits_in_the_queue_of_a_slurm_is_found_as_queued(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    number = submit(tow, "-c", "cedar", "-o", "begin=now+1hour", "true")
    (tow.folder / "later.txt").write_text("true\ntrue\n")
    assert tow("batch", "-d", "-c", "cedar", "-o", "begin=now+1hour", "later.txt").returncode == 0
    wait_until(lambda: len(queue_lines(slurm)) >= 2)
    assert [job["id"] for job in tow.json("status", "--state", "queued")["jobs"]] == [number]
    assert tow.json("status", "--state", "starting")["jobs"] == []
    waiting = tow.json("batch", "show", "--state", "queued", "later")["jobs"]
    assert [job["line"] for job in waiting] == [1, 2]
    done = tow("log", str(number))
    assert (done.returncode, done.stdout) == (0, "")
    assert f"job {number} is queued" in done.stderr
    assert "later" in tow("stop", "later", str(number)).stdout


def test_what_sbatch_would_take_otherwise_is_asked_back(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    asked = complaint(tow("run", "-c", "cedar", "--time", "60", "true"), 2)
    assert "seconds or minutes" in asked and "60m" in asked
    asked = complaint(tow("run", "-c", "cedar", "-o", "nodes=2", "true"), 2)
    assert "this job is one" in asked and "-r '2:[]'" in asked
    asked = complaint(tow("run", "-c", "cedr", "true"), 2)
    assert "did you mean cedar?" in asked
