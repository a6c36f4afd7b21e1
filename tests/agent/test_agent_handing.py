"""Jobs that another queue runs: handed over once, run once, told of by files; on every Python."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed.waiting import wait_until

from .conftest import NewAgent
from .driver import REMOTE, Driver
from .test_agent_pythons import pythons

KEY = "engine-1-1"
RUN = """
import sys
sys.path[:0] = [sys.argv[1]]
from remote.node.runner import main
main(sys.argv[2:])
"""


def hand_over(agent: Driver, *command: str, **order: Any) -> dict[str, Any]:
    """Hand a job over to a queue that only gives out a number."""
    spec = {"key": f"{KEY}-0", "argv": list(command), "grace_s": 2, "env": {"A": "from -e"}}
    whole = {"processes": 1, "parts": [], "ranks": [[0, 0]], "gpus": [0], "given": ["A"], **order}
    argv = ["sh", "-c", 'echo asked >> "$0/asked"; echo 7', str(agent.root)]
    return agent.call(
        "hand_over", key=KEY, order=whole, specs=[spec], script="#!/bin/sh\n", argv=argv
    )


def run(agent: Driver, number: str = "7", count: str = "0", python: str = sys.executable, **env):  # type: ignore[no-untyped-def]
    """What the queue does on a node: run the attempt under its number."""
    return subprocess.Popen(
        [python, "-B", "-c", RUN, str(REMOTE), str(agent.root), KEY],
        env={**os.environ, "SLURM_JOB_ID": number, "SLURM_RESTART_COUNT": count, **env},
        stderr=subprocess.DEVNULL,
    )


def state(agent: Driver) -> dict[str, Any]:
    found: dict[str, Any] = agent.call("handed", keys={KEY: 1})["handed"][KEY]["ranks"][0]
    return found


def test_it_is_handed_over_once_however_often_that_is_asked(agent: Driver) -> None:
    assert hand_over(agent, "true")["out"] == "7\n"
    assert hand_over(agent, "true")["out"] == "7\n"
    assert (agent.root / "asked").read_text() == "asked\n"
    known = agent.call("handed", keys={KEY: 1})["handed"][KEY]
    assert (known["ticket"], known["claim"], known["ranks"]) == ("7\n", "", [{"state": "waiting"}])


@pytest.mark.parametrize("python", pythons().values(), ids=pythons().keys())
def test_it_runs_as_on_a_machine_and_its_end_is_told(new_agent: NewAgent, python: str) -> None:
    agent = new_agent(python=python)
    agent.call("heed", prefix="engine")
    hand_over(
        agent,
        "sh",
        "-c",
        "echo $A $HOST_GROUP0_PROCESS0 ${MASTER_ADDR-no} ${LOCAL_RANK-no}; exit 3",
    )
    assert run(agent, python=python).wait(timeout=30) == 3
    news = agent.wait_for(lambda: agent.pop(lambda h: h.get("event") == "handed"))[0]["news"]
    while news[f"{KEY}-0"]["state"] != "ended":
        news = agent.wait_for(lambda: agent.pop(lambda h: h.get("event") == "handed"))[0]["news"]
    ending = news[f"{KEY}-0"]["ending"]
    assert (ending["code"], ending["cause"]) == (3, "")
    out = agent.call_blob("read", key=f"{KEY}-0", stream="out", offset=0, limit=100)[1]
    assert out.decode().split() == ["from", "-e", os.uname().nodename, "no", "no"]


def test_news_that_are_being_written_are_not_read_yet(agent: Driver) -> None:
    hand_over(agent, "true")
    agent.call("heed", prefix="engine")
    news = agent.root / "news/engine"
    (news / f"{KEY}-0.0.4711.new").touch()
    (news / f"{KEY}-0.1").touch()
    told = agent.wait_for(lambda: agent.pop(lambda h: h.get("event") == "handed"))[0]["news"]
    assert list(told) == [f"{KEY}-0"]


def test_a_second_entry_for_the_same_attempt_does_not_run(agent: Driver) -> None:
    hand_over(agent, "sh", "-c", "echo x >> ../../../runs")
    assert run(agent, "7").wait(timeout=30) == 0
    for number, count in (("8", "0"), ("8", "1"), ("7", "0"), ("7", "1")):
        run(agent, number, count).wait(timeout=30)
    assert (agent.root / "runs").read_text() == "x\n"


def test_a_stopped_attempt_does_not_start(agent: Driver) -> None:
    hand_over(agent, "sh", "-c", "echo x >> ../../../runs")
    assert agent.call("stop_handed", keys=[KEY]).get("code") is None
    assert run(agent).wait(timeout=30) == 0
    assert not (agent.root / "runs").exists()


#: A run that is asked to end in the very moment after it has claimed the attempt.
ASKED_AT_ONCE = """
import os, signal, sys
sys.path[:0] = [sys.argv[1]]
from remote.node import runner
claim = runner.Attempt.claim
def asked_at_once(self):
    mine = claim(self)
    os.kill(os.getpid(), signal.SIGTERM)
    return mine
runner.Attempt.claim = asked_at_once
runner.main(sys.argv[2:])
"""


def test_what_is_cancelled_between_its_claim_and_its_start_says_that_it_never_began(
    agent: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.RUN", ASKED_AT_ONCE)
    hand_over(agent, "sh", "-c", "echo x >> ../../../runs")
    assert run(agent).wait(timeout=30) == 1
    ending = state(agent)["ending"]
    assert (ending["cause"], ending["started"]) == ("evicted", 0)
    assert not (agent.root / "runs").exists()


def test_nobody_here_judges_a_job_that_runs_elsewhere(agent: Driver) -> None:
    hand_over(agent, "sleep", "300")
    running = run(agent)
    wait_until(lambda: state(agent)["state"] == "running")
    # As after the power went: no lock, no process, and yet only its queue knows what became of it.
    # Stopped first, so that the runner sees nothing of the end of its command.
    running.send_signal(signal.SIGSTOP)
    for pid in Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split():
        os.kill(int(pid), signal.SIGKILL)
    running.kill()
    running.wait(timeout=30)
    assert agent.call("observe", keys=[f"{KEY}-0"])["states"][f"{KEY}-0"]["state"] == "running"
    assert state(agent)["state"] == "running"


def test_run_after_a_time_limit_starts_with_what_was_kept(agent: Driver) -> None:
    script = "echo x >> $KEEP_DIR/runs; echo y > new; cat $KEEP_DIR/runs | wc -l; sleep 300"
    hand_over(agent, "sh", "-c", script, on_timeout="resubmit", time_s=1)
    tool = agent.root / "scontrol"
    tool.write_text('#!/bin/sh\necho "$@" >> "$0.said"\n')
    tool.chmod(0o755)
    for count in (0, 1):
        running = run(agent, count=str(count), PATH=f"{agent.root}:{os.environ['PATH']}")
        expected = {"state": "running", "run": count}
        wait_until(lambda: expected.items() <= state(agent).items())  # noqa: B023
        wait_until(lambda: len((where(agent) / "out").read_text().split()) == count + 1)  # noqa: B023
        running.send_signal(signal.SIGTERM)  # as Slurm does at the limit
        assert running.wait(timeout=30) == 0
    assert (agent.root / "scontrol.said").read_text() == "requeue 7\nrequeue 7\n"
    assert not (agent.root / "records" / f"{KEY}-0" / "exit").exists()
    assert (where(agent) / "out").read_text().split() == ["1", "2"]
    assert (where(agent) / "keep/runs").read_text() == "x\nx\n"


def where(agent: Driver) -> Path:
    return agent.root / "jobs" / f"{KEY}-0"


def test_call_tells_code_and_output_of_a_program(agent: Driver) -> None:
    answer = agent.call("call", argv=["sh", "-c", "echo $0; echo err >&2; exit 4", "a b; $c"])
    assert (answer["code"], answer["out"], answer["err"]) == (4, "a b; $c\n", "err\n")
    assert agent.call("call", argv=["no-such-program"])["code"] == 127
    answer = agent.call("call", argv=["sleep", "300"], timeout_s=0.1)
    assert answer["code"] < 0
    assert "timed out" in answer["err"]


def test_login_shell_gets_the_words_as_they_are(agent: Driver) -> None:
    answer = agent.call("call", argv=["printf", "%s|", "it's", "$HOME", "a b", ""], login=True)
    assert answer["out"].endswith("it's|$HOME|a b||")


def age(root: Path) -> None:
    """As if all of it had been handed over long ago."""
    for folder in (root / "handed").iterdir():
        os.utime(folder, (1, 1))


def test_what_was_handed_over_goes_after_its_job_folder(agent: Driver) -> None:
    hand_over(agent, "true")
    assert run(agent).wait(timeout=30) == 0
    age(agent.root)
    agent.call("sweep", unused_s=60)
    assert (agent.root / "handed" / KEY).is_dir(), "its job folder is there"
    assert agent.call("forget", keys=[f"{KEY}-0"])["forgotten"] == [f"{KEY}-0"]
    assert agent.call("sweep", unused_s=60, dry=True)["bytes"] > 0
    assert agent.call("sweep", unused_s=60)["bytes"] > 0
    assert not (agent.root / "handed" / KEY).exists()


def test_an_attempt_that_never_began_can_be_forgotten_and_one_that_runs_cannot(
    agent: Driver,
) -> None:
    hand_over(agent, "sleep", "60")
    ((_, _, ended),) = agent.call("sizes", prefix="engine-")["folders"]
    assert ended, "it has not begun, so nothing is lost with it"
    running = run(agent)
    wait_until((agent.root / "handed" / KEY / "claim").exists)
    ((_, _, ended),) = agent.call("sizes", prefix="engine-")["folders"]
    assert not ended
    assert agent.call("forget", keys=[f"{KEY}-0"])["forgotten"] == []
    agent.call("stop_handed", keys=[KEY])
    running.wait(timeout=30)


def test_an_attempt_that_was_forgotten_does_not_run_after_all(agent: Driver) -> None:
    hand_over(agent, "sh", "-c", "echo x >> ../../../runs")
    assert agent.call("forget", keys=[f"{KEY}-0"])["forgotten"] == [f"{KEY}-0"]
    assert run(agent).wait(timeout=30) != 0
    assert not (agent.root / "runs").exists()


def test_an_attempt_that_is_given_up_is_written_down_and_does_not_run_after_all(
    agent: Driver,
) -> None:
    hand_over(agent, "sh", "-c", "echo x >> ../../../runs")
    agent.call("conclude_handed", keys=[KEY], lost={f"{KEY}-0": "its node failed"})
    assert state(agent)["state"] == "ended"
    assert state(agent)["ending"]["cause"] == "lost"
    assert state(agent)["ending"]["text"] == "its node failed"
    assert run(agent).wait(timeout=30) != 0
    assert not (agent.root / "runs").exists()
    assert agent.call("forget", keys=[f"{KEY}-0"])["forgotten"] == [f"{KEY}-0"]


def test_an_attempt_that_runs_though_it_was_given_up_tells_its_end(agent: Driver) -> None:
    hand_over(agent, "sh", "-c", "sleep 1; exit 3")
    running = run(agent)
    wait_until(lambda: state(agent)["state"] == "running")
    agent.call("conclude_handed", keys=[KEY], lost={f"{KEY}-0": "nobody knows", "other-1-1-0": ""})
    assert state(agent)["ending"]["text"] == "nobody knows"
    assert running.wait(timeout=30) == 3
    assert state(agent)["ending"]["code"] == 3


def test_an_array_goes_after_the_last_of_its_tasks(agent: Driver) -> None:
    keys = [f"engine-{job}-1" for job in (1, 2)]
    specs = {str(n): {"key": f"{key}-0", "argv": ["true"]} for n, key in enumerate(keys)}
    agent.call("prepare_handed", array="engine-a1", tasks=specs)
    order = {"processes": 1, "parts": [], "ranks": [[0, 0]], "gpus": [0], "array": True}
    tasks = {str(n): key for n, key in enumerate(keys)}
    asked = {"order": order, "specs": [], "tasks": tasks, "script": "#!/bin/sh\n"}
    agent.call("hand_over", key="engine-a1", argv=["echo", "7"], **asked)
    for key in keys:
        age(agent.root)
        agent.call("sweep", unused_s=60)
        assert (agent.root / "handed/engine-a1/order").exists()
        agent.call("forget", keys=[f"{key}-0"])
    agent.call("sweep", unused_s=60)
    assert list((agent.root / "handed").iterdir()) == []
