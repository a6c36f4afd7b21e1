"""Output comes as it is written, piece by piece, whatever its size."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.waiting import wait_until

from .driver import START, AgentError, Driver


def resident_mb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) // 1024


def read(agent: Driver, offset: int = 0, **fields: Any) -> int:
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


BOTH = "while ! [ -e now ]; do sleep 0.02; done; echo printed; echo failed >&2; sleep 300"


def order_of_replies(agent: Driver, *numbers: int) -> list[int]:
    found: list[int] = []

    def all_there() -> bool:
        frame = agent.pop(lambda header: header.get("re") in numbers)
        if frame is not None:
            found.append(frame[0]["re"])
        return len(found) == len(numbers)

    agent.wait_for(all_there)
    return found


def test_what_was_printed_before_an_error_is_told_before_it(agent: Driver, root: Path) -> None:
    agent.start("a", "sh", "-c", BOTH)
    agent.wait_for(lambda: "a" in agent.started)
    errors = agent.ask("read", key="a", stream="err", offset=0, limit=262144, wait=True)
    output = read(agent, wait=True)
    agent.call("observe", keys=["a"])  # so it has heard of both
    (root / "jobs/a/src/now").touch()
    assert order_of_replies(agent, errors, output) == [output, errors]
    agent.call("stop", keys=["a"], grace_s=5)


#: Both lines are printed between the look at the output and the one at the errors.
BETWEEN_TWO_LOOKS = """
import os, sys, time
sys.path.insert(0, {folder!r})
from remote.wire import log_reads
from remote.main import main

looked = log_reads.Reads.look

def look(self, request, give_up=False):
    folder = self.home.job(request["key"])
    if request["stream"] == "err" and os.path.exists(folder + "/src/armed"):
        open(folder + "/src/now", "w").close()
        while not os.path.getsize(folder + "/err"):
            time.sleep(0.01)
    return looked(self, request, give_up)

log_reads.Reads.look = look
main({root!r})
"""


def test_what_is_printed_between_two_looks_is_told_before_an_error(
    new_agent: Callable[..., Driver], root: Path
) -> None:
    agent = new_agent(code=BETWEEN_TWO_LOOKS)
    agent.start("a", "sh", "-c", BOTH)
    agent.wait_for(lambda: "a" in agent.started)
    errors = agent.ask("read", key="a", stream="err", offset=0, limit=262144, wait=True)
    output = read(agent, wait=True)
    agent.call("observe", keys=["a"])  # so it has heard of both
    (root / "jobs/a/src/armed").touch()
    assert order_of_replies(agent, errors, output) == [output, errors]
    agent.call("stop", keys=["a"], grace_s=5)


def test_errors_wait_a_moment_for_output_that_is_about_to_be_asked_for(
    new_agent: Callable[..., Driver], root: Path
) -> None:
    patient = START.replace(
        "main({root", "import remote.wire.log_reads as w; w.OUT_FIRST_S = 60; main({root"
    )
    agent = new_agent(code=patient)
    agent.start("a", "sh", "-c", BOTH)
    agent.wait_for(lambda: "a" in agent.started)
    agent.reply(read(agent))
    errors = agent.ask("read", key="a", stream="err", offset=0, limit=262144, wait=True)
    (root / "jobs/a/src/now").touch()
    wait_until(lambda: (root / "jobs/a/err").stat().st_size)
    agent.call("observe", keys=["a"])
    output = read(agent, wait=True)
    assert order_of_replies(agent, errors, output) == [output, errors]
    agent.call("stop", keys=["a"], grace_s=5)


def test_errors_alone_wait_for_nobody(agent: Driver) -> None:
    agent.start("a", "sh", "-c", "echo printed; echo failed >&2; sleep 300")
    errors = agent.ask("read", key="a", stream="err", offset=0, limit=262144, wait=True)
    assert agent.reply(errors)[1] == b"failed\n"
    agent.reply(read(agent))
    agent.call("stop", keys=["a"], grace_s=5)
