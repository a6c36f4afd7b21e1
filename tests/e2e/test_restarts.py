"""Clusters that change while their jobs run, and Engines that come back to what there is."""

import os
import signal

import pytest

from e2e.engines import kill_engine
from e2e.jobs import configure, ended, show, submit, wait_for
from testbed.hosts import Hosts
from testbed.leftovers import belonging_to
from testbed.processes import name_of, parent_of, processes_on
from testbed.tow import Tow
from testbed.waiting import wait_until

pytestmark = pytest.mark.real

UNTIL_END = 'echo began; until [ -e "$HOME/end" ]; do sleep 0.1; done; echo over; exit 6'


@pytest.mark.parametrize("restarted", [False, True])
def test_a_job_goes_on_though_its_machine_leaves_the_configuration(
    hosts: Hosts, tow: Tow, restarted: bool
) -> None:
    configure(tow, "h1")
    stays = submit(tow, "-c", "lab", "sh", "-c", UNTIL_END)
    wait_for(tow, stays, "running")
    configure(tow, "h2")
    later = submit(tow, "-c", "lab", "true")
    assert ended(tow, later)["machines"] == ["h2"]
    if restarted:
        kill_engine(tow.home)
    assert show(tow, stays)["state"] == "running"
    (hosts.home("h1") / "end").touch()
    assert ended(tow, stays)["exit_code"] == 6
    assert tow("log", str(stays)).stdout == "began\nover\n"


@pytest.mark.parametrize("place", ["local", "lab"])
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_job_whose_supervisor_is_killed_keeps_its_end_though_the_engine_goes_too(
    hosts: Hosts, tow: Tow, place: str, how: str
) -> None:
    configure(tow, "h1")
    end = hosts.home("h1") / "end" if place == "lab" else tow.home / "end"
    there = "/home/worker/end" if place == "lab" else str(end)
    script = UNTIL_END.replace("$HOME/end", "$1")
    job = submit(tow, "-c", place, "sh", "-c", script, "sh", there)
    wait_for(tow, job, "running")
    shells = processes_on(hosts, "h1", "sh") if place == "lab" else belonging_to(tow.home)
    above = {parent_of(pid) for pid in shells if name_of(pid) == "sh"}
    (supervisor,) = (pid for pid in above if name_of(pid) == "tow-supervisor")
    os.kill(supervisor, signal.SIGKILL)
    wait_until(lambda: name_of(supervisor) == "")
    if how == "killed":
        kill_engine(tow.home)
    else:
        assert tow("engine", "stop").returncode == 0
    end.touch()
    assert ended(tow, job)["exit_code"] == 6
    assert tow("log", str(job)).stdout == "began\nover\n"


def test_a_cluster_with_jobs_is_not_removed(hosts: Hosts, tow: Tow) -> None:
    configure(tow, "h1")
    number = submit(tow, "-c", "lab", "sh", "-c", UNTIL_END)
    wait_for(tow, number, "running")
    refused = tow("clusters", "remove", "lab")
    assert refused.returncode != 0
    assert f"still has jobs: {number}" in refused.stderr and "tow stop" in refused.stderr
    assert "lab" in (tow.home / "config.toml").read_text()
    assert tow("stop", str(number)).returncode == 0
    ended(tow, number)
    assert tow("clusters", "remove", "lab").returncode == 0
    assert "lab" not in (tow.home / "config.toml").read_text()


@pytest.mark.parametrize("restarted", [False, True])
def test_a_job_of_a_removed_cluster_is_not_retried_but_told_why(
    hosts: Hosts, tow: Tow, restarted: bool
) -> None:
    configure(tow, "h1")
    number = submit(tow, "-c", "lab", "false")
    assert ended(tow, number)["state"] == "failed"
    assert tow("clusters", "remove", "lab").returncode == 0
    if restarted:
        kill_engine(tow.home)
    refused = tow("retry", str(number))
    assert refused.returncode == 2
    assert "'lab'" in refused.stderr and "tow clusters add lab" in refused.stderr
    assert show(tow, number)["state"] == "failed"


def test_an_ended_job_is_read_and_retried_by_the_next_engine(hosts: Hosts, tow: Tow) -> None:
    configure(tow, "h1")
    number = submit(tow, "-c", "lab", "sh", "-c", "echo once more; echo to err >&2")
    ended(tow, number)
    kill_engine(tow.home)
    told = tow("log", str(number))
    assert (told.stdout, told.stderr.count("to err\n")) == ("once more\n", 1)
    kill_engine(tow.home)
    assert tow("retry", str(number)).returncode == 0
    again = wait_for(tow, number, "done")
    assert again["attempt"] == 2
    assert tow("log", str(number)).stdout == "once more\n"


def test_a_job_runs_though_a_restored_store_gives_its_number_out_again(
    hosts: Hosts, tow: Tow
) -> None:
    configure(tow, "h1")
    first = submit(tow, "-c", "lab", "true")
    ended(tow, first)
    assert tow("engine", "stop").returncode == 0
    backup = {file: file.read_bytes() for file in tow.home.glob("store.db*")}
    said_before = tow("run", "-c", "lab", "echo", "I am the old one")
    assert said_before.stdout == "I am the old one\n"
    assert tow("engine", "stop").returncode == 0
    for file in tow.home.glob("store.db*"):
        file.unlink()
    for file, content in backup.items():
        file.write_bytes(content)
    done = tow("run", "-c", "lab", "sh", "-c", "echo I am the new one; exit 5")
    assert (done.returncode, done.stdout) == (5, "I am the new one\n")
    again = show(tow, first + 1)
    assert (again["state"], again["exit_code"], again["attempt"]) == ("failed", 5, 1)
