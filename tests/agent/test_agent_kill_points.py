"""Supervisors are killed before and after each thing they do with files and processes: a job runs
once, its end is known whenever anybody could know it, and what it made is there."""

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from testbed.waiting import wait_until

from .conftest import NewAgent
from .driver import START, Driver
from .test_agent_faults import UNTIL_TOLD, end_it, is_over, supervisor_of

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
#: The supervisor is killed when its command has ended, and before it has written down its number;
#: of a job whose key begins so, together with the next one's.
KILLED_TOO_LATE = """
import os, signal, sys, time
sys.path.insert(0, {folder!r})
real_spawn = os.posix_spawn
def posix_spawn(path, argv, environ, **named):
    pid = real_spawn(path, argv, environ, **named)
    key = environ.get(b"TOWLINE_KEY", b"").decode()
    if not key or os.path.exists({root!r} + "/killed-" + key):
        return pid
    with open({root!r} + "/killed-" + key, "w") as file:
        file.write(str(os.getpid()))
    while open("/proc/%d/stat" % pid).read().rsplit(")", 1)[1].split()[0] != "Z":
        time.sleep(0.002)
    while key.startswith("pair") and not os.path.exists({root!r} + "/both"):
        time.sleep(0.002)
    os.kill(os.getpid(), signal.SIGKILL)
os.posix_spawn = posix_spawn
"""
AND_AGENT = "the agent too"
#: Has waited for a supervisor and its command, and does not come to write down how that ended while
#: there is the file `slow`.
SLOW_TO_WRITE = """
import os, sys, time
sys.path.insert(0, {folder!r})
from remote.jobs.registry import Jobs
real_died = Jobs.supervisor_died
def supervisor_died(self, job):
    open({root!r} + "/knows", "w").close()
    while os.path.exists({root!r} + "/slow"):
        time.sleep(0.01)
    real_died(self, job)
Jobs.supervisor_died = supervisor_died
"""
#: Waits for nobody whom it does not know to be there, and counts how often it looks.
IMPATIENT = """
import sys
sys.path.insert(0, {folder!r})
from remote.jobs import orphans
orphans.UNTOLD_S = orphans.UNREAPED_S = 0.0
orphans.process_tree.Takedown.LOOK_S = 0.01
real_look = orphans.Orphans.may_be_told
def may_be_told(self, orphan, now):
    with open({root!r} + "/looks", "a") as file:
        file.write(".")
    return real_look(self, orphan, now)
orphans.Orphans.may_be_told = may_be_told
"""
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

    def killed(self, key: str) -> int:
        """The supervisor that is, or is about to be."""
        return int((self.root / f"killed-{key}").read_text())

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
            if end["cause"] == "void":
                # It certainly never began, so whoever asked for it asks again.
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


def test_a_command_that_ended_before_its_killed_supervisor_knew_its_number_keeps_its_exit_code(
    new_agent: NewAgent, points: Points
) -> None:
    agent = new_agent(code=KILLED_TOO_LATE + START)
    points.end_file("k1").touch()
    points.start(agent, "k1")
    end = agent.end_of("k1")
    assert points.was_killed("k1")
    assert (end["code"], end["cause"]) == (5, ""), end
    points.check(agent, "k1", end)


def test_of_two_commands_with_nothing_to_tell_them_apart_no_exit_code_is_guessed(
    new_agent: NewAgent, points: Points
) -> None:
    agent = new_agent(code=KILLED_TOO_LATE + START)
    keys = ("pair1", "pair2")
    for key in keys:
        points.end_file(key).touch()
        points.start(agent, key)
    wait_until(lambda: all(map(points.was_killed, keys)) and all(map(points.ran, keys)))
    # Both die before the agent hears of either.
    agent.process.send_signal(signal.SIGSTOP)
    (points.root / "both").touch()
    wait_until(lambda: all(is_over(points.killed(key)) for key in keys))
    agent.process.send_signal(signal.SIGCONT)
    agent.end_of(*keys)
    assert [agent.ended[key]["cause"] for key in keys] == ["lost", "lost"]
    assert [points.ran(key) for key in keys] == [1, 1]


def test_an_exit_code_is_left_to_whoever_has_the_command_however_long_that_takes(
    new_agent: NewAgent, root: Path
) -> None:
    """Another agent does not call a job lost that its own one, or its guardian, can tell of."""
    first = new_agent(code=SLOW_TO_WRITE + START)
    first.start("a", "sh", "-c", UNTIL_TOLD)
    supervisor = supervisor_of(first, "a")
    first.process.send_signal(signal.SIGSTOP)
    os.kill(supervisor, signal.SIGKILL)
    wait_until(lambda: supervisor_of(first, "a") == first.process.pid)
    second = new_agent(code=IMPATIENT + START)
    assert second.state("a") == "running"
    (root / "slow").touch()
    end_it(root, "a")
    wait_until(lambda: is_over(first.started["a"][0]))
    first.process.send_signal(signal.SIGCONT)
    wait_until(lambda: (root / "knows").exists())
    # It is gone, and nothing is written down; the other one looks at it again and again.
    looked = (root / "looks").stat().st_size if (root / "looks").exists() else 0
    wait_until(lambda: (root / "looks").exists() and (root / "looks").stat().st_size > looked + 20)
    assert "a" not in second.ended
    (root / "slow").unlink()
    assert second.end_of("a")["code"] == 5
