"""Whatever one machine's agent says, the Engine lives, and jobs of another do not notice.

`TOWLINE_FUZZ_MESSAGES=200000 pytest tests/fuzz/test_hostile_agent.py` is the long form.
"""

import asyncio
import itertools
import logging
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from fuzz.machines import Evil, Honest, Machine
from fuzz.messages import connections
from towline.agent.link import Link
from towline.backends.machines import channel
from towline.backends.machines.backend import Machines
from towline.backends.membership import Membership
from towline.engine.engine import Engine
from towline.model.job import FINAL, JobSpec, State
from towline.probes.machine import ConfiguredLimits
from towline.snapshot.blobs import BlobStore
from towline.store.store import Store

SEED = int(os.environ.get("TOWLINE_FUZZ_SEED", "1"))
MESSAGES = int(os.environ.get("TOWLINE_FUZZ_MESSAGES", "1000"))
AS_MANY = settings(
    max_examples=min(100, MESSAGES // 20),
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)


def spec(cluster: str, request: str = "[]") -> JobSpec:
    return JobSpec(argv=("true",), cluster=cluster, owner="me", request=request, results=False)


class World:
    """An Engine with two machines, of which one is evil."""

    def __init__(self, folder: Path) -> None:
        store = Store(str(folder / "store.db"))
        store._db.execute("PRAGMA synchronous=OFF")
        self.engine = Engine(store)
        blobs = BlobStore(str(folder / "blobs"))
        environment: Any = lambda digest: None  # noqa: E731
        self.machines = Machines("e", self.engine.report, blobs, environment, 5.0)
        self.engine.backend = self.machines
        self.good = Honest("good")
        self.evil = Evil("evil", lambda: list(self.machines.drivers["evil"].wanted))
        self.loop = asyncio.create_task(self.engine.run())
        for machine in (self.good, self.evil):
            member = Membership(machine, "/x", ConfiguredLimits(), 1e9)
            self.machines.join(machine.name, [member])
        self.ran = 0
        self.heard = 0

    async def runs_well(self) -> None:
        """A job of the other machine is done, as if there were no evil in the world."""
        [number] = await self.engine.submit([spec("good")])
        async with asyncio.timeout(20):
            job = await self.engine.job_where(number, lambda job: job.state in FINAL)
        assert job.state is State.DONE, job
        self.ran += 1

    async def meets(self, connection: dict[str, Any]) -> None:
        if len(self.machines.drivers["evil"].wanted) < 4:
            await self.engine.submit([spec("evil"), spec("evil", "2:[]")])
        self.evil.hello = connection["hello"]
        self.evil.answers = {op: list(some) for op, some in connection["answers"].items()}
        driver = self.machines.drivers["evil"]
        if self.evil.pipe is not None:
            self.evil.pipe.close()
        await self.greets(driver.channel)
        for event in connection["events"]:
            if self.evil.pipe is None or self.evil.pipe.over:
                await self.greets(driver.channel)
            self.heard += driver.channel._greeted
            self.evil.say(self.evil.pipe, event)
            await asyncio.sleep(0)
        await self.runs_well()
        assert not self.loop.done()
        assert self.engine.store.unreadable == {}

    async def greets(self, evil: channel.Channel) -> None:
        """Until it is connected again, if it greets so that it can be."""
        evil.redial()
        for _ in range(60):
            await asyncio.sleep(0)
            if evil._greeted:
                return

    async def close(self) -> None:
        await self.machines.close()
        self.loop.cancel()
        await asyncio.gather(self.loop, return_exceptions=True)
        self.engine.close()


async def dial(host: Machine, root: str, on_event: Any, on_closed: Any, begin: Any) -> Link:
    link = Link(host, on_event, on_closed)
    host.open(link)
    begin(link)
    return link


async def until_redialled(self: channel.Channel, pause_s: float) -> None:
    await self._redial.wait()
    self._redial.clear()


@pytest.mark.slow
@pytest.mark.timeout(120 + MESSAGES // 10)
def test_the_engine_lives_whatever_an_agent_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Link, "dial", staticmethod(dial))
    monkeypatch.setattr(channel.Channel, "_sleep", until_redialled)
    logging.getLogger("towline").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:

        async def begin() -> World:
            return World(Path(folder))

        world = runner.run(begin())

        def play(connection: dict[str, Any]) -> None:
            runner.run(world.meets(connection))

        for number in itertools.count(SEED):
            seed(number)(AS_MANY(given(connection=connections)(play)))()
            if world.evil.sent >= MESSAGES:
                break
        print(f"\n{world.evil.sent} messages, {world.heard} of them after a greeting that was")
        print(f"accepted; meanwhile {world.ran} jobs of the other machine ran")
        assert world.engine.store.active("good") == []
        runner.run(world.close())
