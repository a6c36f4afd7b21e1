"""Hydra sweeps whose runs share the allocations of a real Slurm and of a real Grid Engine."""

import os
from collections import Counter
from itertools import combinations
from typing import Any

import pytest

from e2e.grid_jobs import configure
from e2e.slurm_jobs import configure as configure_slurm
from sweeps.test_hydra_launcher import App
from testbed.gridengine import GridEngine
from testbed.slurm import Slurm
from testbed.tow import Tow
from testbed.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

#: The seed's own block, for a partition and a number of GPUs that there are here.
SEED = """
defaults:
  - override hydra/launcher: clusterduck_slurm
  - _self_
how: well
seconds: 0.3
tag: none
hydra:
  launcher:
    timeout_min: 5
    partition: gpu
    gres: gpu:2
    parallel_runs_per_node: 4
    total_runs_per_node: 8
    wait_for_completion: True
    resources_config:
      cpu:
      cuda:
        gpus: [0, 1, MIG-2, GPU-3]
      stagger:
        delay: 0.1
"""


@pytest.fixture
def app(tow: Tow) -> App:
    return App(tow)


def table(tow: Tow) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tow.json("sweep", "table", "train")["runs"]
    return found


def check_gpus(saw: list[dict[str, Any]]) -> None:
    """No GPU of a job is two runs' at a time."""
    for one, other in combinations(saw, 2):
        if (one["job"], one["gpus"]) == (other["job"], other["gpus"]):
            assert one["ended"] <= other["began"] or other["ended"] <= one["began"]


def test_sixty_four_runs_share_eight_allocations_of_a_slurm(
    app: App, tow: Tow, slurm: Slurm
) -> None:
    configure_slurm(tow)
    (app.folder / "conf" / "config.yaml").write_text(SEED)
    how = [f"r{number}" for number in range(64)]
    how[5], how[12] = "kill", "segfault"
    done = app(f"how={','.join(how)}", "+hydra.launcher.nice=5", **app.with_hydra())
    said = done.stdout + done.stderr
    assert done.returncode == 1 and "2 of 64 runs failed" in said, said
    assert "killed by signal 9" in said and "signal 11 (segmentation fault)" in said
    runs = table(tow)
    assert {run["run"] for run in runs if run["state"] != "done"} == {5, 12}
    assert set(Counter(run["job"] for run in runs).values()) == {8}
    assert len({run["job"] for run in runs}) == 8
    saw = [{**app.saw(run["run"]), "job": run["job"]} for run in runs if run["state"] == "done"]
    assert {one["gpus"] for one in saw} == {"0", "1", "MIG-2", "GPU-3"}
    check_gpus(saw)
    assert len({one["tmp"] for one in saw}) == 62
    # What an allocation runs at a time.
    for job in {one["job"] for one in saw}:
        mine = [one for one in saw if one["job"] == job]
        assert (
            max(
                sum(other["began"] <= one["began"] < other["ended"] for other in mine)
                for one in mine
            )
            <= 4
        )


def test_runs_share_hosts_of_a_grid_engine_and_each_fails_alone(
    app: App, tow: Tow, gridengine: GridEngine
) -> None:
    for host in ("h2", "h3"):
        gridengine.set_gpus(host, [{"index": 0}, {"index": 1}])
    configure(tow)
    words = ["hydra/launcher=towline", "hydra.launcher.cluster=msc"]
    words += ["hydra.launcher.gpus_per_node=2", "hydra.launcher.parallel_runs_per_node=2"]
    words += ["hydra.launcher.total_runs_per_node=8"]
    words += ["+hydra.launcher.resources_config={cpu: null, cuda: null}", "seconds=0.5"]
    how = [f"r{number}" for number in range(16)]
    how[5], how[12] = "kill", "segfault"
    done = app(f"how={','.join(how)}", *words, **app.with_hydra())
    said = done.stdout + done.stderr
    assert done.returncode == 1 and "2 of 16 runs failed" in said, said
    runs = table(tow)
    assert {run["run"] for run in runs if run["state"] != "done"} == {5, 12}
    assert sorted(Counter(run["job"] for run in runs).values()) == [8, 8]
    saw = [{**app.saw(run["run"]), "job": run["job"]} for run in runs if run["state"] == "done"]
    assert {one["gpus"] for one in saw} == {"0", "1"}
    check_gpus(saw)
    if (os.cpu_count() or 1) > 1:
        # A slot has its own CPUs, as it has its own GPU.
        assert len({(one["gpus"], *one["cpus"]) for one in saw}) == 2
        first, second = ({tuple(o["cpus"]) for o in saw if o["gpus"] == gpu} for gpu in "01")
        assert not {cpu for cpus in first for cpu in cpus} & {c for cpus in second for c in cpus}


def test_the_prompt_is_back_at_once_and_runs_are_seen_while_they_run_over_there(
    app: App, tow: Tow, slurm: Slurm
) -> None:
    configure_slurm(tow)
    words = ["hydra/launcher=clusterduck_slurm", "hydra.launcher.parallel_runs_per_node=2"]
    done = app(*words, "seconds=0.0,1000,1001", **app.with_hydra())
    assert done.returncode == 0, done.stderr

    def states() -> list[str]:
        return [run["state"] for run in table(tow)]

    wait_until(lambda: states() == ["done", "running", "running"], 100, every=0.5)
    assert "printed by well" in tow("sweep", "log", "train", "1").stdout
    assert not (app.folder / "out" / "0" / "result.json").exists()
    assert tow("sweep", "stop", "train").returncode == 0
    wait_until(lambda: states() == ["done", "stopped", "stopped"], 60, every=0.5)
    tow("sweep", "results", "train")
    assert app.saw(0)["how"] == "well"
