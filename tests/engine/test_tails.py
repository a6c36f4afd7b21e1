"""The last lines of an output are found without reading all of it."""

import asyncio

import pytest
from msgspec.structs import replace

from towline.engine.following import tails
from towline.errors import AgentError
from towline.model.job import Attempt, Job, JobSpec, State
from towline.model.machine import Slot

SPEC = JobSpec(argv=("x",), cluster="lab", owner="me")
JOB = Job(1, SPEC, State.RUNNING, attempt=Attempt(1, (Slot("gpu1"),)))


class Logs:
    """An output that is read in small pieces, and how much of it was."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.read = 0

    async def log_size(self, job: Job, rank: int, stream: str) -> int:
        return len(self.text)

    async def read_log(
        self, job: Job, rank: int, stream: str, offset: int, wait: bool
    ) -> tuple[bytes, bool]:
        piece = self.text[offset : offset + 7]
        self.read += len(piece)
        return piece, False


def last(text: bytes, lines: int) -> bytes:
    logs = Logs(text)
    found = asyncio.run(tails.beginnings(logs, JOB, ("out",), lines=lines))
    return text[found["0.0.out"] :]


@pytest.mark.parametrize("look", [1, 3, 10, 1000])
def test_the_last_lines_are_those_that_tail_would_show(
    monkeypatch: pytest.MonkeyPatch, look: int
) -> None:
    monkeypatch.setattr(tails, "_FIRST_LOOK", look)
    text = b"one\ntwo\n\nfour"
    assert last(text, 1) == b"four" and last(text + b"\n", 1) == b"four\n"
    assert last(text, 2) == b"\nfour" and last(text, 3) == b"two\n\nfour"
    assert last(text, 4) == last(text, 99) == text and last(b"", 5) == b""


def test_only_the_end_of_a_long_output_is_read() -> None:
    logs = Logs(b"line\n" * 100_000)
    asyncio.run(tails.beginnings(logs, JOB, ("out",), lines=3))
    assert logs.read < 1 << 17


def test_a_number_of_bytes_is_just_that() -> None:
    found = asyncio.run(tails.beginnings(Logs(b"12345"), JOB, ("out", "err"), size=2))
    assert found == {"0.0.out": 3, "0.0.err": 3}


def test_a_job_that_is_only_just_starting_is_read_from_its_beginning() -> None:
    class NotThere(Logs):
        async def log_size(self, job: Job, rank: int, stream: str) -> int:
            raise AgentError("no such job on this machine")

    starting = replace(JOB, state=State.STARTING)
    assert asyncio.run(tails.beginnings(NotThere(b""), starting, ("out",), lines=3)) == {}
