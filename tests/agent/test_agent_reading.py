"""Output comes as it is written, piece by piece, whatever its size."""

import hashlib
from pathlib import Path

import pytest

from .driver import AgentError, Driver


def resident_mb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) // 1024


def read(agent: Driver, offset: int = 0, **fields: object) -> int:
    return agent.ask("read", key="a", stream="out", offset=offset, limit=262144, **fields)


def test_a_waiting_read_is_answered_as_soon_as_there_is_output(agent: Driver, root: Path) -> None:
    agent.start("a", "sh", "-c", "while ! [ -e now ]; do sleep 0.02; done; echo hi; sleep 300")
    agent.wait_for(lambda: "a" in agent.started)
    number = read(agent, wait=True)
    (root / "jobs/a/src/now").touch()
    header, data = agent.reply(number)
    assert data == b"hi\n"
    assert header["eof"] is False
    number = read(agent, offset=3, wait=True)
    agent.call("stop", keys=["a"], grace_s=5)
    header, data = agent.reply(number)
    assert (header["eof"], header["size"], data) == (True, 3, b"")
    agent.end_of("a")


def test_a_read_may_wait_before_the_job_has_started(agent: Driver) -> None:
    agent.start("a", "echo", "hi", hold=True)
    number = read(agent, wait=True)
    agent.call("go", keys=["a"])
    assert agent.reply(number)[1] == b"hi\n"


def test_a_cancelled_read_is_never_answered(agent: Driver) -> None:
    agent.start("a", "echo", "hi", hold=True)
    number = read(agent, wait=True)
    agent.call("cancel", ids=[number])
    agent.call("go", keys=["a"])
    agent.end_of("a")
    agent.call("observe", keys=["a"])
    assert agent.pop(lambda header: header.get("re") == number) is None


def test_output_of_an_unknown_job_is_refused(agent: Driver) -> None:
    with pytest.raises(AgentError) as refused:
        agent.reply(read(agent))
    assert refused.value.code == "unknown_job"


def test_much_output_arrives_whole_with_bounded_memory(agent: Driver) -> None:
    size = 200 << 20
    agent.start("a", "head", "-c", str(size), "/dev/zero")
    # Everything is asked for before anything is taken: the agent must not queue it all.
    numbers = [read(agent, offset, wait=True) for offset in range(0, 40 << 20, 262144)]
    total = hashlib.sha256()
    at = 0
    for number in numbers:
        data = agent.reply(number)[1]
        if len(data) < 262144:
            break
        total.update(data)
        at += len(data)
    eof = False
    while not eof:
        header, data = agent.reply(read(agent, at, wait=True))
        total.update(data)
        at += len(data)
        eof = header["eof"]
    assert at == size
    assert total.hexdigest() == hashlib.sha256(bytes(size)).hexdigest()
    assert resident_mb(agent.process.pid) < 60
