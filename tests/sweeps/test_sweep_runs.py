"""Runs of a launcher's sweep, one by one: where each stands, what it printed, and again."""

import os
import signal
from collections import Counter
from typing import Any

import pytest

from e2e.jobs import engine_pid
from sweeps.test_hydra_launcher import DUCK, HERE, App
from testbed.hosts import Hosts
from testbed.tow import Tow
from testbed.waiting import wait_until

LATER = "hydra.launcher.wait_for_completion=false"
TWO = (*DUCK, LATER, "hydra.launcher.parallel_runs_per_node=2")
#: Runs that say how they end, each by its own words.
FIVE = "how=well,flaky,kill,exit,again"


@pytest.fixture
def app(tow: Tow) -> App:
    return App(tow)


def runs(tow: Tow, name: str = "train") -> dict[int, dict[str, Any]]:
    return {run["run"]: run for run in tow.json("sweep", "table", name)["runs"]}


def states(tow: Tow, name: str = "train") -> list[str]:
    return [run["state"] for _, run in sorted(runs(tow, name).items())]


def test_every_run_of_a_pack_has_its_row_its_log_and_its_own_second_try(app: App, tow: Tow) -> None:
    done = app(*TWO, FIVE)
    assert done.returncode == 0 and "tow sweep status -f train" in done.stdout
    followed = tow("sweep", "status", "-f", "train", timeout=100)
    assert followed.returncode == 1
    assert "failed run 1 on this (ValueError: not at first): how=flaky" in followed.stdout
    table = runs(tow)
    assert [table[n]["state"] for n in range(5)] == ["done", "failed", "failed", "failed", "done"]
    assert [table[n]["reason"] for n in (2, 3)] == [
        "killed by signal 9 (SIGKILL)",
        "left with exit code 7",
    ]
    assert table[4]["values"] == "how=again" and table[4]["exit_code"] == 0
    # One job of the Engine ran all of them.
    assert tow.json("batch", "list")["batches"][0]["count"] == 1
    said = tow("sweep", "status", "train").stdout
    assert "5 of 5" in said and "2 done, 3 failed" in said and "tow sweep retry train" in said
    log = tow("sweep", "log", "train", "4").stdout
    assert "printed by again" in log and "printed by well" not in log
    assert "it has no run 9" in tow("sweep", "log", "train", "9").stderr
    (app.folder / "helper.py").write_text("VERSION = 2\n")
    again = tow("sweep", "--rerun-failed", "train", timeout=100)
    assert again.returncode == 1 and "3 done, 2 failed" in again.stdout
    # Only what was missing, in its folder and under its number, with the files of that time.
    times = Counter(line.split()[0] for line in app.ran())
    assert times == {"0": 1, "1": 2, "2": 2, "3": 2, "4": 1}
    assert app.saw(1)["how"] == "flaky" and app.saw(1)["helper"] == 1
    assert states(tow) == ["done", "done", "failed", "failed", "done"]
    assert tow.json("sweep", "status", "train")["sweep"]["batches"] == ["train", "train-2"]
    # The later batch is the same sweep.
    assert states(tow, "train-2") == states(tow)
    told = tow("sweep", "results", "train").stdout
    assert "5 of 5 have ended; what they made is in out" in told


def test_runs_are_seen_while_they_run_and_stopped_together(app: App, tow: Tow) -> None:
    assert app(*TWO, "seconds=0.0,1000,1001,1002").returncode == 0
    wait_until(lambda: states(tow) == ["done", "running", "running", "queued"], 60, every=0.3)
    assert "printed by well" in tow("sweep", "log", "train", "1").stdout
    said = tow("sweep", "status", "train").stdout
    assert "1 done, 2 running, 1 waiting" in said and "tow sweep status -f train" in said
    assert tow("sweep", "stop", "train").returncode == 0
    wait_until(lambda: states(tow) == ["done", *["stopped"] * 3], 60, every=0.3)


def test_what_a_job_had_no_time_for_is_carried_into_another(app: App, tow: Tow) -> None:
    words = (*HERE, "hydra.launcher.parallel_runs_per_node=1", "hydra.launcher.timeout_min=0.2")
    done = app(*words, "hydra.launcher.max_num_timeout=3", "how=well,sleepy")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [app.saw(number)["how"] for number in (0, 1)] == ["well", "sleepy"]
    # The first was done when the time was over.
    assert Counter(line.split()[0] for line in app.ran()) == {"0": 1, "1": 2}
    batches = tow.json("batch", "list")["batches"]
    assert [one["name"] for one in batches] == ["train", "train-2"]


@pytest.mark.real
def test_a_sweep_whose_launcher_and_engine_are_killed_is_complete_and_nothing_ran_twice(
    app: App, tow: Tow, hosts: Hosts
) -> None:
    (tow.home / "config.toml").write_text('[clusters.lab]\nmachines = ["h1", "h2"]\n')
    words = ["hydra/launcher=towline", "hydra.launcher.cluster=lab"]
    words += ["hydra.launcher.parallel_runs_per_node=2", "hydra.launcher.total_runs_per_node=4"]
    launcher = app.popen(*words, "how=a,b,c,flaky,d,e,f,kill", "seconds=2", **app.with_hydra())

    def begun() -> list[str]:
        places = [hosts.home(host) / "ran" for host in ("h1", "h2")]
        return [
            line.split()[0]
            for place in places
            if place.exists()
            for line in place.read_text().splitlines()
        ]

    wait_until(lambda: len(begun()) >= 3, 100)
    launcher.kill()
    launcher.wait()
    os.kill(engine_pid(tow), signal.SIGKILL)
    # Machines that do not see the sweep's folder tell all the same.
    assert set(states(tow)) <= {"queued", "running", "done", "failed"}
    assert tow("sweep", "status", "-f", "train", timeout=100).returncode == 1
    expected = ["done", "done", "done", "failed", "done", "done", "done", "failed"]
    assert states(tow) == expected
    assert sorted(begun()) == [str(number) for number in range(8)]
    assert tow("sweep", "results", "train").returncode == 0
    assert [app.saw(number)["how"] for number in (0, 1, 2, 4, 5, 6)] == list("abcdef")
    assert "printed by e" in tow("sweep", "log", "train", "5").stdout
    # Only what is missing, wherever it goes now.
    tow("sweep", "retry", "-f", "train", timeout=100)
    assert sorted(begun()) == sorted([*map(str, range(8)), "3", "7"])
    assert runs(tow)[7]["state"] == "failed"
