"""Lines of a batch share allocations of a real Slurm, and each stays a job of its own."""

import os
import signal
from collections import Counter
from typing import Any

import pytest

from e2e.api import ask
from e2e.jobs import engine_pid
from e2e.packed_runs import check_shares, most_at_a_time, numbers_of, runs_in, write_runs
from e2e.slurm_jobs import configure, queue_lines
from e2e.test_slurm_arrays import await_end, batch, noted
from testbed.slurm import Slurm
from testbed.tow import Tow
from testbed.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

NODE = ("-c", "cedar", "--cpus", "4", "--gpus", "2")


def ran(slurm: Slurm) -> list[dict[str, Any]]:
    return runs_in(slurm.home("h1"))


def job(tow: Tow, number: int) -> dict[str, Any]:
    found: dict[str, Any] = tow.json("show", f"runs.{number}")
    return found


def test_lines_share_allocations_and_each_ends_alone(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    tow("status")
    write_runs(tow, 64, run_5="SIGKILL", run_12="SIGSEGV")
    lines = (tow.folder / "runs.txt").read_text().splitlines()
    pack = {"parallel": 4, "lines": 8, "shares": {"cpu": [], "cuda": ["0", "1", "MIG-2", "GPU-3"]}}
    base = {"argv": ["true"], "cwd": str(tow.folder), "cluster": "cedar", "cpus": "4", "pack": pack}
    many = [{"argv": line.split()} for line in lines]
    with noted(slurm) as calls:
        status, told = ask(
            tow.home, "POST", "/v1/batches", {"base": base, "lines": many, "name": "runs"}
        )
        assert status < 300, told
        assert await_end(tow, "runs") == {"done": 62, "failed": 2}
        assert len(calls.read_text().splitlines()) == 8
    runs = ran(slurm)
    assert numbers_of(runs) == list(range(1, 65))
    assert set(Counter(run["entry"] for run in runs).values()) == {8}
    assert 2 <= most_at_a_time(runs) <= 4
    check_shares(runs, cpus=False)
    assert job(tow, 5)["reason"] == "killed by signal 9 (SIGKILL)"
    assert "signal 11" in job(tow, 12)["reason"]
    assert (tow.folder / "job_results/runs.64/result").read_text() == "of 64"
    assert tow("log", "runs.63").stdout == "run 63\n"


def test_each_line_has_a_cpu_and_a_gpu_of_those_that_were_granted(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    file = write_runs(tow, 12)
    done = tow("batch", *NODE, "--pack", "2", "--per-allocation", "4", file, timeout=120)
    assert done.returncode == 0, done.stderr
    runs = ran(slurm)
    assert numbers_of(runs) == list(range(1, 13))
    assert len({run["entry"] for run in runs}) == 3
    check_shares(runs, cpus=True)
    assert {run["cuda"] for run in runs} == {"0", "1"}


def test_one_line_is_stopped_alone_and_then_the_allocation(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    file = write_runs(tow, 6, seconds=300)
    words = ("--pack", "2", "--per-allocation", "6", "-d", file)
    assert tow("batch", *NODE, *words).returncode == 0
    wait_until(lambda: len(ran(slurm)) == 2, timeout=60)
    number = queue_lines(slurm)[0].split()[0]
    wait_until(lambda: f"allocation {number}" in tow("why", "runs.6").stdout, timeout=60, every=0.5)
    assert tow("stop", "runs.2", "runs.3").returncode == 0
    wait_until(lambda: batch(tow, "runs")["counts"].get("stopped") == 2, timeout=30, every=0.2)
    # The next one that nobody stopped has the place.
    wait_until(lambda: numbers_of(ran(slurm)) == [1, 2, 4], timeout=30)
    assert len(queue_lines(slurm)) == 1
    assert f"{number}" in tow("show", "runs.4").stdout
    assert tow("batch", "stop", "runs").returncode == 0
    assert await_end(tow, "runs", timeout=60) == {"stopped": 6}
    wait_until(lambda: queue_lines(slurm) == [], timeout=30)
    assert numbers_of(ran(slurm)) == [1, 2, 4]


def test_killed_engine_and_packer_lose_no_line_that_had_not_begun(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    file = write_runs(tow, 8, seconds=3)
    words = ("--pack", "2", "--per-allocation", "8", "-d", file)
    assert tow("batch", *NODE, *words).returncode == 0
    wait_until(lambda: len(ran(slurm)) >= 3, timeout=60)
    os.kill(engine_pid(tow), signal.SIGKILL)
    host = ran(slurm)[0]["host"]
    oldest = slurm.run(host, ["pgrep", "-o", "-f", "node.runner"]).stdout.strip()
    slurm.run(host, ["kill", "-KILL", oldest])
    counts = await_end(tow, "runs")
    runs = ran(slurm)
    assert numbers_of(runs) == list(range(1, 9))
    assert counts["done"] >= 6
    assert sum(counts.values()) == 8


def test_time_limit_of_the_allocation_ends_the_lines_that_are_left(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    words = ("--pack", "1", "--per-allocation", "3", "--time", "6s")
    done = tow("batch", *NODE, *words, write_runs(tow, 3, seconds=4), timeout=100)
    assert done.returncode == 1
    assert [job(tow, number)["state"] for number in (1, 2, 3)] == ["done", "failed", "failed"]
    assert {job(tow, number)["reason"] for number in (2, 3)} == {"stopped at its time limit"}
    assert numbers_of(ran(slurm)) == [1, 2]


def test_lines_that_are_left_are_carried_over_if_asked(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    words = ("--pack", "1", "--per-allocation", "2", "--time", "6s", "--on-timeout", "resubmit")
    file = tow.folder / "runs.txt"
    # The second begins before the time is over, and does not end before.
    file.write_text("echo 1 >> ~/lines; sleep 4\necho 2 >> ~/lines; sleep 4\n")
    done = tow("batch", *NODE, *words, file.name, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (slurm.home("h1") / "lines").read_text().split() == ["1", "2", "2"]
