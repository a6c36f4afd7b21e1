"""What tests of the Engine work on: benches that can be killed and started again."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol, TypeVar

import pytest

from towline.backends.fake import FakeBackend
from towline.config.paths import home_paths
from towline.engine.engine import Engine
from towline.model.events import MachineSeen
from towline.model.machine import Machine
from towline.store.store import Store

MACHINE = Machine("gpu1", cpus=4, mem_mb=16000, clusters=("lab",))


class Closable(Protocol):
    async def close(self) -> None: ...


Subject = TypeVar("Subject", bound=Closable)


def play_on(
    make: Callable[[], Subject], scenario: Callable[[Subject], Awaitable[None]], seconds: float
) -> None:
    """Play a scenario on a bench of its own, which is closed whatever happens."""

    async def whole() -> None:
        bench = make()
        try:
            async with asyncio.timeout(seconds):
                await scenario(bench)
        finally:
            await bench.close()

    asyncio.run(whole())


class EngineBench:
    """An Engine on a store, with a fake backend, that can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "store.db")
        self.start()

    def start(self) -> None:
        self.engine = Engine(Store(self.path))
        self.backend = self.new_backend()
        self.engine.backend = self.backend
        self.equip()
        self.task = asyncio.create_task(self.engine.run())
        self.engine.report(MachineSeen(MACHINE))

    def new_backend(self) -> FakeBackend:
        return FakeBackend(self.engine.report)

    def equip(self) -> None:
        """Put beside the Engine what the tests need there."""

    async def put_away(self) -> None:
        """Close what was put there."""

    async def recover(self) -> None:
        await self.engine.recover()

    async def kill_and_restart(self) -> None:
        """As kill -9 does: nothing is said good-bye to; what runs on machines goes on."""
        await self.close()
        old = self.backend
        self.start()
        self.backend.there = old.there
        await self.recover()

    async def close(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.put_away()
        self.engine.close()


class AdHocBench:
    """A home in which clusters that no configuration names are remembered."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, ssh_config: str) -> None:
        (folder / "ssh_config").write_text(ssh_config)
        monkeypatch.setenv("TOWLINE_SSH_CONFIG", str(folder / "ssh_config"))
        monkeypatch.setenv("TOWLINE_HOME", str(folder))
        self.paths = home_paths()
        self.store = Store(str(folder / "store.db"))
        self.restart()

    def restart(self) -> None:
        raise NotImplementedError
