"""Output that somebody followed does not travel again when it comes home."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from engine.bench import play_on
from engine.one_file import receiver_in
from towline.backends.base import Fleet
from towline.engine.engine import Engine
from towline.engine.results.followed import OVERLAP, WORTH_KEEPING
from towline.engine.results.results import ResultsHome
from towline.model.job import Attempt, Ending, Job, JobSpec, State
from towline.model.machine import Slot
from towline.model.results import PENDING
from towline.store.store import Store
from towline.workspace.parts import PartialFile

PIECE = 100_000


class Printed:
    """A machine on which a job printed a text, and how much of it travelled."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.travelled = 0

    @property
    def present(self) -> "Printed":
        return self

    async def reach(self, job: Job) -> None:
        """It answers."""

    def files(self, job: Job, rank: int) -> "Printed":
        return self

    async def gathered(self, of: str) -> AsyncIterator[list[Any]]:
        yield []

    async def read_all(self, wanted: list[Any]) -> AsyncIterator[Any]:
        for nothing in ():
            yield nothing

    async def output(self, stream: str, offset: int = 0) -> AsyncIterator[bytes]:
        text = self.text if stream == "out" else b""
        for at in range(offset, len(text), PIECE):
            self.travelled += len(text[at : at + PIECE])
            yield text[at : at + PIECE]


class Home:
    def __init__(self, folder: Path, text: bytes) -> None:
        self.folder = folder
        self.machine = Printed(text)
        self.engine = Engine(Store(str(folder / "store.db")))
        fleet = cast("Fleet", self.machine)
        self.results = ResultsHome(self.engine, fleet, receiver_in(folder), str(folder))
        [number] = self.engine.store.new_ids(1)
        spec = JobSpec(argv=("true",), cluster="lab", owner="me", folder=str(folder))
        ending = Ending(code=0, started=1.0, made=0, out_size=len(text))
        attempt = Attempt(1, (Slot("gpu1", ()),), endings={0: ending})
        self.job = Job(number, spec, State.DONE, ended=1.0, results=PENDING, attempt=attempt)
        self.engine.store.commit({number: self.job}, {number}, (), 1.0)

    async def follow(self, text: bytes, start: int = 0) -> None:
        for at in range(start, len(text), PIECE):
            await self.results.followed.add(self.job, 0, "out", at, text[at : at + PIECE])

    async def fetch(self) -> bytes:
        self.results.fetch_soon(self.job)
        await self.results.settled(1)
        return (self.folder / "job_results/1.out").read_bytes()

    async def close(self) -> None:
        self.results.close()
        self.engine.close()


TEXT = Random(1).randbytes(3_000_000)
Play = Callable[[Callable[[Home], Awaitable[None]]], None]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return lambda scenario: play_on(lambda: Home(tmp_path, TEXT), scenario, seconds=30)


def test_of_output_that_was_followed_to_its_end_only_a_little_travels_again(play: Play) -> None:
    async def scenario(home: Home) -> None:
        # Two who follow at the same time bring each piece once.
        await asyncio.gather(home.follow(TEXT), home.follow(TEXT))
        assert await home.fetch() == TEXT
        assert home.machine.travelled == OVERLAP

    play(scenario)


def test_what_was_not_followed_is_fetched(play: Play) -> None:
    async def scenario(home: Home) -> None:
        await home.follow(TEXT[:2_000_000])
        assert await home.fetch() == TEXT
        assert home.machine.travelled == 1_000_000 + OVERLAP

    play(scenario)


def test_who_followed_only_the_end_or_little_helps_nobody(play: Play) -> None:
    async def scenario(home: Home) -> None:
        await home.follow(TEXT, start=1_000_000)
        await home.follow(TEXT[: WORTH_KEEPING // 2])
        assert await home.fetch() == TEXT
        assert home.machine.travelled == len(TEXT)

    play(scenario)


def test_what_a_follower_is_about_to_add_when_it_is_fetched_comes_home_once(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(home: Home) -> None:
        await home.follow(TEXT[:2_000_000])
        [copy] = home.results.followed._copies.values()
        compared = copy.end

        def end() -> bytes:
            last = compared()
            # As a thread does that was asked to before the copy was taken.
            copy.add(2_000_000, TEXT[2_000_000:])
            return last

        monkeypatch.setattr(copy, "end", end)
        assert await home.fetch() == TEXT

    play(scenario)


def test_a_copy_that_is_not_what_is_over_there_does_not_count(play: Play) -> None:
    async def scenario(home: Home) -> None:
        await home.follow(TEXT[:1_000_000] + b"something else" * 100_000)
        assert await home.fetch() == TEXT

    play(scenario)


def test_an_engine_that_starts_tidies_before_it_fetches_and_not_while_it_does(play: Play) -> None:
    async def scenario(home: Home) -> None:
        folder = home.folder / "job_results/1"
        folder.mkdir(parents=True)
        left_over = PartialFile(str(folder))
        home.results.tidy()
        assert not Path(left_over.path).exists()
        # As of a job that ends before all is taken up: its results are being written already.
        under_way = PartialFile(str(folder))
        home.results.resume()
        assert Path(under_way.path).exists()
        await home.results.settled(1)
        for part in (left_over, under_way):
            part.discard()

    play(scenario)


def test_once_the_results_are_home_nothing_is_kept(play: Play) -> None:
    async def scenario(home: Home) -> None:
        await home.follow(TEXT)
        await home.fetch()
        await home.follow(TEXT)
        assert home.results.followed._copies == {}

    play(scenario)
