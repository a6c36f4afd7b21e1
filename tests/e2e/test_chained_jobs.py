"""Chains over real clusters: an ssh machine, a Slurm and a Grid Engine, whatever is killed."""

from pathlib import Path

import pytest

from e2e.engines import kill_engine
from e2e.jobs import ENGINE, ended, show, submit
from testbed.gridengine import GridEngine
from testbed.slurm import Slurm
from testbed.tow import Tow

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

CLUSTERS = """
[clusters.lab]
machines = [{ ssh = "h2", cpus = 32 }]
[clusters.cedar]
kind = "slurm"
host = "cedar"
[clusters.msc]
kind = "gridengine"
host = "msc"
"""
#: The clock is the same for all of them: hosts are namespaces of one machine.
STAMP = 'echo "$0" >> "$HOME/ran-$0"; date +%s.%N; sleep 0.2; date +%s.%N; exit "$1"'


def configure(tow: Tow, slurm: Slurm, grid: GridEngine) -> None:
    """Let `tow` know the hosts of both; h2 is the Slurm's."""
    (tow.home / "config.toml").write_text(f"{ENGINE}{CLUSTERS}")
    both = tow.home / "ssh_config"
    both.write_text(
        f"Host msc\n  Include {grid.ssh_config}\nHost *\n  Include {slurm.ssh_config}\n"
    )
    tow.env["TOWLINE_SSH_CONFIG"] = str(both)


def a_job(tow: Tow, name: str, cluster: str, *options: str, code: int = 0) -> int:
    words = ("-t", name, "-c", cluster, *options, "--", "sh", "-c", STAMP, name, str(code))
    return submit(tow, *words, env={"HOME": str(tow.home)})


def span(tow: Tow, job: int) -> tuple[float, float]:
    began, over = tow("log", str(job)).stdout.split()
    return float(began), float(over)


def test_a_diamond_over_three_clusters_runs_once_and_in_order(
    tow: Tow, slurm: Slurm, gridengine: GridEngine
) -> None:
    configure(tow, slurm, gridengine)
    first = a_job(tow, "first", "lab")
    left = a_job(tow, "left", "cedar", "--after", "first")
    right = a_job(tow, "right", "msc", "--after", str(first))
    bottom = a_job(tow, "bottom", "lab", "--after", f"left,{right}")
    kill_engine(tow.home)
    waiting = tow.popen("wait", str(left), str(right), str(bottom))
    for job in (first, left, right, bottom):
        assert ended(tow, job, timeout=120)["state"] == "done"
        kill_engine(tow.home)
    assert waiting.wait(60) == 0, waiting.stderr and waiting.stderr.read()
    spans = {job: span(tow, job) for job in (first, left, right, bottom)}
    assert spans[first][1] <= min(spans[left][0], spans[right][0])
    assert max(spans[left][1], spans[right][1]) <= spans[bottom][0]
    homes = {"first": slurm, "left": slurm, "right": gridengine}
    for name, home in homes.items():
        assert home.worker("cat", f"ran-{name}") == f"{name}\n"
    assert Path(slurm.home("h2"), "ran-bottom").read_text() == "bottom\n"
    assert [show(tow, job)["attempt"] for job in spans] == [1, 1, 1, 1]


def test_a_failed_corner_ends_the_rest_as_skipped(
    tow: Tow, slurm: Slurm, gridengine: GridEngine
) -> None:
    configure(tow, slurm, gridengine)
    first = a_job(tow, "first", "lab")
    left = a_job(tow, "left", "msc", "--after", "first", code=3)
    right = a_job(tow, "right", "local", "--after", "first")
    bottom = a_job(tow, "bottom", "cedar", "--after", "left,right")
    after_it = a_job(tow, "after it", "cedar", "--after", "bottom")
    kill_engine(tow.home)
    assert tow("wait", "bottom", "after it", timeout=120).returncode == 1
    assert [ended(tow, job)["state"] for job in (first, left, right)] == ["done", "failed", "done"]
    told = show(tow, bottom)
    assert (told["state"], told["reason"]) == ("skipped", f"job {left} failed")
    assert told["because"] == {"kind": "after", "job": left, "state": "failed"}
    assert show(tow, after_it)["because"]["job"] == bottom
    assert f"job {left} failed" in tow("why", "bottom").stdout
    refused = tow("retry", "bottom")
    assert (refused.returncode, f"tow retry {left} {bottom}" in refused.stderr) == (2, True)
