"""Lines of a batch share allocations of a real Grid Engine, and each stays a job of its own."""

from collections import Counter

import pytest

from e2e.grid_jobs import configure
from e2e.packed_runs import check_shares, most_at_a_time, numbers_of, runs_in, write_runs
from e2e.test_slurm_arrays import await_end, batch
from testbed.gridengine import GridEngine
from testbed.tow import Tow
from testbed.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

HOST = ("-c", "msc", "--gpus", "2", "--pack", "2", "-d")


def test_lines_share_hosts_and_each_ends_alone(tow: Tow, gridengine: GridEngine) -> None:
    for host in ("h2", "h3"):
        gridengine.set_gpus(host, [{"index": 0}, {"index": 1}])
    configure(tow)
    file = write_runs(tow, 64, run_5="SIGKILL", run_12="SIGSEGV")
    assert tow("batch", *HOST, "--per-allocation", "8", file).returncode == 0
    assert await_end(tow, "runs") == {"done": 62, "failed": 2}
    runs = runs_in(gridengine.home("h1"))
    assert numbers_of(runs) == list(range(1, 65))
    assert list(Counter(run["entry"] for run in runs).values()) == [8] * 8
    assert most_at_a_time(runs) == 2
    check_shares(runs, cpus=True)
    assert tow.json("show", "runs.5")["reason"] == "killed by signal 9 (SIGKILL)"
    assert (tow.folder / "job_results/runs.64/result").read_text() == "of 64"


def test_one_line_is_stopped_alone_and_then_the_others(tow: Tow, gridengine: GridEngine) -> None:
    gridengine.set_gpus("h2", [{"index": 0}, {"index": 1}])
    configure(tow)
    file = write_runs(tow, 4, seconds=300)
    assert tow("batch", *HOST, "--per-allocation", "4", file).returncode == 0
    home = gridengine.home("h1")
    wait_until(lambda: numbers_of(runs_in(home)) == [1, 2], timeout=120)
    assert tow("stop", "runs.1", "runs.3").returncode == 0
    wait_until(lambda: numbers_of(runs_in(home)) == [1, 2, 4], timeout=60)
    # The one that waited for its turn begins before the news of the stopped ones has come here.
    wait_until(lambda: batch(tow, "runs")["counts"].get("stopped") == 2, timeout=60)
    assert tow("batch", "stop", "runs").returncode == 0
    assert await_end(tow, "runs", timeout=100) == {"stopped": 4}
