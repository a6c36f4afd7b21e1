"""What the next Engine must know is written beside the loop, which goes on meanwhile."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from engine.bench import EngineBench, play_on
from engine.test_ad_hoc import Joined
from engine.test_engine import a_spec
from towline.backends.base import Backend
from towline.backends.clusters import Clusters
from towline.backends.router import Backends
from towline.config.paths import home_paths
from towline.config.settings import Config, MachinesCluster
from towline.engine import engine as engine_module
from towline.engine import writing
from towline.engine.forwards import Forwards
from towline.errors import CannotWrite
from towline.model.job import Job, State
from towline.model.principal import Principal

ROOT = Principal("root", administrator=True)


class Far(Joined):
    def leave(self, cluster: str) -> None:
        self.clusters.pop(cluster)


class Bench(EngineBench):
    def equip(self) -> None:
        far: Any = Far()
        store, soon = self.engine.store, self.engine.soon
        self.clusters = Clusters(Backends(far, {}), store, home_paths(), soon=soon)
        self.forwards = Forwards(self.engine, cast("Backend", far))

    async def put_away(self) -> None:
        await self.forwards.close()

    def join(self, name: str) -> None:
        self.clusters.join(name, MachinesCluster([f"ben@{name}"]), Config())

    async def runs(self) -> int:
        [number] = await self.engine.submit([a_spec()])
        await self.engine.job_where(number, lambda job: job.state is State.RUNNING)
        return number

    @contextmanager
    def locked(self, wait_ms: int) -> Iterator[None]:
        """Another program has the store; ours waits so long for it."""
        self.engine.store._db.execute(f"PRAGMA busy_timeout={wait_ms}")
        other = sqlite3.connect(self.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            other.execute("ROLLBACK")
            other.close()


Play = Callable[[Callable[[Bench], Awaitable[None]]], None]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    monkeypatch.setenv("TOWLINE_HOME", str(tmp_path))
    for module in (engine_module, writing):
        monkeypatch.setattr(module, "AGAIN_S", 0.01)
    return lambda scenario: play_on(lambda: Bench(tmp_path), scenario, seconds=20)


@pytest.mark.parametrize("wait_ms", [5, 3000])
def test_while_another_program_has_the_store_the_loop_goes_on(play: Play, wait_ms: int) -> None:
    async def scenario(bench: Bench) -> None:
        bench.join("old")
        job = await bench.runs()
        local = await bench.forwards.add(ROOT, job, 8888)
        with bench.locked(wait_ms):
            bench.join("new")
            bench.clusters.leave("old")
            await bench.forwards.remove(ROOT, local)
            # It is so at once, though it is not written yet.
            assert set(bench.clusters.known()) == {"new"}
            assert set(bench.engine.store.clusters()) == {"old"}
            assert bench.engine.job(job).state is State.RUNNING
            await asyncio.sleep(0)
        # It is written before anything that comes later.
        await bench.engine.submit([a_spec()])
        assert set(bench.engine.store.clusters()) == {"new"}
        assert bench.engine.store.machine("ben@new") is not None
        assert bench.engine.store.forwards() == []

    play(scenario)


def test_what_could_not_be_written_at_once_is_written_without_being_asked_for_and_in_order(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(bench: Bench) -> None:
        with bench.locked(5):
            bench.join("lab")
            bench.clusters.leave("lab")
            bench.join("lab")
            bench.join("home")
            bench.clusters.leave("home")
            while "locked" not in caplog.text:
                await asyncio.sleep(0.01)
        while set(bench.engine.store.clusters()) != {"lab"} or bench.engine._writer._owed:
            await asyncio.sleep(0.01)

    play(scenario)


def test_an_engine_that_goes_writes_first_what_the_next_one_must_know(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        bench.join("lab")
        await bench.kill_and_restart()
        assert set(bench.clusters.known()) == {"lab"}

    play(scenario)


def test_what_can_never_be_written_is_told_and_keeps_nothing_else_from_it(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(bench: Bench) -> None:
        remember: Any = bench.engine.store.remember_cluster
        bench.engine.soon("the cluster odd", lambda: remember("odd", object()))
        bench.join("lab")
        await bench.runs()
        assert set(bench.engine.store.clusters()) == {"lab"}
        assert "the next Engine will not know the cluster odd" in caplog.text

    play(scenario)


def test_a_port_that_cannot_be_remembered_is_refused_and_not_left_open(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        job: Job = bench.engine.job(await bench.runs())
        with bench.locked(5), pytest.raises(CannotWrite, match="locked"):
            await bench.forwards.add(ROOT, job.id, 8888)
        assert bench.forwards.list(ROOT) == []

    play(scenario)
