"""What jobs use on the nodes of a queue is asked for together, and nothing of it is lost or asked
for twice."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from towline.backends.machines.driver import Driver
from towline.backends.queue import readings as module
from towline.backends.queue.readings import Readings
from towline.backends.queue.state import Attempt, Place
from towline.backends.queue.table import Table
from towline.core.samples import Reading
from towline.errors import Unreachable


def line(minute: int) -> list[Any]:
    return [60.0 * minute, 60.0, 1.0, 1.0, 10.0, None, None, None]


class Cluster:
    """An access node whose agent has these lines, and an Engine that hears of them."""

    def __init__(self) -> None:
        self.lines: dict[str, list[Any]] = {}
        self.asked: list[dict[str, float]] = []
        self.heard: list[tuple[str, float]] = []
        self.cuts = 0
        self.link = self
        self.name = "cedar"
        self.wanted: dict[str, Any] = {}
        table = cast("Table", SimpleNamespace(wanted=self.wanted))
        self.readings = Readings(table, cast("Driver", self))
        self.readings.hear = self.hear

    def runs(self, key: str, count: int = 1) -> None:
        attempt = Attempt(key, 1, 1, count, "Slurm", Place.CLAIMED, started=frozenset(range(count)))
        self.wanted[key] = SimpleNamespace(key=key, attempt=attempt)

    async def ask(self, op: str, since: dict[str, float]) -> tuple[dict[str, Any], bytes]:
        assert op == "samples"
        if self.cuts:
            self.cuts -= 1
            raise Unreachable("cut")
        self.asked.append(since)
        known = {key: self.lines.get(key, []) for key in since}
        told = {key: [one for one in known[key] if one[0] > at] for key, at in since.items()}
        return {"samples": told}, b""

    def hear(self, found: Mapping[str, Sequence[Reading]]) -> None:
        self.heard += [(key, one.at) for key, some in found.items() for one in some]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(module, "_EVERY_S", 0.01)
    monkeypatch.setattr(module, "_SOON_S", 0.0)
    return Cluster()


def ask_until(cluster: Cluster, is_so: Callable[[], object]) -> None:
    """Go on until something is so."""

    async def play() -> None:
        task = asyncio.ensure_future(cluster.readings.for_ever())
        async with asyncio.timeout(60):
            while not is_so():
                await asyncio.sleep(0)
        task.cancel()

    asyncio.run(play())


def test_running_processes_are_asked_about_in_one_message_and_only_for_what_is_new(
    cluster: Cluster,
) -> None:
    cluster.runs("e-1-1", count=2)
    cluster.runs("e-2-1")
    cluster.lines = {"e-1-1-0": [line(1), line(2)], "e-1-1-1": [line(2)]}
    ask_until(cluster, lambda: len(cluster.asked) > 1)
    first, second, *_ = cluster.asked
    assert first == {"e-1-1-0": 0.0, "e-1-1-1": 0.0, "e-2-1-0": 0.0}
    assert second == {"e-1-1-0": 120.0, "e-1-1-1": 120.0, "e-2-1-0": 0.0}
    assert sorted(cluster.heard) == [("e-1-1-0", 60.0), ("e-1-1-0", 120.0), ("e-1-1-1", 120.0)]


def test_the_last_minute_comes_with_the_end_and_the_others_are_read_once_also_after_a_cut(
    cluster: Cluster,
) -> None:
    cluster.lines = {"e-1-1-0": [line(1)]}
    cluster.readings.take_end("e-1-1-0", {"used": line(2), "lines": True})
    assert cluster.heard == [("e-1-1-0", 120.0)]
    cluster.cuts = 2
    ask_until(cluster, lambda: cluster.asked and not cluster.readings._owed)
    assert cluster.heard[1:] == [("e-1-1-0", 60.0)]


@pytest.mark.parametrize("ending", [None, [], {}, {"used": "x"}, {"used": [1], "lines": 0}])
def test_an_end_without_such_a_line_owes_nothing(cluster: Cluster, ending: Any) -> None:
    cluster.readings.take_end("e-1-1-0", ending)
    assert (cluster.heard, cluster.readings._owed) == ([], set())
