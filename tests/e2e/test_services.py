"""What runs beside a job is a click away: on this machine, on ssh machines, over cuts and kills."""

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.boards import TRAIN, page, python_for_hosts, shows
from e2e.engines import kill_engine
from e2e.jobs import complaint, configure, ended, submit, told, wait_for
from e2e.person import Person
from testbed.hosts import Hosts
from testbed.tow import Tow
from testbed.waiting import wait_until

SERVE = "exec python3 -m http.server --bind 127.0.0.1 $PORT"
LASTING = "echo $PROCESS_INDEX > made; until [ -e end ]; do sleep 0.1; done"


@pytest.fixture(scope="module")
def with_board() -> Iterator[str]:
    with python_for_hosts() as setup:
        yield setup


def service(tow: Tow, job: int, state: str = "up", place: int = 0) -> dict[str, Any]:
    """A service of the job, once it stands so."""

    def look() -> dict[str, Any] | None:
        seen: dict[str, Any] = tow.json("services", str(job))["services"][place]
        return seen if seen["state"] == state else None

    return wait_until(look, 60, on_timeout=lambda: tow("services").stdout, every=0.2)


def end(tow: Tow, job: int) -> None:
    tow("exec", str(job), "touch", "end")
    assert ended(tow, job)["state"] == "done"


@pytest.mark.real
@pytest.mark.timeout(240)
def test_tensorboard_shows_the_scalars_of_a_job_on_an_ssh_machine_over_cut_and_kill(
    hosts: Hosts, tow: Tow, with_board: str
) -> None:
    """The same URL before and after, while nobody does anything."""
    configure(tow, "h1")
    (tow.folder / "train.py").write_text(TRAIN)
    options = ("-c", "lab", "--setup", with_board, "--service", "tensorboard", "--logdir", "runs")
    follower = tow.popen("run", *options, "python3", "train.py")
    line = told(follower, "tensorboard: ")
    assert re.fullmatch(r"job 1 · lab · tensorboard: http://localhost:\d+\n", line)
    url = line.split()[-1]
    shows(f"{url}/data/plugin/scalars/tags", '"loss"')
    shows(f"{url}/data/plugin/scalars/scalars?run=.&tag=loss", ", 0.25]")
    hosts.cut("h1")
    assert service(tow, 1, "unreachable")["url"] == url
    hosts.heal("h1")
    shows(f"{url}/data/plugin/scalars/tags", '"loss"', timeout=90)
    kill_engine(tow.home)
    # `tow run` starts another one by itself.
    shows(f"{url}/data/plugin/scalars/tags", '"loss"')
    assert service(tow, 1)["url"] == url
    tow("exec", "1", "touch", "end")
    assert follower.wait(60) == 0
    assert page(url) == ""


@pytest.mark.real
def test_a_service_ends_with_its_job_over_there(hosts: Hosts, tow: Tow) -> None:
    configure(tow, "h1")
    job = submit(tow, "-c", "lab", "--service", SERVE, "sh", "-c", LASTING)
    url = service(tow, job)["url"]
    assert page(f"{url}/made") == "0\n"
    running = hosts.run("h1", ["ps", "-eo", "args"]).stdout
    assert "http.server" in str(running)
    assert tow("stop", str(job)).returncode == 0
    assert ended(tow, job)["state"] == "stopped"
    assert "http.server" not in str(hosts.run("h1", ["ps", "-eo", "args"]).stdout)
    wait_until(lambda: page(url) == "")


@pytest.mark.real
def test_without_tensorboard_over_there_the_job_runs_and_a_line_says_what_to_install(
    hosts: Hosts, tow: Tow
) -> None:
    configure(tow, "h1")
    follower = tow.popen("run", "-c", "lab", "--service", "tensorboard", "sh", "-c", LASTING)
    assert "pip install tensorboard" in told(follower, "tensorboard does not run: ")
    assert "pip install tensorboard" in complaint(tow("open", "1"), 1)
    tow("exec", "1", "touch", "end")
    assert follower.wait(60) == 0


@pytest.mark.real
@pytest.mark.timeout(240)
def test_several_jobs_are_shown_in_one_tensorboard_running_or_ended(
    hosts: Hosts, tow: Tow, with_board: str
) -> None:
    configure(tow, "h1", "h2")
    (tow.folder / "train.py").write_text(TRAIN)
    options = ("-c", "lab", "--setup", with_board)
    jobs = [submit(tow, *options, "-t", name, "python3", "train.py") for name in ("one", "two")]
    for job in jobs:
        wait_until(lambda job=job: "trained" in tow("log", str(job)).stdout, 60, every=0.3)
    end(tow, jobs[0])
    tools = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    board = tow.popen("tensorboard", *map(str, jobs), env={"PATH": tools})
    assert board.stdout is not None
    url = board.stdout.readline().strip()
    assert url.startswith("http://localhost:")
    tags = shows(f"{url}/data/plugin/scalars/tags", "2-two/runs")
    assert '"1-one/runs"' in tags and tags.count('"loss"') == 2
    board.send_signal(signal.SIGTERM)
    assert board.wait(30) == 0
    killed = tow.popen("tensorboard", str(jobs[0]), env={"PATH": tools})
    assert killed.stdout is not None
    url = killed.stdout.readline().strip()
    wait_until(lambda: page(url), timeout=30)
    killed.kill()
    wait_until(lambda: not page(url), timeout=30)
    end(tow, jobs[1])


def test_services_are_listed_opened_and_their_output_is_read(tow: Tow) -> None:
    assert "no services" in tow("services").stdout
    configure(tow)
    hello = "echo hello http://localhost:$PORT/lab?token=s3cret; " + SERVE
    job = submit(tow, "--service", hello, "--service", SERVE, "sh", "-c", LASTING)
    first, second = service(tow, job), service(tow, job, place=1)
    assert (first["name"], second["name"]) == ("echo", "http.server")
    assert first["url"] == f"http://localhost:{first['local']}/lab?token=s3cret"
    table = tow("services").stdout
    assert first["url"] in table and second["url"] in table
    assert tow("open", str(job)).stdout == first["url"] + "\n"
    assert tow("open", "last", "http.server").stdout == second["url"] + "\n"
    assert tow("log", "--service", "echo", str(job)).stdout.startswith("hello http://")
    assert "no service 'other'" in complaint(tow("log", "--service", "other", str(job)), 2)
    end(tow, job)
    assert "its services have ended" in complaint(tow("open", str(job)), 2)
    assert tow("log", "--service", "echo", str(job)).stdout.startswith("hello http://")
    assert "no services" in tow("services").stdout


def test_a_person_gets_it_in_the_browser_and_without_one_its_url(tow: Tow) -> None:
    configure(tow)
    job = submit(tow, "--service", SERVE, "sh", "-c", LASTING)
    url = service(tow, job)["url"]
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        tow.env.pop(name, None)
    with Person(tow, "open", str(job)) as person:
        assert person.leaves() == 0 and person.shown.strip() == url
    browser, opened = tow.home / "browser", tow.home / "opened"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    browser.chmod(0o755)
    tow.env["BROWSER"] = f"{browser} %s"
    with Person(tow, "open", str(job)) as person:
        assert person.leaves() == 0 and f"opened {url}" in person.shown
    assert opened.read_text() == url + "\n"
    end(tow, job)


def test_a_retried_job_has_its_service_again(tow: Tow) -> None:
    configure(tow)
    job = submit(tow, "--service", SERVE, "sh", "-c", LASTING)
    before = service(tow, job)["url"]
    end(tow, job)
    assert tow("retry", str(job)).returncode == 0
    wait_for(tow, job, "running")
    assert page(service(tow, job)["url"] + "/made") == "0\n"
    assert service(tow, job)["url"] == before
    end(tow, job)


def test_what_cannot_be_is_said_before_anything_starts(tow: Tow) -> None:
    configure(tow)
    assert "--service tensorboard" in complaint(tow("run", "--logdir", "runs", "true"), 2)
    assert "needs a command" in complaint(tow("run", "--service", " ", "true"), 2)
    assert tow("run", "true").returncode == 0
    assert "has no services" in complaint(tow("open", "last"), 2)
