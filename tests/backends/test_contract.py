"""The same promises, kept in every world: in memory, here, by ssh, and in queues."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pytest

from backends.contract import PROMISES, Promise, World
from backends.hostile import watch_processes
from backends.made_up_slurm import install, stop_jobs
from backends.worlds import FakeWorld, LocalWorld, QueueWorld, SshWorld, with_commands
from testbed.gridengine import GridEngine
from testbed.hosts import Hosts
from testbed.slurm import Slurm

LONGEST_S = 200


class Closable(World, Protocol):
    async def close(self) -> None: ...


Play = Callable[[Callable[[], Closable], Promise], None]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    processes = watch_processes(monkeypatch)

    def play(make: Callable[[], Closable], promise: Promise) -> None:
        async def whole() -> None:
            world = make()
            try:
                async with asyncio.timeout(LONGEST_S):
                    await promise(world)
            finally:
                await world.close()
                while any(process.get_returncode() is None for process in processes):
                    await asyncio.sleep(0.01)

        asyncio.run(whole())

    return play


every_promise = pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)


@every_promise
def test_in_memory(play: Play, promise: Promise) -> None:
    play(FakeWorld, promise)


@pytest.mark.slow
@every_promise
def test_on_this_machine(play: Play, promise: Promise, tow_home: Path) -> None:
    play(lambda: LocalWorld(tow_home, str(tow_home / "machine")), promise)


@pytest.fixture
def over_ssh(hosts: Hosts, tow_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOWLINE_SSH_CONFIG", str(hosts.ssh_config))
    return tow_home


@pytest.mark.real
@every_promise
def test_on_machines_reached_by_ssh(play: Play, promise: Promise, over_ssh: Path) -> None:
    play(lambda: SshWorld(over_ssh, ["h1", "h2"]), promise)


@contextmanager
def made_up(folder: Path) -> Iterator[None]:
    try:
        yield
    finally:
        stop_jobs(folder)


@pytest.mark.slow
@every_promise
def test_on_a_made_up_slurm(
    play: Play, promise: Promise, tow_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", with_commands(install(tmp_path)))
    with made_up(tmp_path):
        play(lambda: QueueWorld(tow_home, "slurm", "this", str(tow_home / "machine")), promise)


@pytest.fixture
def over_slurm(slurm: Slurm, tow_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOWLINE_SSH_CONFIG", str(slurm.ssh_config))
    return tow_home


@pytest.mark.real
@every_promise
def test_on_a_real_slurm(play: Play, promise: Promise, over_slurm: Path) -> None:
    play(lambda: QueueWorld(over_slurm, "slurm", "cedar", "~/.towline"), promise)


@pytest.fixture
def over_gridengine(
    gridengine: GridEngine, tow_home: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    monkeypatch.setenv("TOWLINE_SSH_CONFIG", str(gridengine.ssh_config))
    return tow_home


@pytest.mark.real
@every_promise
def test_on_a_real_grid_engine(play: Play, promise: Promise, over_gridengine: Path) -> None:
    play(lambda: QueueWorld(over_gridengine, "gridengine", "msc", "~/.towline"), promise)
