"""GPUs of a real Grid Engine that counts them, and tells nobody which ones they are."""

import pytest

from e2e.grid_jobs import configure
from e2e.jobs import ended, submit, wait_for
from e2e.test_slurm_several import meet
from testbed.gridengine import GridEngine
from testbed.tow import Tow
from testbed.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

SLOW_S = 120
#: Which ones it has, until it is told to end.
TELL = "echo has $CUDA_VISIBLE_DEVICES; until [ -e end ]; do sleep 0.2; done"


def test_jobs_on_one_host_get_gpus_of_their_own(tow: Tow, gridengine: GridEngine) -> None:
    # The first one is in use by somebody who asked nobody.
    gridengine.set_gpus("h2", [{"index": 0, "memory_used": 900}, {"index": 1}])
    configure(tow)
    first = begin(tow)
    assert first[1] == "1"
    second = begin(tow)
    assert second[1] == "0"
    end(tow, first[0])
    third = begin(tow)
    assert third[1] == "1"
    end(tow, second[0])
    end(tow, third[0])
    own = ("-e", "CUDA_VISIBLE_DEVICES=7", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    assert tow("run", "-c", "msc", "--gpus", "1", *own).stdout == "7\n"
    told = meet(tow, "-r", "2:[gpu]", cluster="msc")
    assert sorted(known["CUDA_VISIBLE_DEVICES"] for known in told) == ["0", "1"]


def begin(tow: Tow) -> tuple[int, str]:
    """A job with one GPU, once it runs, and what it was told."""
    job = submit(tow, "-c", "msc", "--gpus", "1", "sh", "-c", TELL)
    wait_for(tow, job, "running", timeout=SLOW_S)
    wait_until(lambda: tow("log", str(job)).stdout.startswith("has "), timeout=SLOW_S)
    return job, tow("log", str(job)).stdout.removeprefix("has ").strip()


def end(tow: Tow, job: int) -> None:
    assert tow("exec", str(job), "touch", "end").returncode == 0
    assert ended(tow, job, timeout=SLOW_S)["state"] == "done"
