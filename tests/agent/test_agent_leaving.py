"""What an agent that leaves, or is slow, still owes the commands of killed supervisors."""

import json
import os
import signal
from pathlib import Path

from testbed.waiting import wait_until

from .conftest import NewAgent
from .driver import START, Driver
from .test_agent_faults import UNTIL_TOLD, end_it, hang_up, is_over, orphaned, supervisor_of

#: More than a pipe holds.
MUCH = 1 << 20
#: Shows by a file that it is about to leave.
SHOWS_IT = """
import sys
sys.path.insert(0, {folder!r})
from remote.main import Agent
real_words = Agent.last_words
def last_words(self):
    open({root!r} + "/leaves", "w").close()
    real_words(self)
Agent.last_words = last_words
"""


def left_alone(agent: Driver, key: str) -> None:
    """Its supervisor is dead, and its command is the agent's own child."""
    os.kill(supervisor_of(agent, key), signal.SIGKILL)
    wait_until(lambda: supervisor_of(agent, key) == agent.process.pid)


def test_a_supervisor_killed_while_nobody_hears_its_agents_last_words_costs_no_exit_code(
    new_agent: NewAgent, root: Path
) -> None:
    agent = new_agent(code=SHOWS_IT + START)
    agent.run("b", "head", "-c", str(MUCH), "/dev/zero")
    agent.start("a", "sh", "-c", UNTIL_TOLD)
    agent.wait_for(lambda: "a" in agent.started)
    # It has more to say than fits, and nobody reads.
    for at in range(4):
        agent.ask("read", key="b", stream="out", offset=at * MUCH // 4, limit=MUCH // 4)
    agent.stdin.close()
    wait_until(lambda: (root / "leaves").exists())
    left_alone(agent, "a")
    end_it(root, "a")
    assert agent.process.wait(30) == 0
    assert json.loads((root / "records/a/exit").read_text())["code"] == 5


def test_a_command_that_ended_before_its_agent_left_keeps_its_exit_code_though_more_of_it_runs(
    new_agent: NewAgent, root: Path
) -> None:
    agent = new_agent()
    stubborn = "trap '' TERM; touch ready; until [ -e end2 ]; do sleep 0.02; done"
    orphaned(agent, "sh", "-c", f'setsid sh -c "{stubborn}" & {UNTIL_TOLD}')
    wait_until(lambda: (root / "jobs/a/src/ready").exists())
    pid = agent.started["a"][0]
    end_it(root, "a")
    # Waited for already; what it left behind has the grace to end by itself.
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    hang_up(agent, "connection gone")
    (root / "jobs/a/src/end2").touch()
    assert agent.process.wait(30) == 0
    assert json.loads((root / "records/a/exit").read_text())["code"] == 5


def test_a_supervisor_killed_after_its_agent_left_costs_no_exit_code(
    new_agent: NewAgent, root: Path
) -> None:
    agent = new_agent()
    for key in ("a", "b"):
        agent.start(key, "sh", "-c", UNTIL_TOLD)
        agent.wait_for(lambda key=key: key in agent.started)
    supervisor = supervisor_of(agent, "a")
    hang_up(agent, "connection gone")
    os.kill(supervisor, signal.SIGKILL)
    second = new_agent()
    assert second.state("a") == second.state("b") == "running"
    for key in ("a", "b"):
        end_it(root, key)
        assert second.end_of(key)["code"] == 5
    assert agent.process.wait(30) == 0, "whoever stayed goes with the last of its jobs"


def test_who_stays_for_one_command_looks_after_the_others_of_the_agent_as_well(
    new_agent: NewAgent, root: Path
) -> None:
    agent = new_agent()
    orphaned(agent, "sh", "-c", UNTIL_TOLD)
    for key in ("b", "c"):
        agent.start(key, "sh", "-c", UNTIL_TOLD)
    supervisor = supervisor_of(agent, "b")
    agent.wait_for(lambda: "c" in agent.started)
    hang_up(agent, "connection gone")
    os.kill(supervisor, signal.SIGKILL)
    for key in ("a", "b", "c"):
        end_it(root, key)
    assert agent.process.wait(30) == 0
    ends = [json.loads((root / "records" / key / "exit").read_text()) for key in ("a", "b", "c")]
    assert [end["code"] for end in ends] == [5, 5, 5]


def test_a_time_limit_holds_after_the_agent_has_left_and_not_before_it_is_over(
    new_agent: NewAgent, root: Path
) -> None:
    agent = new_agent()
    for key, seconds in (("a", 300), ("b", 2)):
        agent.start(key, "sh", "-c", UNTIL_TOLD, time_s=seconds)
        left_alone(agent, key)
    hang_up(agent, "connection gone")
    second = new_agent()
    assert second.state("a") == "running"
    wait_until(lambda: (root / "records/b/exit").exists())
    assert json.loads((root / "records/b/exit").read_text())["cause"] == "timeout"
    end_it(root, "a")
    assert second.end_of("a")["code"] == 5
    assert agent.process.wait(30) == 0


def test_a_stop_goes_on_after_the_agent_has_left(new_agent: NewAgent, root: Path) -> None:
    agent = new_agent()
    stubborn = "trap '' TERM; touch ready; while :; do sleep 0.02; done"
    agent.start("a", "sh", "-c", stubborn)
    left_alone(agent, "a")
    wait_until(lambda: (root / "jobs/a/src/ready").exists())
    agent.call("stop", keys=["a"], grace_s=1)
    hang_up(agent, "connection gone")
    assert agent.process.wait(30) == 0
    end = json.loads((root / "records/a/exit").read_text())
    assert (end["cause"], end["signal"]) == ("stopped", 9)


def test_how_a_command_ended_is_left_to_an_agent_that_does_not_know_yet_that_it_has_it(
    new_agent: NewAgent, root: Path
) -> None:
    first = new_agent()
    first.start("a", "sh", "-c", UNTIL_TOLD)
    supervisor = supervisor_of(first, "a")
    first.process.send_signal(signal.SIGSTOP)
    os.kill(supervisor, signal.SIGKILL)
    wait_until(lambda: supervisor_of(first, "a") == first.process.pid)
    second = new_agent()
    assert second.state("a") == "running"
    end_it(root, "a")
    wait_until(lambda: is_over(first.started["a"][0]))
    # Nobody has its record, and nobody has waited for it.
    assert new_agent().state("a") == "running"
    first.process.send_signal(signal.SIGCONT)
    assert first.end_of("a")["code"] == second.end_of("a")["code"] == 5


def test_a_stop_by_another_agent_is_known_to_the_one_that_has_the_command(
    new_agent: NewAgent,
) -> None:
    first = new_agent()
    first.start("a", "sleep", "300")
    supervisor = supervisor_of(first, "a")
    first.process.send_signal(signal.SIGSTOP)
    os.kill(supervisor, signal.SIGKILL)
    wait_until(lambda: supervisor_of(first, "a") == first.process.pid)
    second = new_agent()
    assert second.state("a") == "running"
    second.call("stop", keys=["a"], grace_s=5)
    wait_until(lambda: is_over(first.started["a"][0]))
    first.process.send_signal(signal.SIGCONT)
    for agent in (first, second):
        end = agent.end_of("a")
        assert (end["cause"], end["signal"]) == ("stopped", 15)
