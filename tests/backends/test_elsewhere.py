"""A name that leads to another machine: what that one says of jobs it never had does not count."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from backends.hostile import HostileHost
from towline.backends.machines.driver import Driver
from towline.backends.machines.wanted import WantedProcess
from towline.model.events import ProcessEnded, ProcessStarted
from towline.model.identity import Identity
from towline.snapshot.blobs import BlobStore

KEY = "e-12-1-0"
ENDED = {"state": "ended", "ending": {"code": 3, "started": 1.0, "ended": 2.0}}
LOST = {"state": "ended", "ending": {"cause": "lost", "text": "the machine restarted"}}
SAID = "gpu1 leads to another machine now (n2); job 12 runs on n1"


class Line:
    """An open channel to a machine that says it is `host`; remembers what was asked there."""

    closed = False

    def __init__(self, host: str, known: dict[str, Any]) -> None:
        identity = {"host": host, "machine": f"id of {host}", "boot": "b", "pidns": 1}
        self.hello = {"time": 0.0, "identity": identity}
        self.known = known
        self.asked: list[str] = []

    async def ask(self, op: str, **fields: Any) -> tuple[dict[str, Any], bytes]:
        self.asked.append(op)
        if op == "probe":
            return {"raw": {}}, b""
        return {"states": dict.fromkeys(fields.get("keys", ()), self.known)}, b""

    def ask_soon(self, op: str, **fields: Any) -> "asyncio.Task[tuple[dict[str, Any], bytes]]":
        return asyncio.create_task(self.ask(op, **fields))

    def close(self) -> None: ...


class Scene:
    """A driver of a machine on which job 12 was started while its name led to n1."""

    def __init__(self, folder: Path, sent: bool = True) -> None:
        self.facts: list[Any] = []
        self.driver = Driver(
            HostileHost("gpu1"),
            "/nowhere",
            BlobStore(str(folder)),
            self.facts.append,
            on_hold=lambda wanted: None,
            on_probe=lambda driver, raw: None,
            probe_every_s=5.0,
            lost_after_s=86400.0,
        )
        identity = Identity("n1", "id of n1", "b", 1)
        self.wanted = WantedProcess(
            KEY, 12, 1, 0, order=None, sent=sent, started=sent, identity=identity
        )
        self.driver.wanted[KEY] = self.wanted

    async def reaches(self, host: str, known: dict[str, Any]) -> Line:
        line = Line(host, known)
        self.driver.channel.link = line  # type: ignore[assignment]
        self.driver._begin(line)  # type: ignore[arg-type]
        await self.driver._greet(line)  # type: ignore[arg-type]
        await self.settle()
        return line

    async def settle(self) -> None:
        """Let go on what was begun beside."""
        for _ in range(5):
            await asyncio.sleep(0)

    def endings(self) -> list[Any]:
        return [fact.ending for fact in self.facts if isinstance(fact, ProcessEnded)]


def play(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


@pytest.mark.parametrize(
    "known", [{"state": "unknown"}, LOST, {"state": "elsewhere", "host": "n1"}]
)
def test_another_machine_neither_loses_nor_settles_a_job(
    tmp_path: Path, known: dict[str, Any]
) -> None:
    async def scenario() -> None:
        scene = Scene(tmp_path)
        await scene.reaches("n2", known)
        assert not scene.endings() and scene.driver.elsewhere(12) == SAID
        assert scene.driver.elsewhere(13) == ""

    play(scenario)


def test_a_stop_is_left_with_another_machine_that_has_the_same_home(tmp_path: Path) -> None:
    async def scenario() -> None:
        scene = Scene(tmp_path)
        line = await scene.reaches("n2", {"state": "elsewhere", "host": "n1"})
        scene.driver.stop(KEY)
        await scene.settle()
        assert line.asked[-1] == "stop" and "void" not in line.asked
        assert not scene.endings() and scene.driver.elsewhere(12) == SAID

    play(scenario)


def test_a_stop_is_not_asked_of_another_machine(tmp_path: Path) -> None:
    async def scenario() -> None:
        scene = Scene(tmp_path)
        line = await scene.reaches("n2", {"state": "unknown"})
        scene.driver.stop(KEY)
        await scene.settle()
        assert "stop" not in line.asked and not scene.endings()
        # The right one is told as soon as it answers.
        line = await scene.reaches("n1", {"state": "running", "started": 1.0})
        assert line.asked[-1] == "stop" and scene.driver.elsewhere(12) == ""

    play(scenario)


def test_the_record_of_an_end_in_a_shared_home_is_as_good_there(tmp_path: Path) -> None:
    async def scenario() -> None:
        scene = Scene(tmp_path)
        await scene.reaches("n2", ENDED)
        assert [ending.code for ending in scene.endings()] == [3]

    play(scenario)


def test_a_job_goes_on_when_the_name_leads_back_to_its_machine(tmp_path: Path) -> None:
    async def scenario() -> None:
        scene = Scene(tmp_path)
        scene.wanted.started = False
        await scene.reaches("n2", {"state": "unknown"})
        await scene.reaches("n1", {"state": "running", "started": 1.0})
        assert [type(fact) for fact in scene.facts] == [ProcessStarted]
        assert scene.driver.elsewhere(12) == ""

    play(scenario)


def test_what_was_not_sent_yet_gets_a_new_place(tmp_path: Path) -> None:
    async def scenario() -> None:
        scene = Scene(tmp_path, sent=False)
        await scene.reaches("n2", {"state": "unknown"})
        (ending,) = scene.endings()
        assert (ending.cause, ending.text) == ("void", "gpu1 leads to another machine now")

    play(scenario)


def test_a_machine_that_says_nothing_of_itself_is_believed_as_ever(tmp_path: Path) -> None:
    async def scenario() -> None:
        scene = Scene(tmp_path)
        line = Line("n2", {"state": "unknown"})
        line.hello = {"time": 0.0}
        scene.driver.channel.link = line  # type: ignore[assignment]
        scene.driver._begin(line)  # type: ignore[arg-type]
        await scene.driver._greet(line)  # type: ignore[arg-type]
        assert [ending.cause for ending in scene.endings()] == ["lost"]

    play(scenario)
