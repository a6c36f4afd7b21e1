"""Lines that are to share what a machine has, and a sweep that outlives who started it."""

import os
import signal

import pytest

from e2e.jobs import configure, engine_pid
from e2e.packed_runs import PROGRAM, check_shares, most_at_a_time, numbers_of, runs_in, write_runs
from e2e.test_slurm_arrays import await_end
from testbed.hosts import Hosts
from testbed.tow import Tow
from testbed.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(200)]


def test_lines_have_their_part_of_two_machines_and_each_ends_alone(tow: Tow, hosts: Hosts) -> None:
    for host in ("h1", "h2"):
        hosts.set_gpus(host, [{"index": index} for index in range(4)])
    configure(tow, "h1", "h2")
    file = write_runs(tow, 64, run_5="SIGKILL", run_12="SIGSEGV")
    words = ("--cpus", "8", "--gpus", "4", "--pack", "4", "--per-allocation", "8", "-d", file)
    assert tow("batch", "-c", "lab", "-e", "TMPDIR=/tmp", *words).returncode == 0
    assert await_end(tow, "runs") == {"done": 62, "failed": 2}
    runs = [run for host in ("h1", "h2") for run in runs_in(hosts.home(host))]
    assert numbers_of(runs) == list(range(1, 65))
    assert 2 <= most_at_a_time(runs) <= 4
    check_shares(runs, cpus=False, own_tmp=False)
    assert tow.json("show", "runs.5")["reason"] == "killed by signal 9 (SIGKILL)"


def test_sweep_goes_on_without_who_started_it(tow: Tow, hosts: Hosts) -> None:
    configure(tow, "h1", "h2")
    (tow.folder / "run.py").write_text(PROGRAM)
    words = ("-c", "lab", "--pack", "4", "-e", "TMPDIR=/tmp", "seed=range(16)")
    sweep = tow.popen("sweep", *words, "--", "python3", "run.py", "{seed}", "0.5")

    def begun() -> list[int]:
        return numbers_of(run for host in ("h1", "h2") for run in runs_in(hosts.home(host)))

    wait_until(lambda: len(begun()) >= 4, timeout=60)
    os.kill(sweep.pid, signal.SIGKILL)
    sweep.wait()
    os.kill(engine_pid(tow), signal.SIGKILL)
    assert await_end(tow, "sweep") == {"done": 16}
    assert begun() == list(range(16))
    assert "16 of 16" in tow("sweep", "status", "sweep").stdout
    table = tow.json("sweep", "table", "sweep")["runs"]
    assert [run["values"] for run in table] == [f"seed={seed}" for seed in range(16)]
    assert {(run["state"], run["exit_code"]) for run in table} == {("done", 0)}
    again = tow("sweep", "--rerun-failed", *words, "--", "python3", "run.py", "{seed}", "0.5")
    assert again.returncode == 0 and "16 done before, 0 jobs again" in again.stderr
