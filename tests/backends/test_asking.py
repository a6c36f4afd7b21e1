"""Whether a queue would take a job: how often it is asked, and what is made of its answers."""

import asyncio
from typing import Any, cast

import pytest

from towline.backends.queue import asking
from towline.backends.queue.dialect import Site, Words
from towline.backends.queue.queue import Queue
from towline.backends.slurm.dialect import SlurmDialect
from towline.errors import Impossible
from towline.model.job import Queueing

SMALL, LARGE = (Queueing("slurm", ((f"--mem={size}",),)) for size in ("1G", "9G"))


class AskedQueue:
    """Refuses what is too large, and notes what it was asked."""

    name = "there"
    dialect = SlurmDialect()
    site = Site()

    def __init__(self) -> None:
        self.would_take: dict[str, tuple[float, str]] = {}
        self.asked: list[Words] = []
        self.driver = self.commands = self

    async def reach(self, timeout_s: float, patient: bool) -> None: ...

    async def call(self, link: None, words: Words, timeout_s: float) -> dict[str, Any]:
        self.asked.append(words)
        refused = "--mem=9G" in words
        return {"code": int(refused), "out": "", "err": "error: too large" if refused else ""}

    async def list_nodes(self, link: None) -> list[Any]:
        return []

    async def accounts(self, link: None, refused: Any) -> str:
        return ""


def test_what_it_would_take_is_asked_once_and_what_it_refuses_every_time() -> None:
    queue = AskedQueue()

    async def ask(wish: Queueing) -> str:
        return await asking.check_possible(cast("Queue", queue), wish)

    first = asyncio.run(ask(SMALL))
    assert "goes into Slurm's queue" in first and asyncio.run(ask(SMALL)) == first
    assert len(queue.asked) == 1
    for _ in range(2):
        with pytest.raises(Impossible, match="too large"):
            asyncio.run(ask(LARGE))
    assert len(queue.asked) == 3
    queue.would_take = {key: (at - 60.0, said) for key, (at, said) in queue.would_take.items()}
    asyncio.run(ask(SMALL))
    assert len(queue.asked) == 4
