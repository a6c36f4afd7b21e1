"""Short jobs 50 ms away: they do not wait for a round trip, and each runs once whatever breaks."""

import contextlib
import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from e2e.checker import LINES, lines_on
from e2e.engines import kill_engine
from e2e.jobs import configure, submit, wait_for
from testbed.far import far_config
from testbed.hosts import Hosts
from testbed.processes import processes_on
from testbed.tow import Tow
from testbed.waiting import wait_until
from towline.client.session import Session

pytestmark = [pytest.mark.real, pytest.mark.slow]

ROUND_TRIP_S = 0.05
COUNT = 600
LINE = f'echo {{0}} >> "$HOME/{LINES}"'


@pytest.fixture
def far(hosts: Hosts, tow: Tow, tmp_path: Path) -> Tow:
    """`tow`, with a host of two CPUs at the end of a long way."""
    config = far_config(hosts.ssh_config, ROUND_TRIP_S, tmp_path)
    tow.env["TOWLINE_SSH_CONFIG"] = str(config)
    configure(tow, "h1", cpus=2)
    return tow


def view(tow: Tow) -> dict[str, Any]:
    found: dict[str, Any] = tow.json("batch", "show", "lines")["batch"]
    return found


def await_done(tow: Tow, count: int) -> None:
    wait_until(
        lambda: view(tow)["counts"]["done"] >= count,
        timeout=120,
        every=0.05,
        on_timeout=lambda: view(tow),
    )


def write_lines(tow: Tow, line: str, count: int) -> None:
    text = "".join(line.format(number) + "\n" for number in range(1, count + 1))
    (tow.folder / "lines").write_text(text)


def sent_ahead(hosts: Hosts) -> int:
    """How many jobs that ran on the host were there before they had a place."""
    found = 0
    for path in hosts.home("h1").glob(".towline/records/*/exit"):
        record = json.loads(path.read_text())
        found += record["spec"].get("places", 0) > 0 and record["code"] == 0
    return found


def kill_sessions(hosts: Hosts) -> None:
    """What carries the connection to the host."""
    for pid in processes_on(hosts, "h1", "sshd"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if os.stat(f"/proc/{pid}").st_uid:
                os.kill(pid, signal.SIGKILL)


def kill_agents(hosts: Hosts) -> None:
    for pid in processes_on(hosts, "h1", "tow-agent"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.timeout(300)
def test_each_short_line_far_away_runs_once_whatever_is_killed(
    hosts: Hosts, far: Tow, tow_home: Path
) -> None:
    write_lines(far, LINE, COUNT)
    client = far.popen("batch", "-c", "lab", "lines")
    wait_until(lambda: far("batch", "show", "lines").returncode == 0, timeout=60)
    try:
        for number in range(1, 10):
            await_done(far, number * COUNT // 12)
            if number % 3 == 0:
                kill_engine(tow_home)
            else:
                (kill_agents if number % 3 == 1 else kill_sessions)(hosts)
        await_done(far, COUNT)
    finally:
        client.kill()
        client.wait()
    assert view(far)["counts"]["done"] == COUNT
    runs = Counter(line for some in lines_on(hosts, ("h1",)).values() for line in some)
    assert runs == {str(number): 1 for number in range(1, COUNT + 1)}
    assert sent_ahead(hosts) > COUNT // 10


@pytest.mark.timeout(120)
def test_a_job_sent_ahead_says_what_it_waits_for_and_can_be_stopped(hosts: Hosts, far: Tow) -> None:
    write_lines(far, f"{LINE}; sleep 0.05", COUNT)
    client = far.popen("batch", "-c", "lab", "lines")
    try:
        wait_until(lambda: far("batch", "show", "lines").returncode == 0, timeout=60)
        await_done(far, 30)

        def explained() -> bool:
            # Over one connection: while programs of their own are started to ask, the jobs end.
            first = session.call("GET", "/v1/batches/lines")["batch"]["counts"]["done"]
            some = range(first + 1, min(first + 40, COUNT + 1), 4)
            asked = (session.call("GET", f"/v1/jobs/{job}/why") for job in some)
            return any(
                "it is next on h1, and starts as soon as job" in one["text"] for one in asked
            )

        session = Session()
        wait_until(explained, timeout=60, every=0.01)
        assert far("stop", "lines").returncode == 0
        wait_until(lambda: client.poll() is not None, timeout=60)
    finally:
        client.kill()
        client.wait()
    counts = view(far)["counts"]
    assert counts["stopped"] and counts["stopped"] + counts["done"] == COUNT
    runs = Counter(line for some in lines_on(hosts, ("h1",)).values() for line in some)
    assert max(runs.values()) == 1
    after = submit(far, "-c", "lab", "true")
    assert wait_for(far, after, "done")["exit_code"] == 0


@pytest.mark.timeout(120)
def test_an_urgent_job_does_not_wait_for_what_was_sent_ahead(hosts: Hosts, far: Tow) -> None:
    write_lines(far, f"{LINE}; sleep 0.1", 300)
    client = far.popen("batch", "-c", "lab", "lines")
    try:
        wait_until(lambda: far("batch", "show", "lines").returncode == 0, timeout=60)
        await_done(far, 20)
        urgent = submit(far, "-c", "lab", "--priority", "5", "true")
        wait_for(far, urgent, "done")
        assert view(far)["counts"]["done"] < 300
        assert far("stop", "lines").returncode == 0
        wait_until(lambda: client.poll() is not None, timeout=60)
    finally:
        client.kill()
        client.wait()
    runs = Counter(line for some in lines_on(hosts, ("h1",)).values() for line in some)
    assert max(runs.values()) == 1
