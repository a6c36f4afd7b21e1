"""A stop is asked for until it was seen to take effect."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from towline.backends.machines import driver as driving
from towline.backends.machines.backend import Machines
from towline.backends.machines.driver import Driver
from towline.backends.machines.wanted import WantedProcess
from towline.backends.membership import Membership
from towline.errors import AgentError, HostError
from towline.hosts.base import Host
from towline.model.events import Fact, ProcessEnded
from towline.model.grammar import parse_request
from towline.model.job import Attempt, Job, JobSpec, State
from towline.model.machine import Slot
from towline.probes.machine import ConfiguredLimits
from towline.snapshot.blobs import BlobStore


class Nowhere:
    """A machine that is never dialled in these tests."""

    name = "gpu1"

    async def prepare(self) -> None: ...

    def channel(self, boot: str, *arguments: str) -> list[str]:
        return ["false"]

    def failure(self, returncode: int | None, stderr: str) -> HostError:
        return HostError("gone")

    def login(self) -> list[str] | None:
        return None


class FakeLink:
    """Remembers what was asked; `refuses` makes the agent say no."""

    closed = False

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.refuses = False

    async def ask(self, op: str, **fields: Any) -> tuple[dict[str, Any], bytes]:
        self.asked.append((op, fields.get("grace_s")))
        if self.refuses:
            raise AgentError("no_space", "no space left")
        return {"states": {key: {"state": "running"} for key in fields["keys"]}}, b""


def play(scenario: Callable[[Driver, FakeLink], Coroutine[Any, Any, None]], folder: Path) -> None:
    async def run() -> None:
        host: Host = Nowhere()
        driver = Driver(
            host,
            "",
            BlobStore(folder),
            lambda fact: None,
            lambda wanted: None,
            lambda driver, raw: None,
            5.0,
            60.0,
        )
        link = FakeLink()
        driver.channel.link = link  # type: ignore[assignment]
        driver.wanted["k"] = WantedProcess("k", 1, 1, 0, None, sent=True, started=True)
        await asyncio.wait_for(scenario(driver, link), 20)

    asyncio.run(run())


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_second_stop_is_asked_of_the_machine_and_may_kill_at_once(tmp_path: Path) -> None:
    async def scenario(driver: Driver, link: FakeLink) -> None:
        driver.stop("k")
        await settled()
        driver.stop("k", now=True)
        await settled()
        assert [asked for asked in link.asked if asked[0] == "stop"] == [
            ("stop", None),
            ("stop", 0.0),
        ]

    play(scenario, tmp_path)


def test_a_stop_that_the_agent_could_not_carry_out_is_asked_for_again(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(driving, "_STOP_AGAIN_S", 0.0)

    async def scenario(driver: Driver, link: FakeLink) -> None:
        link.refuses = True
        driver.stop("k")
        await settled()
        assert [op for op, _ in link.asked] == ["void"]
        link.refuses = False
        driver._event({"event": "probe", "raw": {}}, b"")
        await settled()
        assert [op for op, _ in link.asked] == ["void", "void", "stop"]

    play(scenario, tmp_path)


def test_a_job_of_several_that_is_stopped_while_its_machines_are_reached_never_starts(
    tmp_path: Path,
) -> None:
    reported: list[Fact] = []

    async def run() -> None:
        machines = Machines("e", reported.append, BlobStore(tmp_path), lambda _: None, 5.0)
        reached = asyncio.Event()
        for name in ("gpu1", "gpu2"):
            host = Nowhere()
            host.name = name
            machines.members[name] = Membership(host, "", ConfiguredLimits(), 60.0)
            driver = Driver(
                host, "", machines.blobs, reported.append, machines._held, lambda *_: None, 5.0, 60
            )
            machines.drivers[name] = driver

            async def reach(timeout_s: float = 40.0, patient: bool = True) -> Any:
                await reached.wait()
                return Port()

            driver.reach = reach  # type: ignore[method-assign]
        attempt = Attempt(number=1, placement=(Slot("gpu1"), Slot("gpu2")))
        spec = JobSpec(argv=("true",), cluster="lab", owner="me", request="2:[]")
        job = Job(id=7, spec=spec, state=State.STARTING, submitted=0.0, attempt=attempt)
        machines.start(job, parse_request("2:[]"))
        await settled()
        machines.stop(job)
        reached.set()
        await settled()
        assert not any(driver.wanted for driver in machines.drivers.values())

    asyncio.run(run())
    endings = [fact for fact in reported if isinstance(fact, ProcessEnded)]
    assert [(end.rank, end.ending.cause) for end in endings] == [(0, "void"), (1, "void")]


class Port:
    async def ask(self, op: str) -> tuple[dict[str, Any], bytes]:
        return {"port": 1}, b""
