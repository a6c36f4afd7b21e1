"""A command ends before each single look at it, one after the other: how it ended is known."""

import json
import os
import signal
from pathlib import Path

import pytest

from testbed.waiting import wait_until

from .conftest import NewAgent
from .driver import REMOTE, START, Driver
from .test_agent_faults import UNTIL_TOLD, end_it, supervisor_of

#: Counts looks from the moment when the file `armed` says with which of them which job ends: before
#: that look, and as whose child it may be. Looks come as often as a test has the patience for.
LOOKS = """
import builtins, fcntl, os, sys, time
sys.path.insert(0, {folder!r})
from remote import main
from remote.jobs import guardian, orphans
me, root, looks = os.getpid(), {root!r}, [0]
def is_over(pid):
    try:
        with real_open("/proc/%s/stat" % pid) as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True
def look():
    if os.getpid() != me or not os.path.exists(root + "/armed"):
        return
    looks[0] += 1
    with real_open(root + "/armed") as file:
        key, pid, number = file.read().split()
    if looks[0] == int(number):
        looks[0] = 0
        os.unlink(root + "/armed")
        real_open(root + "/jobs/" + key + "/src/end", "w").close()
        while not is_over(pid):
            time.sleep(0.002)
def counted(real, is_look):
    def call(*args, **named):
        if is_look(*args):
            look()
        return real(*args, **named)
    return call
def is_about_jobs(path, *_):
    return str(path).startswith(("/proc/", root + "/records"))
real_open = builtins.open
os.wait4 = counted(os.wait4, lambda *_: True)
os.open = counted(os.open, is_about_jobs)
builtins.open = counted(builtins.open, is_about_jobs)
fcntl.flock = counted(fcntl.flock, lambda *_: True)
orphans.LOCK_EVERY_S = orphans.PID_EVERY_S = 0.02
"""
#: In the guardian only, which is another program.
IN_GUARDIAN = """
import sys
sys.path.insert(0, {folder!r})
from remote.jobs import guardian
guardian.CODE = {base!r}.replace("%", "%%") + guardian.CODE
"""
#: From the death of its supervisor on, an agent looks so often until nothing new is asked.
ENOUGH = 40


def arm(agent: Driver, root: Path, key: str, number: int) -> None:
    pid = agent.wait_for(lambda: agent.started.get(key))[0]
    (root / "beside").write_text(f"{key} {pid} {number}")
    (root / "beside").rename(root / "armed")


def is_armed(root: Path) -> bool:
    """The command was not ended yet."""
    return (root / "armed").exists()


@pytest.mark.slow
def test_a_command_that_ends_between_two_looks_of_its_agent_keeps_its_exit_code(
    new_agent: NewAgent, root: Path
) -> None:
    agent = new_agent(code=LOOKS + START)
    for number in range(1, ENOUGH):
        key = f"k{number}"
        agent.start(key, "sh", "-c", UNTIL_TOLD)
        supervisor = supervisor_of(agent, key)
        arm(agent, root, key, number)
        os.kill(supervisor, signal.SIGKILL)
        end = agent.end_of(key)
        assert not is_armed(root)
        assert (end["code"], end["cause"]) == (5, ""), (number, end)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("whose", "supervisor"),
    [("agent", "killed before"), ("agent", "killed meanwhile"), ("guardian", "killed meanwhile")],
)
def test_a_command_that_ends_between_two_looks_of_an_agent_that_leaves_keeps_its_exit_code(
    new_agent: NewAgent, root: Path, whose: str, supervisor: str
) -> None:
    looks = LOOKS.format(folder=str(REMOTE), root=str(root))
    code = (LOOKS if whose == "agent" else IN_GUARDIAN) + START
    for number in range(1, ENOUGH // 2):
        first, key = new_agent(code=code, base=looks), f"k{number}"
        first.start(key, "sh", "-c", UNTIL_TOLD)
        pid = supervisor_of(first, key)
        if supervisor == "killed meanwhile":
            first.process.send_signal(signal.SIGSTOP)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda first=first, key=key: supervisor_of(first, key) == first.process.pid)
        if supervisor == "killed before":
            assert first.state(key) == "running"
            first.process.send_signal(signal.SIGSTOP)
        arm(first, root, key, number)
        first.stdin.close()
        first.process.send_signal(signal.SIGCONT)
        # Its other end is let go of.
        wait_until(lambda first=first: not first.receive(0.1))
        seen_all = whose == "agent" and is_armed(root)
        if seen_all:
            (root / "armed").unlink()
            end_it(root, key)
        assert first.process.wait(30) == 0
        end = json.loads((root / "records" / key / "exit").read_text())
        assert (end["code"], end["cause"]) == (5, ""), (number, end)
        if seen_all:
            break
