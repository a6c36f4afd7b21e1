"""Results are on disk before they are called home; one sync serves many jobs."""

import asyncio
import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine.bench import play_on
from engine.one_file import Home, OneFileThere
from towline.engine.results.results import ResultsHome
from towline.errors import CannotPlace
from towline.model.results import PENDING, at_home, not_fetched
from towline.snapshot.blobs import BlobStore
from towline.workspace import delivery as delivery_module
from towline.workspace import settling
from towline.workspace.base import Item, Whole
from towline.workspace.brought import decoded
from towline.workspace.delivery import FolderDelivery
from towline.workspace.placing import Placer
from towline.workspace.settling import Settling


def test_a_result_is_called_home_only_once_it_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, may_end = threading.Event(), threading.Event()
    synced: list[str] = []

    def slow(paths: list[str]) -> None:
        began.set()
        assert may_end.wait(30)
        synced.extend(paths)

    monkeypatch.setattr(settling, "sync_files", slow)

    async def scenario(home: Home) -> None:
        job = await home.job()
        home.results.fetch_soon(job)
        while not began.is_set():
            await asyncio.sleep(0.01)
        assert (tmp_path / "job_results/1/made").read_text() == "new"
        assert home.engine.job(1).results == PENDING
        may_end.set()
        await home.results.settled(1)
        assert home.engine.job(1).results == at_home(str(tmp_path / "job_results/1"))
        assert str(tmp_path / "job_results/1/made") in synced

    play_on(lambda: Home(tmp_path), scenario, seconds=30)


def test_a_result_that_cannot_be_synced_is_not_called_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(paths: list[str]) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(settling, "sync_files", fail)

    async def scenario(home: Home) -> None:
        home.results.fetch_soon(await home.job())
        await home.results.settled(1)
        assert home.engine.job(1).results.why.startswith("cannot write to ")

    play_on(lambda: Home(tmp_path), scenario, seconds=30)


def test_all_that_come_while_one_is_synced_are_synced_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rounds: list[list[str]] = []
    may_end = threading.Event()

    def slow(paths: list[str]) -> None:
        assert may_end.wait(30)
        rounds.append(paths)

    monkeypatch.setattr(settling, "sync_files", slow)

    async def scenario() -> None:
        with ThreadPoolExecutor(1) as writers:
            together = Settling(writers)
            first = asyncio.create_task(together.on_disk(["first"]))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            rest = [asyncio.create_task(together.on_disk([str(n)])) for n in range(50)]
            await asyncio.sleep(0)
            may_end.set()
            await asyncio.gather(first, *rest)
            await together.on_disk([])
        assert rounds == [["first"], [str(n) for n in range(50)]]

    asyncio.run(scenario())


@pytest.mark.parametrize("where", ["towline.workspace.settling.sync_files", "read_all"])
def test_results_that_fail_in_a_way_nobody_expected_say_so_and_nobody_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def fail(*args: object) -> None:
        raise RuntimeError("f\udcff")

    # What is logged of it cannot be told to whoever runs the tests side by side.
    monkeypatch.setattr(logging.getLogger("towline"), "propagate", False)
    if where == "read_all":
        monkeypatch.setattr(OneFileThere, where, fail)
    else:
        monkeypatch.setattr(where, fail)

    async def scenario(home: Home) -> None:
        home.results.fetch_soon(await home.job())
        results = (await home.engine.job_where(1, lambda job: job.results != PENDING)).results
        assert results.why.startswith("the Engine failed over them: RuntimeError")
        assert not len(home.results)

    play_on(lambda: Home(tmp_path), scenario, seconds=30)


def test_even_when_that_cannot_be_told_nobody_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise RuntimeError("bad")

    monkeypatch.setattr(OneFileThere, "read_all", fail)
    monkeypatch.setattr(ResultsHome, "_why_not", fail)

    async def scenario(home: Home) -> None:
        home.results.fetch_soon(await home.job())
        results = (await home.engine.job_where(1, lambda job: job.results != PENDING)).results
        assert results == not_fetched("the Engine failed: tow engine log")

    play_on(lambda: Home(tmp_path), scenario, seconds=30)


async def deliver(top: Path, count: int) -> None:
    """Put many files into a new folder, some at a time, and see them home."""
    writers = ThreadPoolExecutor(4)
    settled = Settling(writers)
    placer = Placer(str(top / "job_results/1"), decoded(None), 1, 0o022)
    delivery = FolderDelivery(placer, BlobStore(str(top / "blobs")), writers, settled, [])
    try:
        for start in range(0, count, 250):
            items = [Item("", f"made/{n}") for n in range(start, start + 250)]
            await delivery.put([Whole(item, b"x") for item in items])
        placed = await delivery.finish(True)
        assert placed.files == len(list((top / "job_results/1/made").iterdir())) == count
    finally:
        delivery.close()
        settled.close()
        writers.shutdown()


def test_the_disk_begins_with_many_results_while_more_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs: list[int] = []

    def note(paths: list[str]) -> None:
        syncs.append(sum(len(names) for _, _, names in os.walk(tmp_path / "job_results")))

    monkeypatch.setattr(delivery_module, "sync_file_systems", note)
    asyncio.run(deliver(tmp_path, 3000))
    # The file that keeps them out of git is one more.
    assert 1000 < syncs[0] < 3001


def test_a_few_results_are_synced_at_the_end_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs: list[list[str]] = []
    monkeypatch.setattr(delivery_module, "sync_file_systems", syncs.append)
    asyncio.run(deliver(tmp_path, 750))
    assert syncs == []


def test_a_disk_that_failed_while_more_came_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(paths: list[str]) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(delivery_module, "sync_file_systems", fail)
    with pytest.raises(CannotPlace, match="Input/output error"):
        asyncio.run(deliver(tmp_path, 3000))
