"""Whatever is killed, whenever: a job runs once, and its end is not lost."""

import json
import os
import random
import signal
from pathlib import Path

import pytest

from testbed.waiting import wait_until

from .conftest import NewAgent
from .driver import Driver


def supervisor_of(agent: Driver, key: str) -> int:
    """The parent of the job's command."""
    pid = agent.wait_for(lambda: agent.started.get(key))[0]
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def end_it(root: Path, key: str) -> None:
    """Let a job that waits for this file come to its end."""
    (root / "jobs" / key / "src" / "end").touch()


UNTIL_TOLD = "while ! [ -e end ]; do sleep 0.02; done; echo done; exit 5"


def test_job_goes_on_without_the_agent_and_a_new_one_reports_its_end(
    new_agent: NewAgent, root: Path
) -> None:
    first = new_agent()
    first.start("a", "sh", "-c", UNTIL_TOLD)
    first.wait_for(lambda: "a" in first.started)
    first.kill()
    second = new_agent()
    seen = second.call("observe", keys=["a"])["states"]["a"]
    assert seen == {"state": "running", "started": first.started["a"][1]}
    end_it(root, "a")
    assert second.end_of("a")["code"] == 5
    assert second.output("a") == b"done\n"


def test_an_end_nobody_saw_is_found_later(new_agent: NewAgent, root: Path) -> None:
    first = new_agent()
    first.start("a", "sh", "-c", UNTIL_TOLD)
    first.wait_for(lambda: "a" in first.started)
    first.kill()
    end_it(root, "a")
    wait_until(lambda: (root / "records/a/exit").exists())
    seen = new_agent().call("observe", keys=["a"])["states"]["a"]
    assert (seen["state"], seen["ending"]["code"]) == ("ended", 5)


def test_an_adopted_job_can_be_followed_and_stopped(new_agent: NewAgent) -> None:
    first = new_agent()
    first.start("a", "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done")
    first.call_blob("read", key="a", stream="out", offset=0, limit=10, wait=True)
    first.kill()
    second = new_agent()
    assert second.call_blob("read", key="a", stream="out", offset=0, limit=10, wait=True)[1]
    assert second.call("stop", keys=["a"], grace_s=0.2)["stopping"] == ["a"]
    assert second.end_of("a")["cause"] == "stopped"


def test_a_held_job_of_a_killed_agent_can_be_released_or_voided(new_agent: NewAgent) -> None:
    first = new_agent()
    first.start("a", "echo", "released", hold=True)
    first.start("b", "echo", "never", hold=True)
    first.wait_for(lambda: first.held == {"a", "b"})
    first.kill()
    second = new_agent()
    assert second.state("a") == "held"
    second.call("go", keys=["a"])
    assert second.call("void", keys=["b"])["states"]["b"]["state"] == "ended"
    assert second.end_of("a")["code"] == 0
    assert second.end_of("b")["cause"] == "void"
    assert second.output("b") == b""


def test_a_job_whose_supervisor_and_agent_are_killed_before_it_began_is_void_not_lost(
    new_agent: NewAgent, root: Path
) -> None:
    first = new_agent()
    first.start("a", "true", hold=True)
    first.wait_for(lambda: "a" in first.held)
    first.kill()
    second = new_agent()
    assert second.state("a") == "held"
    os.kill(json.loads((root / "records/a/life").read_text())["supervisor"], signal.SIGKILL)
    end = second.end_of("a")
    assert (end["cause"], end["started"]) == ("void", 0.0)


def test_killed_supervisor_does_not_lose_the_exit_code(agent: Driver, root: Path) -> None:
    agent.start("a", "sh", "-c", UNTIL_TOLD)
    os.kill(supervisor_of(agent, "a"), signal.SIGKILL)
    wait_until(lambda: supervisor_of(agent, "a") == agent.process.pid)
    assert agent.state("a") == "running"
    end_it(root, "a")
    end = agent.end_of("a")
    assert (end["code"], end["cause"], end["out_size"]) == (5, "", 5)
    assert agent.end_count["a"] == 1


def kill_before_it_noted_the_command(agent: Driver, root: Path, key: str) -> None:
    """As if its supervisor was killed between starting the command and writing down its number."""
    supervisor = supervisor_of(agent, key)
    os.kill(supervisor, signal.SIGSTOP)
    life = root / "records" / key / "life"
    noted = json.loads(life.read_text())
    for name in ("pid", "start", "started"):
        del noted[name]
    # In place: it is locked, and that lock is of this very file.
    with open(life, "r+") as file:
        file.write(json.dumps(noted).ljust(life.stat().st_size))
    os.kill(supervisor, signal.SIGKILL)


def test_a_job_whose_supervisor_was_killed_in_the_moment_of_its_start_did_start(
    agent: Driver, root: Path
) -> None:
    agent.start("a", "sh", "-c", UNTIL_TOLD)
    at = agent.wait_for(lambda: agent.started.get("a"))[1]
    kill_before_it_noted_the_command(agent, root, "a")
    # Found again by its mark: all that is known is when it was about to start.
    wait_until(lambda: agent.call("observe", keys=["a"])["states"]["a"]["started"] < at)
    end_it(root, "a")
    end = agent.end_of("a")
    assert (end["code"], end["out_size"]) == (5, 5)
    # Only what has started has results.
    assert at - 1 < end["started"] <= at


def is_over(pid: int) -> bool:
    """True for a command that has ended and was not waited for."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"


def orphaned(agent: Driver, *words: str) -> None:
    """The supervisor of job `a` was killed, and its command is the agent's own child."""
    agent.start("a", *words)
    os.kill(supervisor_of(agent, "a"), signal.SIGKILL)
    wait_until(lambda: supervisor_of(agent, "a") == agent.process.pid)
    assert agent.state("a") == "running"


def hang_up(agent: Driver, how: str) -> None:
    if how == "connection gone":
        agent.stdin.close()
    else:
        agent.process.terminate()
    # Its other end is let go of.
    wait_until(lambda: not agent.receive(0.1))


@pytest.mark.parametrize("how", ["connection gone", "terminated"])
def test_an_agent_that_leaves_still_sees_to_the_jobs_whose_supervisors_were_killed(
    new_agent: NewAgent, root: Path, how: str
) -> None:
    first = new_agent()
    orphaned(first, "sh", "-c", UNTIL_TOLD)
    hang_up(first, how)
    second = new_agent()
    assert second.state("a") == "running"
    end_it(root, "a")
    end = second.end_of("a")
    assert (end["code"], end["cause"], end["out_size"]) == (5, "", 5)
    assert first.process.wait(30) == 0


def test_a_command_that_ends_just_when_its_agent_leaves_is_not_lost(
    new_agent: NewAgent, root: Path
) -> None:
    first = new_agent()
    orphaned(first, "sh", "-c", UNTIL_TOLD)
    first.process.send_signal(signal.SIGSTOP)
    end_it(root, "a")
    pid = first.started["a"][0]
    wait_until(lambda: is_over(pid))
    first.stdin.close()
    first.process.send_signal(signal.SIGCONT)
    assert first.process.wait(30) == 0
    assert new_agent().call("observe", keys=["a"])["states"]["a"]["ending"]["code"] == 5


def test_a_job_that_an_agent_left_to_itself_sees_to_is_stopped_by_another(
    new_agent: NewAgent,
) -> None:
    first = new_agent()
    orphaned(first, "sh", "-c", "setsid sleep 300 & sleep 300")
    hang_up(first, "connection gone")
    second = new_agent()
    assert second.state("a") == "running"
    second.call("stop", keys=["a"], grace_s=5)
    end = second.end_of("a")
    assert (end["cause"], end["signal"]) == ("stopped", 15)
    assert first.process.wait(30) == 0


def test_how_a_command_ended_is_left_to_the_agent_that_is_in_its_supervisors_place(
    new_agent: NewAgent, root: Path
) -> None:
    first = new_agent()
    orphaned(first, "sh", "-c", UNTIL_TOLD)
    first.process.send_signal(signal.SIGSTOP)
    end_it(root, "a")
    pid = first.started["a"][0]
    wait_until(lambda: is_over(pid))
    second = new_agent()
    # The command is gone, but only the first can learn how it went.
    assert second.state("a") == "running"
    first.process.send_signal(signal.SIGCONT)
    assert first.end_of("a")["code"] == second.end_of("a")["code"] == 5


def test_job_of_a_killed_supervisor_can_be_stopped_with_all_its_children(agent: Driver) -> None:
    agent.start("a", "sh", "-c", "setsid sleep 300 & sleep 300")
    os.kill(supervisor_of(agent, "a"), signal.SIGKILL)
    wait_until(lambda: supervisor_of(agent, "a") == agent.process.pid)
    agent.call("stop", keys=["a"], grace_s=5)
    end = agent.end_of("a")
    assert (end["cause"], end["signal"]) == ("stopped", 15)


def test_time_limit_holds_also_without_the_supervisor(agent: Driver) -> None:
    agent.start("a", "sleep", "300", time_s=1)
    os.kill(supervisor_of(agent, "a"), signal.SIGKILL)
    assert agent.end_of("a")["cause"] == "timeout"


def test_only_the_killed_supervisors_job_is_affected(agent: Driver, root: Path) -> None:
    for key in ("a", "b"):
        agent.start(key, "sh", "-c", UNTIL_TOLD)
    agent.wait_for(lambda: len(agent.started) == 2)
    os.kill(supervisor_of(agent, "a"), signal.SIGKILL)
    end_it(root, "b")
    assert agent.end_of("b")["code"] == 5
    end_it(root, "a")
    assert agent.end_of("a")["code"] == 5


def test_agent_and_supervisor_killed_is_lost_once_the_command_is_gone(
    new_agent: NewAgent, root: Path
) -> None:
    first = new_agent()
    first.start("a", "sh", "-c", UNTIL_TOLD)
    supervisor = supervisor_of(first, "a")
    first.process.send_signal(signal.SIGSTOP)
    os.kill(supervisor, signal.SIGKILL)
    first.kill()
    second = new_agent()
    assert second.state("a") == "running"
    end_it(root, "a")
    end = second.end_of("a")
    assert (end["cause"], end["code"]) == ("lost", None)
    assert "supervisor was killed" in end["text"]


@pytest.mark.parametrize("place", ["records", "jobs"])
def test_a_restarted_machine_loses_its_jobs_and_says_so(
    new_agent: NewAgent, root: Path, place: str
) -> None:
    folder = root / place / "a"
    folder.mkdir(parents=True)
    (folder / "life").write_text('{"supervisor": 1, "boot": "another", "spawning": 5.0, "pid": 1}')
    seen = new_agent().call("observe", keys=["a"])["states"]["a"]
    assert seen["ending"]["cause"] == "lost"
    assert seen["ending"]["text"] == "the machine restarted"


@pytest.mark.parametrize("again_with", ["same agent", "new agent"])
def test_a_job_started_twice_runs_once(
    new_agent: NewAgent, tmp_path: Path, again_with: str
) -> None:
    line = f"echo x >> {tmp_path}/lines; while ! [ -e end ]; do sleep 0.02; done"
    agent = new_agent()
    agent.start("a", "sh", "-c", line)
    agent.wait_for(lambda: "a" in agent.started)
    if again_with == "new agent":
        agent.kill()
        agent = new_agent()
    agent.started.clear()
    agent.start("a", "sh", "-c", line)
    agent.wait_for(lambda: "a" in agent.started)
    end_it(tmp_path / "root", "a")
    agent.end_of("a")
    agent.ended.clear()
    assert agent.run("a", "sh", "-c", line)["code"] == 0
    assert (tmp_path / "lines").read_text() == "x\n"


def test_what_was_voided_never_starts(agent: Driver, tmp_path: Path) -> None:
    states = agent.call("void", keys=["a"])["states"]
    assert states["a"]["ending"]["cause"] == "void"
    assert agent.run("a", "touch", f"{tmp_path}/ran")["cause"] == "void"
    assert not (tmp_path / "ran").exists()


def test_void_changes_nothing_about_a_running_or_ended_job(agent: Driver) -> None:
    agent.start("a", "sleep", "300")
    agent.run("b", "true")
    agent.wait_for(lambda: "a" in agent.started)
    states = agent.call("void", keys=["a", "b"])["states"]
    assert (states["a"]["state"], states["b"]["ending"]["code"]) == ("running", 0)
    agent.call("stop", keys=["a"], grace_s=5)
    assert agent.end_of("a")["cause"] == "stopped"


@pytest.mark.parametrize("place", ["records", "jobs"])
def test_a_folder_without_a_start_can_still_be_started_or_voided(
    new_agent: NewAgent, root: Path, place: str
) -> None:
    for key in ("a", "b"):
        (root / "jobs" / key / "src").mkdir(parents=True)
        (root / place / key).mkdir(parents=True, exist_ok=True)
        (root / place / key / "life").touch()
    agent = new_agent()
    assert agent.state("a") == "unknown"
    assert agent.run("a", "echo", "hi")["code"] == 0
    assert agent.call("void", keys=["b"])["states"]["b"]["ending"]["cause"] == "void"


def test_a_job_that_removes_its_own_folder_keeps_its_ending(agent: Driver) -> None:
    end = agent.run("a", "sh", "-c", 'rm -rf "$JOB_DIR"; exit 6')
    assert end["code"] == 6
    assert agent.call("observe", keys=["a"])["states"]["a"]["ending"]["code"] == 6


def test_killing_the_agent_at_random_moments_runs_every_job_exactly_once(
    new_agent: NewAgent, tmp_path: Path
) -> None:
    chance = random.Random(7)
    keys = [f"k{index}" for index in range(200)]
    jobs = [
        {"key": key, "argv": ["sh", "-c", f"echo {key} >> {tmp_path}/lines; exit {at % 7}"]}
        for at, key in enumerate(keys)
    ]
    ended: dict[str, dict[str, int]] = {}
    while len(ended) < len(keys):
        agent = new_agent()
        wanted = [job for job in jobs if job["key"] not in ended]
        agent.ask("start", jobs=wanted[:40])
        goal = chance.randint(0, 25) if len(wanted) > 25 else len(wanted)
        agent.wait_for(lambda agent=agent, goal=goal: len(agent.ended) >= goal)
        agent.kill()
        ended.update(agent.ended)
    assert [ended[key]["code"] for key in keys] == [at % 7 for at in range(200)]
    assert sorted((tmp_path / "lines").read_text().split()) == sorted(keys)


def test_killing_supervisors_at_random_runs_no_job_twice(agent: Driver, tmp_path: Path) -> None:
    chance = random.Random(3)
    keys = [f"k{index}" for index in range(60)]
    script = "echo {} >> " + str(tmp_path / "lines") + "; sleep 0.05; exit 3"
    for key in keys:
        agent.start(key, "sh", "-c", script.format(key))
        children = Path(f"/proc/{agent.process.pid}/task/{agent.process.pid}/children").read_text()
        if chance.random() < 0.3 and children:
            pid = int(chance.choice(children.split()))
            if b"remote.main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
    agent.end_of(*keys)
    # Killed in the moment of starting or reaping the command, the outcome is gone for good.
    known = [key for key in keys if agent.ended[key]["cause"] != "lost"]
    assert {(agent.ended[key]["code"], agent.ended[key]["cause"]) for key in known} == {(3, "")}
    ran = (tmp_path / "lines").read_text().split()
    assert len(ran) == len(set(ran)) and set(known) <= set(ran)
