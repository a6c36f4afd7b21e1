"""Stopping takes everything of a job with it; so does its end."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.waiting import wait_until

from .driver import Driver

#: A child in a session of its own, whose pid is written down.
DAEMON = "setsid sh -c 'echo $$ > pid; exec sleep 300' & "


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def pid_in(file: Path) -> int:
    return int(wait_until(lambda: file.exists() and file.read_text().strip()) or 0)


def test_children_that_left_the_session_are_stopped_too(agent: Driver, root: Path) -> None:
    agent.start("a", "sh", "-c", DAEMON + "sleep 300")
    pid = pid_in(root / "jobs/a/src/pid")
    agent.call("stop", keys=["a"], grace_s=10)
    assert agent.end_of("a")["cause"] == "stopped"
    assert not alive(pid)


def test_a_daemon_left_behind_ends_with_its_job(agent: Driver, root: Path) -> None:
    end = agent.run("a", "sh", "-c", DAEMON + "while ! [ -s pid ]; do :; done; exit 4")
    assert (end["code"], end["cause"]) == (4, "")
    assert not alive(pid_in(root / "jobs/a/src/pid"))


def test_a_job_that_ignores_term_is_killed_after_the_grace(agent: Driver) -> None:
    agent.start("a", "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done")
    agent.call_blob("read", key="a", stream="out", offset=0, limit=10, wait=True)
    agent.call("stop", keys=["a"], grace_s=0.3)
    end = agent.end_of("a")
    assert (end["cause"], end["signal"]) == ("stopped", 9)


def test_a_job_may_end_in_order_when_stopped_and_is_stopped_still(agent: Driver) -> None:
    script = "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    agent.start("a", "sh", "-c", script)
    agent.call_blob("read", key="a", stream="out", offset=0, limit=10, wait=True)
    agent.call("stop", keys=["a"], grace_s=20)
    end = agent.end_of("a")
    assert (end["cause"], end["code"]) == ("stopped", 0)
    assert agent.output("a") == b"ready\nsaved\n"


def test_term_comes_once_per_process(agent: Driver) -> None:
    script = "trap 'echo TERM' TERM; echo ready; while :; do sleep 0.05; done"
    agent.start("a", "sh", "-c", script)
    agent.call_blob("read", key="a", stream="out", offset=0, limit=10, wait=True)
    agent.call("stop", keys=["a"], grace_s=1.5)
    agent.end_of("a")
    assert agent.output("a") == b"ready\nTERM\n"


def test_time_limit_ends_the_job(agent: Driver) -> None:
    end = agent.run("a", "sleep", "300", time_s=0.2)
    assert (end["cause"], end["signal"]) == ("timeout", 15)
    assert "0.2 s" in end["text"]


def test_a_shorter_grace_given_later_counts(agent: Driver) -> None:
    agent.start("a", "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done")
    agent.call_blob("read", key="a", stream="out", offset=0, limit=10, wait=True)
    agent.call("stop", keys=["a"], grace_s=3600)
    agent.call("stop", keys=["a"], grace_s=0)
    assert agent.end_of("a")["cause"] == "stopped"


def test_a_held_job_is_stopped_without_ever_starting(agent: Driver) -> None:
    agent.start("a", "true", hold=True)
    agent.wait_for(lambda: "a" in agent.held)
    agent.call("stop", keys=["a"], grace_s=5)
    end = agent.end_of("a")
    assert (end["cause"], end["started"]) == ("stopped", 0)


def test_a_kill_from_elsewhere_is_not_a_stop(agent: Driver) -> None:
    agent.start("a", "sleep", "300")
    agent.wait_for(lambda: "a" in agent.started)
    os.kill(agent.started["a"][0], 9)
    end = agent.end_of("a")
    assert (end["signal"], end["cause"]) == (9, "")


def test_stopping_what_is_unknown_or_over_changes_nothing(agent: Driver) -> None:
    agent.run("a", "true")
    assert agent.call("stop", keys=["a", "never"], grace_s=1)["stopping"] == []
    assert agent.state("never") == "unknown"


@contextmanager
def paused_supervisors(agent: Driver) -> Iterator[None]:
    """As on a busy machine: what comes meanwhile is read at once, later."""
    agent.run("before", "true")
    workers = supervisors_of(agent)
    assert workers
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in workers:
            os.kill(pid, signal.SIGCONT)


def supervisors_of(agent: Driver) -> list[int]:
    agent_pid = agent.process.pid
    children = Path(f"/proc/{agent_pid}/task/{agent_pid}/children").read_text().split()
    return [
        int(pid) for pid in children if Path(f"/proc/{pid}/comm").read_text() == "tow-supervisor\n"
    ]


def test_a_stop_that_is_read_together_with_its_start_is_heard(agent: Driver) -> None:
    with paused_supervisors(agent):
        agent.start("a", "sleep", "300")
        assert agent.call("void", keys=["a"])["states"]["a"]["state"] == "running"
        assert agent.call("stop", keys=["a"], grace_s=5)["stopping"] == ["a"]
    end = agent.end_of("a")
    assert (end["cause"], end["started"]) == ("stopped", 0)
    assert agent.run("b", "true")["code"] == 0


def test_a_held_job_whose_stop_came_together_with_its_start_never_runs(agent: Driver) -> None:
    with paused_supervisors(agent):
        agent.start("a", "sleep", "300", hold=True)
        agent.call("stop", keys=["a"], grace_s=5)
    end = agent.end_of("a")
    assert (end["cause"], end["started"]) == ("stopped", 0)


def test_a_stop_of_a_job_that_another_agent_runs_is_heard_though_its_start_is_repeated(
    agent: Driver, new_agent: Callable[[], Driver]
) -> None:
    """After a cut the new agent may be told to start and to stop what the old one started."""
    agent.start("a", "sh", "-c", "echo ready; sleep 300")
    agent.call_blob("read", key="a", stream="out", offset=0, limit=10, wait=True)
    second = new_agent()
    with paused_supervisors(second):
        second.start("a", "sh", "-c", "echo ready; sleep 300")
        second.call("stop", keys=["a"], grace_s=5)
    assert second.end_of("a")["cause"] == "stopped"
    assert agent.end_of("a")["cause"] == "stopped"
