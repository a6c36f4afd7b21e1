"""What is written down about a job is out of its reach; what an older agent wrote is understood."""

import fcntl
import json
import os
from pathlib import Path

import pytest

from testbed.waiting import wait_until

from .conftest import NewAgent
from .driver import Driver

ENDING = {"code": 3, "signal": None, "cause": "", "text": "", "started": 5.0, "ended": 6.0}
SPEC = {
    "argv": ["true"],
    "env": {},
    "environ": None,
    "cwd": "",
    "setup": "",
    "grace_s": 1,
    "at": "",
}
UNTIL_TOLD = "echo ready; until [ -e end ]; do sleep 0.05; done; exit 5"


@pytest.mark.parametrize("name", ["exit", "life", "go", "stop", "mark", "elsewhere", "where"])
def test_a_job_may_call_a_file_of_its_own_like_one_of_ours(
    new_agent: NewAgent, root: Path, name: str
) -> None:
    first = new_agent()
    first.start("a", "sh", "-c", f"echo 0 > $JOB_DIR/{name}; {UNTIL_TOLD}")
    first.call_blob("read", key="a", stream="out", offset=0, limit=10, wait=True)
    first.kill()
    second = new_agent()
    assert second.state("a") == "running"
    (root / "jobs/a/src/end").touch()
    assert second.end_of("a")["code"] == 5
    third = new_agent()
    assert third.call("observe", keys=["a"])["states"]["a"]["ending"]["code"] == 5


@pytest.fixture
def old(root: Path) -> Path:
    """The folder of a job that an agent began which kept the records in there."""
    folder = root / "jobs/a"
    (folder / "src").mkdir(parents=True)
    return folder


def test_the_ending_of_a_job_of_an_older_agent_is_found_and_forgotten(
    new_agent: NewAgent, old: Path
) -> None:
    (old / "exit").write_text(json.dumps({**ENDING, "spec": SPEC}))
    (old / "out").write_text("said\n")
    agent = new_agent()
    assert agent.call("observe", keys=["a"])["states"]["a"]["ending"]["code"] == 3
    assert agent.output("a") == b"said\n"
    assert agent.run("a", "sh", "-c", "echo twice")["code"] == 3
    [[key, size, ended]] = agent.call("sizes", prefix="a")["folders"]
    assert (key, ended) == ("a", True) and size > 0
    assert agent.call("forget", keys=["a"])["forgotten"] == ["a"]
    assert agent.state("a") == "unknown"


def test_a_running_job_of_an_older_agent_is_running_whatever_it_wrote_itself(
    new_agent: NewAgent, old: Path
) -> None:
    (old / "exit").write_text("0\n")
    life = {"supervisor": os.getpid(), "boot": "x", "spawning": 5.0, "pid": os.getpid(), "start": 1}
    with open(old / "life", "w") as file:
        file.write(json.dumps({**life, "started": 5.0, "spec": SPEC}))
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        agent = new_agent()
        assert agent.state("a") == "running"
        agent.start("a", "true")
        agent.wait_for(lambda: "a" in agent.started)
        (old / "exit").unlink()
        # As its supervisor does at the end.
        file.seek(0)
        file.write(json.dumps({**ENDING, "spec": SPEC}).ljust(400))
        file.flush()
        os.rename(old / "life", old / "exit")
    assert agent.end_of("a")["code"] == 3
    assert not (old.parents[1] / "records/a").exists()


def test_both_folders_are_counted_and_go_together(agent: Driver, root: Path) -> None:
    agent.run("a", "sh", "-c", "echo said; head -c 100000 /dev/zero > made")
    agent.run("b", "sh", "-c", 'rm -rf "$JOB_DIR"')
    found = {key: ended for key, _, ended in agent.call("sizes", prefix="a")["folders"]}
    assert found == {"a": True}
    assert agent.call("sizes", prefix="b")["folders"][0][0] == "b"
    assert agent.call("forget", keys=["a", "b"])["forgotten"] == ["a", "b"]
    wait_until(
        lambda: not any(any((root / name).iterdir()) for name in ("jobs", "records", "trash"))
    )


def test_the_version_of_a_job_whose_folder_is_gone_stays(agent: Driver, root: Path) -> None:
    agent.run("a", "sh", "-c", 'rm -rf "$JOB_DIR"')
    kept = json.loads((root / "records/a/exit").read_text())
    assert kept["spec"]["argv"][0] == "sh"
