"""Kill the client, the Engine, an agent and a whole host in the middle of a batch with a retry:
every line ran exactly once, but for those that were running on the killed host."""

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from e2e.checker import LINES, lines_on
from e2e.engines import kill_engine
from e2e.jobs import configure
from testbed.hosts import Hosts
from testbed.processes import processes_on
from testbed.tow import Tow
from testbed.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow]

LAB = ("h1", "h2", "h3")
DOOMED = "h3"
COUNT = 2000
#: The most that run on a host at a time.
AT_ONCE = 48
LINE = f'echo {{0}} >> "$HOME/{LINES}"; sleep 0.3; echo ended {{0}}'


def view(tow: Tow) -> dict[str, Any]:
    found: dict[str, Any] = tow.json("batch", "show", "lines")["batch"]
    return found


def await_done(tow: Tow, count: int) -> None:
    wait_until(lambda: view(tow)["counts"]["done"] >= count, timeout=120, every=0.2)


@pytest.mark.timeout(300)
def test_every_line_runs_once_whatever_is_killed(hosts: Hosts, tow: Tow, tow_home: Path) -> None:
    configure(tow, *LAB, more="lost_after_s = 6")
    lines = [LINE.format(number) for number in range(1, COUNT + 1)]
    (tow.folder / "lines").write_text("\n".join(lines) + "\n")
    client = tow.popen("batch", "-c", "lab", "--retries", "1", "lines")
    wait_until(lambda: (tow.folder / "job_results").exists(), timeout=60)
    await_done(tow, COUNT // 10)
    client.kill()
    client.wait()
    kill_engine(tow_home)
    await_done(tow, COUNT // 5)
    for pid in processes_on(hosts, "h1", "tow-agent"):
        os.kill(pid, signal.SIGKILL)
    await_done(tow, COUNT // 3)
    # What ended while no Engine was there does not come with the news of its end, but is asked for
    # afterwards; what a host has alone when it is gone for good is gone with it.
    wait_until(lambda: view(tow)["pending"] == 0, timeout=60)
    hosts.kill(DOOMED)
    for _ in range(3):
        done = tow("batch", "-c", "lab", "lines", "--resume", timeout=200)
        if done.returncode == 0:
            break
    assert done.returncode == 0, done.stderr
    assert view(tow)["counts"]["done"] == COUNT
    hosts.boot(DOOMED)  # its disk tells what ran there
    ran = lines_on(hosts, LAB)
    runs = Counter(line for some in ran.values() for line in some)
    assert set(runs) == {str(number) for number in range(1, COUNT + 1)}
    again = {line for line, count in runs.items() if count > 1}
    assert all(runs[line] == 2 for line in again)
    assert again <= set(ran[DOOMED]), "only what ran on the killed host may run again"
    assert len(again) <= AT_ONCE
    for number in range(1, COUNT + 1):
        printed = tow.folder / "job_results" / f"lines.{number}.out"
        assert printed.read_text() == f"ended {number}\n"
