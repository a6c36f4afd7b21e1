"""Machines that share a home: each judges, signals and settles only what it runs itself."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import NewAgent
from .driver import Driver

HERE = {"host": os.uname().nodename, "machine": "", "boot": "of before", "pidns": 1}
SPEC = {
    "argv": ["true"],
    "env": {},
    "environ": None,
    "cwd": "",
    "setup": "",
    "grace_s": 1,
    "at": "",
}


@pytest.fixture
def innocent() -> Iterator["subprocess.Popen[bytes]"]:
    """A process here with the number that a supervisor has on another machine."""
    with subprocess.Popen(["sleep", "300"]) as process:
        yield process
        process.kill()


def write_life(root: Path, pid: int, **identity: Any) -> Path:
    """What a supervisor with this number wrote down, on the machine that is so identified."""
    folder = root / "records/a"
    folder.mkdir(parents=True)
    about = {"supervisor": pid, "boot": identity["boot"], "identity": identity, "spawning": 5.0}
    life = {**about, "pid": pid, "start": 1, "started": 6.0, "spec": SPEC}
    (folder / "life").write_text(json.dumps(life))
    return folder


def test_an_agent_says_which_machine_it_is_on(agent: Driver) -> None:
    identity = agent.hello["identity"]
    assert identity["host"] == os.uname().nodename
    assert identity["boot"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert identity["pidns"] == os.stat("/proc/self/ns/pid").st_ino


def test_a_job_on_another_machine_is_neither_judged_nor_signalled(
    new_agent: NewAgent, root: Path, innocent: "subprocess.Popen[bytes]"
) -> None:
    other = {**HERE, "host": "n1"}
    folder = write_life(root, innocent.pid, **other)
    agent = new_agent()
    elsewhere = {"state": "elsewhere", "host": "n1"}
    assert agent.call("observe", keys=["a"])["states"]["a"] == elsewhere
    assert agent.call("void", keys=["a"])["states"]["a"] == elsewhere
    agent.call("stop", keys=["a"], grace_s=1.5)
    assert float((folder / "stop").read_text()) == 1.5
    agent.start("a", "sh", "-c", "echo twice")
    assert agent.call("forget", keys=["a"])["forgotten"] == []
    assert agent.call("observe", keys=["a"])["states"]["a"] == elsewhere
    assert innocent.poll() is None
    # Its own supervisor writes the ending, over there.
    end = {"code": 3, "signal": None, "cause": "", "text": "", "started": 6.0, "ended": 7.0}
    (folder / "life").write_text(json.dumps(end))
    os.rename(folder / "life", folder / "exit")
    assert agent.end_of("a")["code"] == 3


def test_a_machine_of_the_same_name_that_restarted_is_the_same(
    new_agent: NewAgent, root: Path
) -> None:
    write_life(root, 1, **HERE)
    seen = new_agent().call("observe", keys=["a"])["states"]["a"]
    assert seen["ending"]["text"] == "the machine restarted"


def test_a_supervisor_finds_a_stop_that_nobody_signals(agent: Driver, root: Path) -> None:
    agent.start("a", "sleep", "300")
    agent.wait_for(lambda: "a" in agent.started)
    (root / "records/a/stop").write_text("1.0")
    assert agent.end_of("a")["cause"] == "stopped"


@pytest.mark.real
def test_a_job_is_stopped_from_another_machine_with_the_same_home(
    new_agent: NewAgent, root: Path, tmp_path: Path
) -> None:
    """The other has a name and process numbers of its own, and sees the same locks."""
    there = tmp_path / "python-there"
    inside = 'hostname n2; exec "$0" "$@"'
    unshare = "unshare --uts --pid --fork --kill-child --mount-proc"
    there.write_text(f"#!/bin/sh\nexec {unshare} sh -c '{inside}' {sys.executable} \"$@\"\n")
    there.chmod(0o755)
    first = new_agent()
    first.start("a", "sleep", "300")
    first.wait_for(lambda: "a" in first.started)
    second = new_agent(python=str(there))
    assert second.hello["identity"]["host"] == "n2"
    host = os.uname().nodename
    elsewhere = {"state": "elsewhere", "host": host}
    assert second.call("observe", keys=["a"])["states"]["a"] == elsewhere
    second.call("stop", keys=["a"], grace_s=5)
    assert first.end_of("a")["cause"] == "stopped"
    assert second.end_of("a")["cause"] == "stopped"
