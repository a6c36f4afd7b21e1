"""Each service has a port here: the same one for the job's life, over restarts of the Engine."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.bench import EngineBench, play_on
from towline.backends.base import Fleet
from towline.backends.fake import FakeBackend
from towline.backends.terms import Port, ServiceState
from towline.engine.services import Services
from towline.errors import NotFound, Unreachable
from towline.model.job import Ending, Job, JobSpec, State
from towline.model.machine import Slot
from towline.model.principal import Principal
from towline.model.service import Service

ANN = Principal("me")
SPEC = JobSpec(argv=("true",), cluster="lab", owner="me", services=(Service("web", "serve"),))


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("towline.engine.services._LATER_S", 0.05)


class Far:
    """The machine as services see it: how they stand there, and whether their ports answer."""

    def __init__(self) -> None:
        self.standing: ServiceState = {"state": "starting", "port": 0}
        self.printed = b""
        self.open = True
        self.away = False
        self.dialled: list[Port] = []
        self.drivers: dict[str, Any] = {}


class Backend(FakeBackend):
    far: Far

    async def services(self, job: Job) -> dict[str, ServiceState]:
        if self.far.away:
            raise Unreachable("gpu1: no answer")
        return {"web": self.far.standing}

    async def answers(self, job: Job, rank: int, port: Port) -> bool:
        if self.far.away:
            raise Unreachable("gpu1: no answer")
        self.far.dialled.append(port)
        return self.far.open

    def machine_of(self, slot: Slot) -> Any:
        return self.far.drivers.get(slot.machine)

    async def read_log(
        self, job: Any, rank: int, stream: str, offset: int, wait: bool
    ) -> tuple[bytes, bool]:
        assert stream == "services/web.log"
        return self.far.printed[offset:], True


class Bench(EngineBench):
    """An Engine with services."""

    def __init__(self, folder: Path, far: Far) -> None:
        self.far = far
        super().__init__(folder)

    def new_backend(self) -> Backend:
        backend = Backend(self.engine.report)
        backend.far = self.far
        return backend

    def equip(self) -> None:
        self.services = Services(self.engine, cast("Fleet", self.backend))

    async def recover(self) -> None:
        unfinished = self.engine.store.unfinished()
        await super().recover()
        self.services.resume(unfinished)

    async def put_away(self) -> None:
        await self.services.close()

    async def stands(self, job: int, state: str) -> dict[str, Any]:
        async with asyncio.timeout(20):
            while (seen := self.services.list(ANN, job)[0])["state"] != state:
                await asyncio.sleep(0.02)
        return seen


async def _started(bench: Bench) -> int:
    [job] = await bench.engine.submit([SPEC])
    await bench.engine.job_where(job, lambda job: job.state is State.RUNNING)
    return job


def run(tmp_path: Path, scenario: Callable[[Bench], Awaitable[None]]) -> None:
    play_on(lambda: Bench(tmp_path, Far()), scenario, seconds=100)


def test_a_service_is_up_once_its_port_answers(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        bench.far.open = False
        bench.far.standing = {"state": "running", "port": 8000}
        bench.far.printed = b"http://localhost:8000/lab?token=t\n"
        job = await _started(bench)
        await bench.stands(job, "starting")
        bench.far.open = True
        seen = await bench.stands(job, "up")
        assert seen["url"] == f"http://localhost:{seen['local']}/lab?token=t"
        assert bench.far.dialled[-1] == Port(service="web")

    run(tmp_path, scenario)


def test_why_a_service_was_started_again_is_told_until_it_answers(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        bench.far.open = False
        why = "it ended with exit code 1 and is started again: no licence"
        bench.far.standing = {"state": "running", "port": 8000, "text": why}
        job = await _started(bench)
        assert (await bench.stands(job, "starting"))["text"] == why
        bench.far.open = True
        assert (await bench.stands(job, "up"))["text"] == ""

    run(tmp_path, scenario)


def test_a_service_that_serves_elsewhere_is_asked_about_its_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("towline.engine.services._SILENT_S", 0.2)
    asked = "nothing answers on its port 8000 yet: does its command serve on $PORT?"

    async def scenario(bench: Bench) -> None:
        bench.far.open = False
        bench.far.standing = {"state": "running", "port": 8000}
        job = await _started(bench)
        assert (await bench.stands(job, "starting"))["text"] == ""
        frame, _ = await anext(bench.services.news(job))
        assert frame["note"] == f"web is not up yet: {asked}"
        assert bench.services.list(ANN, job)[0]["text"] == asked
        bench.far.open = True
        assert (await bench.stands(job, "up"))["text"] == ""

    run(tmp_path, scenario)


def test_what_followers_are_told(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        job = await _started(bench)
        news = bench.services.news(job)
        coming = asyncio.ensure_future(anext(news))
        bench.far.standing = {"state": "running", "port": 8000}
        frame, _ = await coming
        assert frame["note"] == f"web: {frame['service']['url']}"
        bench.far.standing = {"state": "failed", "port": 0, "text": "no luck"}
        frame, _ = await anext(news)
        assert frame["note"] == "web does not run: no luck"
        bench.backend.end(job, 1, 0, ending=Ending(code=0, started=1.0, ended=2.0))
        with pytest.raises(StopAsyncIteration):
            await anext(news)

    run(tmp_path, scenario)


def test_the_port_is_the_same_after_a_restart_and_free_after_the_end(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        bench.far.standing = {"state": "running", "port": 8000}
        job = await _started(bench)
        local = (await bench.stands(job, "up"))["local"]
        bench.far.away = True
        await bench.kill_and_restart()
        async with asyncio.timeout(20):
            while not bench.services.list(ANN, job)[0]["local"]:
                await asyncio.sleep(0.02)
        reader, writer = await asyncio.open_connection("127.0.0.1", local)
        assert await reader.read() == b""  # nothing to lead to now, but it is ours
        writer.close()
        bench.far.away = False
        assert (await bench.stands(job, "up"))["local"] == local
        bench.backend.end(job, 1, 0, ending=Ending(code=0, started=1.0, ended=2.0))
        async with asyncio.timeout(20):
            while bench.engine.store.services():
                await asyncio.sleep(0.02)
        with pytest.raises(NotFound, match="its services have ended") as told:
            bench.services.list(ANN, job)
        assert told.value.hint == f"what it printed: tow log --service web {job}"

    run(tmp_path, scenario)


def test_a_machine_that_is_away_is_said_to_be(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        bench.far.standing = {"state": "running", "port": 8000}
        job = await _started(bench)
        await bench.stands(job, "up")
        bench.far.drivers["gpu1"] = SimpleNamespace(error=Unreachable("gpu1: no answer"))
        assert bench.services.list(ANN, job)[0]["text"] == "gpu1: no answer"
        assert bench.services.list(ANN, job)[0]["state"] == "unreachable"

    run(tmp_path, scenario)


def test_a_job_without_services_has_none(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        [job] = await bench.engine.submit([JobSpec(argv=("true",), cluster="lab", owner="me")])
        assert bench.services.list(ANN) == []
        with pytest.raises(NotFound, match="has no services"):
            bench.services.list(ANN, job)

    run(tmp_path, scenario)


def test_what_nobody_expected_of_a_service_is_said_where_one_looks_and_passes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(bench: Bench) -> None:
        bench.far.standing = {"port": 8000}
        job = await _started(bench)
        seen = await bench.stands(job, "failed")
        assert seen["text"] == "the Engine failed over it: KeyError('state')"
        assert caplog.text.count("the services of job") == 1
        bench.far.standing = {"state": "running", "port": 8000}
        await bench.stands(job, "up")

    run(tmp_path, scenario)


def test_services_that_cannot_be_kept_end_with_their_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(services: Services, job: object) -> None:
        raise RuntimeError("no such thing")

    monkeypatch.setattr(Services, "_another_state", fail)

    async def scenario(bench: Bench) -> None:
        job = await _started(bench)
        assert "no such thing" in (await bench.stands(job, "failed"))["text"]
        bench.backend.end(job, 1, 0, Ending(code=0, ended=1.0))
        while bench.services.list(ANN):
            await asyncio.sleep(0.01)

    run(tmp_path, scenario)
