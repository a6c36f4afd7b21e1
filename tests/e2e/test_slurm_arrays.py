"""Batches on a real Slurm are job arrays: few calls of sbatch, and every line runs once."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e.jobs import engine_pid
from e2e.slurm_jobs import configure, queue_lines
from e2e.test_slurm_faults import end_all_of_the_user
from testbed.daemons import QueueHosts
from testbed.slurm import Slurm
from testbed.tow import Tow
from testbed.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

LINES = 200

#: Refuses as a site does that lets a user have 50 jobs in the queue.
FULL = """\
tasks=$(echo "$*" | sed 's/.*--array=\\([0-9,-]*\\).*/\\1/' |
  awk -v RS=, '{ n = split($1, a, "-"); s += n > 1 ? a[2] - a[1] + 1 : 1 } END { print s }')
if [ $(($(squeue -h -r -u worker | wc -l) + tasks)) -gt 50 ]; then
  echo "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy" \
    "(job submit limit, user's size and/or time limits)" >&2
  exit 1
fi
"""
#: Notes how many are at it together.
TOGETHER = "mkdir -p ~/now; touch ~/now/{}; ls ~/now | wc -l >> ~/most; sleep 0.3; rm ~/now/{}; "
NOTE = "echo {} >> ~/lines"


@contextmanager
def noted(slurm: Slurm, first: str = "", then: str = "") -> Iterator[Path]:
    """Write down every call of sbatch that submits something, one line each."""
    sbatch = slurm.root("h1") / "usr/bin/sbatch"
    calls = slurm.root("h1") / "tmp/calls"
    calls.unlink(missing_ok=True)
    slurm.control("mv", "/usr/bin/sbatch", "/usr/bin/sbatch.real")
    try:
        sbatch.write_text(
            '#!/bin/sh\ncase "$*" in *--parsable*) ;; *) exec /usr/bin/sbatch.real "$@"; esac\n'
            f'{first}echo "$*" >> /tmp/calls\n'
            f'/usr/bin/sbatch.real "$@" > /tmp/said.$$ || exit\n{then}cat /tmp/said.$$\n'
        )
        sbatch.chmod(0o755)
        yield calls
    finally:
        slurm.control("mv", "/usr/bin/sbatch.real", "/usr/bin/sbatch")


@contextmanager
def configured(slurm: Slurm, before: str, after: str) -> Iterator[None]:
    """Another line in the site's configuration, for a while."""
    restart_with(slurm, before, after)
    try:
        yield
    finally:
        restart_with(slurm, after, before)


def restart_with(slurm: Slurm, old: str, new: str) -> None:
    slurm.control("scontrol", "shutdown", "slurmctld")
    wait_until(lambda: not slurm.run("h1", ["pgrep", "slurmctld"]).stdout, timeout=30)
    config = slurm.root("h1") / "etc/slurm/slurm.conf"
    config.write_text(config.read_text().replace(old, new))
    slurm.restore()


def write_lines(tow: Tow, count: int, command: str = NOTE, name: str = "many") -> str:
    file = tow.folder / f"{name}.txt"
    file.write_text("".join(f"{command}\n".replace("{}", str(n + 1)) for n in range(count)))
    return file.name


def lines_run(slurm: QueueHosts) -> list[int]:
    """The lines that ran, once for each time."""
    file = slurm.home("h1") / "lines"
    return sorted(map(int, file.read_text().split())) if file.exists() else []


def batch(tow: Tow, name: str = "many") -> dict[str, Any]:
    found: dict[str, Any] = tow.json("batch", "show", name)["batch"]
    return found


def await_end(
    tow: Tow,
    name: str = "many",
    timeout: float = 200,
    meanwhile: Callable[[], None] = lambda: None,
) -> dict[str, int]:
    """How many ended how."""

    def ended() -> dict[str, Any] | None:
        meanwhile()
        found = batch(tow, name)
        return found if found["ended"] else None

    over = wait_until(ended, timeout, on_timeout=lambda: batch(tow, name), every=0.5)
    return {state: count for state, count in over["counts"].items() if count}


def every_line(count: int) -> list[int]:
    return list(range(1, count + 1))


def test_batch_is_one_array_and_each_line_runs_once(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    name = write_lines(tow, LINES)
    with noted(slurm) as calls:
        done = tow("batch", "-c", "cedar", name, timeout=200)
        assert done.returncode == 0, done.stderr[-2000:]
        assert len(calls.read_text().splitlines()) == 1
    assert f"{LINES} done" in done.stdout
    assert lines_run(slurm) == every_line(LINES)


def start(tow: Tow, slurm: Slurm, *words: str, running: int = 0) -> None:
    """Submit a batch of all lines and wait until some have run."""
    assert tow("batch", "-d", "-c", "cedar", *words).returncode == 0
    wait_until(lambda: len(lines_run(slurm)) >= running, timeout=60, every=0.1)


def test_engine_killed_in_the_middle_finds_all_tasks_again(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    with noted(slurm) as calls:
        start(tow, slurm, write_lines(tow, LINES), running=20)
        os.kill(engine_pid(tow), signal.SIGKILL)
        assert await_end(tow) == {"done": LINES}
        assert len(calls.read_text().splitlines()) == 1
    assert lines_run(slurm) == every_line(LINES)


def test_connection_lost_before_sbatch_did_anything_loses_nothing(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    mark = slurm.root("h1") / "tmp/asked"
    with noted(slurm, first="[ -e /tmp/asked ] || { touch /tmp/asked; sleep 60; exit 1; }\n"):
        start(tow, slurm, write_lines(tow, 50))
        wait_until(mark.exists, timeout=60)
        os.kill(engine_pid(tow), signal.SIGKILL)
        end_all_of_the_user(slurm)
        assert await_end(tow) == {"done": 50}
    mark.unlink()
    assert lines_run(slurm) == every_line(50)


def test_no_more_run_at_a_time_than_asked_for(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    with configured(slurm, "MaxArraySize=1001", "MaxArraySize=20"), noted(slurm) as calls:
        start(tow, slurm, "--max-parallel", "4", write_lines(tow, 50, TOGETHER + NOTE))
        assert await_end(tow) == {"done": 50}
        arrays = [line for line in calls.read_text().splitlines() if "--array=" in line]
    assert len(arrays) == 3
    assert "--array=0-19%4 " in arrays[0]
    assert lines_run(slurm) == every_line(50)
    most = max(map(int, (slurm.home("h1") / "most").read_text().split()))
    assert 2 <= most <= 4


def test_full_queue_is_refilled_as_it_drains(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    with noted(slurm, first=FULL) as calls:
        start(tow, slurm, write_lines(tow, LINES))
        assert await_end(tow) == {"done": LINES}
        assert 4 < len(calls.read_text().splitlines()) < 40
    assert lines_run(slurm) == every_line(LINES)


def test_one_line_and_the_whole_batch_can_be_stopped(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    start(tow, slurm, write_lines(tow, 40, "echo {} >> ~/lines; exec sleep 300"), running=12)
    view = batch(tow)
    first = view["first"]
    done = tow("exec", str(first), "hostname")
    assert done.stdout.strip() in ("h2", "h3", "h4"), done.stderr
    assert tow("stop", str(first)).returncode == 0
    wait_until(lambda: batch(tow)["counts"]["stopped"] == 1, timeout=30, every=0.2)
    assert len([line for line in slurm.worker("squeue", "-hr").splitlines() if line]) == 39
    assert tow("batch", "stop", "many").returncode == 0
    assert await_end(tow, timeout=60) == {"stopped": 40}
    wait_until(lambda: queue_lines(slurm) == [], timeout=30)
