"""A machine that cannot start anything for a moment fails no job."""

import errno
import json
from pathlib import Path

import pytest

from testbed.waiting import wait_until

from .conftest import NewAgent
from .driver import START

#: An agent whose machine refuses to start programs while the file `crowded` is there.
CROWDED = START.replace(
    "main({root!r})",
    """
import os
from remote.commands import process
from remote.run import command
launch, command.PATIENCE_S = process.launch, float(os.environ["PATIENCE"])
def refuse(*args):
    if os.path.exists(os.environ["CROWDED"]):
        raise OSError(int(os.environ["ERRNO"]), os.strerror(int(os.environ["ERRNO"])))
    return launch(*args)
process.launch = refuse
main({root!r})""",
)
NOT_NOW = [errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY]


@pytest.fixture
def crowded(tmp_path: Path) -> Path:
    (tmp_path / "crowded").touch()
    return tmp_path / "crowded"


@pytest.mark.parametrize("number", NOT_NOW, ids=[errno.errorcode[n] for n in NOT_NOW])
def test_a_job_starts_once_there_is_room(
    new_agent: NewAgent, root: Path, crowded: Path, number: int
) -> None:
    agent = new_agent(code=CROWDED, CROWDED=str(crowded), ERRNO=str(number), PATIENCE="3600")
    agent.start("a", "echo", "hi")
    life = root / "records/a/life"
    wait_until(lambda: life.exists() and "identity" in life.read_text())
    crowded.unlink()
    assert agent.end_of("a")["code"] == 0
    assert agent.output("a") == b"hi\n"


def test_a_job_for_which_there_is_no_room_for_long_goes_back_into_the_queue(
    new_agent: NewAgent, root: Path, crowded: Path
) -> None:
    agent = new_agent(code=CROWDED, CROWDED=str(crowded), ERRNO=str(errno.EAGAIN), PATIENCE="0")
    end = agent.run("a", "true")
    assert (end["cause"], end["code"], end["started"]) == ("void", None, 0)
    assert json.loads((root / "records/a/exit").read_text())["cause"] == "void"


def test_a_job_that_waits_for_room_can_be_stopped(new_agent: NewAgent, crowded: Path) -> None:
    agent = new_agent(code=CROWDED, CROWDED=str(crowded), ERRNO=str(errno.EAGAIN), PATIENCE="3600")
    agent.start("a", "true")
    agent.call("stop", keys=["a"], grace_s=5)
    assert agent.end_of("a")["cause"] == "stopped"
