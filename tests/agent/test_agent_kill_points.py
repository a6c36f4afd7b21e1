"""Supervisors are killed before and after each thing they do with files and processes: a job runs
once, its end is known whenever anybody could know it, and what it made is there."""

import contextlib
from pathlib import Path
from typing import Any

import pytest

from .conftest import NewAgent
from .driver import START, Driver

#: The supervisor of a job `kN` is killed at the Nth thing it does for it, and where `base` says so
#: its agent before it; once for each job, since it may be tried again.
KILLER = """
import os, signal, sys
sys.path.insert(0, {folder!r})
from remote.run import supervisor
left = [-1]
killed = [""]
def step():
    left[0] -= 1
    if left[0] == 0 and not os.path.exists(killed[0]):
        real_close(real_open(killed[0], os.O_CREAT))
        if {base!r}:
            os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
def counted(real):
    def call(*args, **named):
        step()
        try:
            return real(*args, **named)
        finally:
            step()
    return call
real_open, real_close = os.open, os.close
for name in ("open", "close", "mkdir", "pwrite", "rename", "posix_spawn", "waitid", "wait4"):
    setattr(os, name, counted(getattr(os, name)))
real_run = supervisor.Supervisor.run
def run(self, key, raw):
    killed[0] = {root!r} + "/killed-" + key
    left[0] = int(key[1:])
    real_run(self, key, raw)
    left[0] = -1
supervisor.Supervisor.run = run
"""
AND_AGENT = "the agent too"
KILLED_WHILE_LISTING = """
import os, signal, sys
sys.path.insert(0, {folder!r})
from remote.content import changes
def keep(*_):
    os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
changes.keep = keep
"""
#: Leaves a line that it ran, prints and makes something, and ends when it is told to.
SCRIPT = (
    'echo "$1" >> "$2"; echo said; echo made > made; until [ -e "$3" ]; do sleep 0.02; done; exit 5'
)
#: So many at a time.
MANY = 12


class Points:
    """Jobs of which the Nth has its supervisor killed at the Nth point, while there are such."""

    def __init__(self, root: Path, lines: Path) -> None:
        self.root = root
        self.lines = lines

    def start(self, agent: Driver, key: str) -> None:
        words = (key, str(self.lines), str(self.end_file(key)))
        agent.start(key, "sh", "-c", SCRIPT, "sh", *words)

    def end_file(self, key: str) -> Path:
        return self.root / f"end-{key}"

    def end(self, agent: Driver, *keys: str) -> None:
        """Let their commands end, once the agent knows of each that it began or never did."""
        agent.wait_for(lambda: all(key in agent.started or key in agent.ended for key in keys))
        for key in keys:
            self.end_file(key).touch()
        agent.end_of(*keys)

    def was_killed(self, key: str) -> bool:
        return (self.root / f"killed-{key}").exists()

    def ran(self, key: str) -> int:
        return self.lines.read_text().split().count(key) if self.lines.exists() else 0

    def check(self, agent: Driver, key: str, end: dict[str, Any]) -> None:
        """It ran once, and what it made and printed is there."""
        assert (self.ran(key), end["out_size"]) == (1, 5), (key, end)
        # Only what has started has results.
        assert end["started"], (key, end)
        assert [file["name"] for file in agent.call("changed", key=key)["files"]] == ["made"], key


@pytest.fixture
def points(root: Path, tmp_path: Path) -> Points:
    return Points(root, tmp_path / "lines")


def test_a_job_whose_supervisor_is_killed_at_any_point_runs_once_and_its_end_is_known(
    new_agent: NewAgent, points: Points
) -> None:
    agent = new_agent(code=KILLER + START)
    first = 1
    while True:
        keys = [f"k{number}" for number in range(first, first + MANY)]
        for key in keys:
            points.start(agent, key)
        points.end(agent, *keys)
        for key in keys:
            end = agent.ended[key]
            if end["cause"] == "lost":
                # About to start its command when it was killed: nobody can know that it did not.
                assert points.ran(key) == 0, (key, end)
            else:
                assert (end["code"], end["cause"]) == (5, ""), (key, end)
                points.check(agent, key, end)
        if not all(map(points.was_killed, keys)):
            break
        first += MANY
    assert first > MANY


def test_a_job_whose_supervisor_and_agent_are_killed_at_any_point_runs_at_most_once(
    new_agent: NewAgent, points: Points
) -> None:
    number, outcomes = 0, []
    while True:
        number += 1
        key = f"k{number}"
        first = new_agent(code=KILLER + START, base=AND_AGENT)
        with contextlib.suppress(EOFError):
            points.start(first, key)
            points.end(first, key)
        if not points.was_killed(key):
            break
        agent = new_agent()
        # Never begun, or about to begin, or at work, or over.
        seen = agent.call("observe", keys=[key])["states"][key]
        if seen["state"] == "unknown":
            points.start(agent, key)
        elif seen.get("started"):
            agent.started[key] = (0, seen["started"])
        elif seen["state"] == "ended":
            agent.ended[key] = seen["ending"]
        points.end(agent, key)
        end = agent.end_of(key)
        outcomes.append(end["cause"])
        if points.ran(key):
            points.check(agent, key, end)
        agent.leave()
    # It was not begun, was at work and left to nobody, or its end was written down.
    order = [cause for at, cause in enumerate(outcomes) if outcomes[at - 1 : at] != [cause]]
    assert order == ["", "lost", ""]


def test_an_end_that_was_seen_is_known_though_all_are_killed_while_files_are_listed(
    new_agent: NewAgent,
) -> None:
    agent = new_agent(code=KILLED_WHILE_LISTING + START)
    with pytest.raises(EOFError):
        agent.run("a", "sh", "-c", "echo said; echo made > made; exit 5")
    agent = new_agent()
    seen = agent.call("observe", keys=["a"])["states"]["a"]
    assert (seen["state"], seen["ending"]["code"], seen["ending"]["cause"]) == ("ended", 5, "")
    assert [file["name"] for file in agent.call("changed", key="a")["files"]] == ["made"]
