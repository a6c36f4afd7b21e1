"""What comes home of a job's files is what its machine sent."""

import asyncio
import hashlib
from types import SimpleNamespace
from typing import Any, cast

import pytest

from towline.backends.machines import Machines
from towline.errors import HostError
from towline.model.job import Job, JobSpec


def fetched(content: bytes, told: str) -> bytes:
    """What the Engine gets of an answer with this content, and this hash told with it."""

    async def ask(op: str, blob: bytes, **fields: Any) -> tuple[dict[str, Any], bytes]:
        return {"eof": True, "sha256": told}, content

    async def where(job: Job, rank: int) -> tuple[Any, str]:
        return SimpleNamespace(ask=ask, host=SimpleNamespace(name="gpu1")), "e1-1-1-0"

    machines = cast("Machines", SimpleNamespace(_where=where))
    job = Job(1, JobSpec(argv=("true",), cluster="lab", owner="me"))
    asked = Machines.file_operation(machines, job, 0, "get", path="model.bin")
    return asyncio.run(asked)[1]


def test_a_piece_that_arrives_as_it_was_sent_is_taken() -> None:
    assert fetched(b"weights", hashlib.sha256(b"weights").hexdigest()) == b"weights"


def test_a_piece_that_was_damaged_on_its_way_is_not_taken() -> None:
    with pytest.raises(HostError, match=r"gpu1: a part of model.bin arrived damaged"):
        fetched(b"weighty", hashlib.sha256(b"weights").hexdigest())
