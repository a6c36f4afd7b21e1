"""Chains on real clusters: this machine, an ssh machine and a Slurm, whatever is killed."""

from pathlib import Path

import pytest

from e2e.engines import kill_engine
from e2e.jobs import ENGINE, ended, show, submit
from testbed.slurm import Slurm
from testbed.tow import Tow

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

CLUSTERS = """
[clusters.lab]
machines = [{ ssh = "h2", cpus = 32 }]
[clusters.cedar]
kind = "slurm"
host = "cedar"
"""
#: The clock is the same for all of them: hosts are namespaces of one machine.
STAMP = 'echo "$0" >> "$HOME/ran-$0"; date +%s.%N; sleep 0.2; date +%s.%N; exit "$1"'


def a_job(tow: Tow, name: str, cluster: str, *options: str, code: int = 0) -> int:
    words = ("-t", name, "-c", cluster, *options, "--", "sh", "-c", STAMP, name, str(code))
    return submit(tow, *words, env={"HOME": str(tow.home)})


def span(tow: Tow, job: int) -> tuple[float, float]:
    began, over = tow("log", str(job)).stdout.split()
    return float(began), float(over)


def test_a_diamond_over_three_clusters_runs_once_and_in_order(tow: Tow, slurm: Slurm) -> None:
    (tow.home / "config.toml").write_text(f"{ENGINE}{CLUSTERS}")
    first = a_job(tow, "first", "local")
    left = a_job(tow, "left", "lab", "--after", "first")
    right = a_job(tow, "right", "cedar", "--after", str(first))
    last = a_job(tow, "bottom", "local", "--after", f"left,{right}")
    kill_engine(tow.home)
    waiting = tow.popen("wait", str(left), str(right), str(last))
    for job in (first, left, right, last):
        assert ended(tow, job, timeout=120)["state"] == "done"
        kill_engine(tow.home)
    assert waiting.wait(60) == 0, waiting.stderr and waiting.stderr.read()
    spans = {job: span(tow, job) for job in (first, left, right, last)}
    assert spans[first][1] <= min(spans[left][0], spans[right][0])
    assert max(spans[left][1], spans[right][1]) <= spans[last][0]
    for name, home in (("first", tow.home), ("left", Path(slurm.home("h2"))), ("bottom", tow.home)):
        assert (home / f"ran-{name}").read_text() == f"{name}\n"
    assert slurm.worker("cat", "ran-right") == "right\n"
    assert [show(tow, job)["attempt"] for job in spans] == [1, 1, 1, 1]


def test_a_failed_corner_ends_the_rest_as_skipped(tow: Tow, slurm: Slurm) -> None:
    (tow.home / "config.toml").write_text(f"{ENGINE}{CLUSTERS}")
    first = a_job(tow, "first", "local")
    left = a_job(tow, "left", "lab", "--after", "first", code=3)
    right = a_job(tow, "right", "local", "--after", "first")
    last = a_job(tow, "bottom", "cedar", "--after", "left,right")
    after_it = a_job(tow, "after it", "local", "--after", "bottom")
    kill_engine(tow.home)
    assert tow("wait", "bottom", "after it", timeout=120).returncode == 1
    assert [ended(tow, job)["state"] for job in (first, left, right)] == ["done", "failed", "done"]
    told = show(tow, last)
    assert (told["state"], told["reason"]) == ("skipped", f"job {left} failed")
    assert told["because"] == {"kind": "after", "job": left, "state": "failed"}
    assert show(tow, after_it)["because"]["job"] == last
    assert f"job {left} failed" in tow("why", "bottom").stdout
    refused = tow("retry", "bottom")
    assert (refused.returncode, f"tow retry {left} {last}" in refused.stderr) == (2, True)
