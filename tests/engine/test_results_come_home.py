"""What keeps results from coming home for a moment does not keep them away for good."""

import asyncio
import errno
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from engine.bench import play_on
from engine.one_file import Home, OneFileThere
from towline.backends.terms import FoundFile
from towline.engine.results import results
from towline.errors import AgentError
from towline.model.job import Ending
from towline.model.results import at_home, not_fetched
from towline.workspace.placing import Placer


def busy() -> AgentError:
    error = AgentError("gpu1: too many open files")
    error.code = "failed"
    return error


def gone() -> OSError:
    return FileNotFoundError(errno.ENOENT, "somebody removed the folder")


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "_SOON_S", 0.0)


def failing(monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> None:
    """The first tries to read the file fail, or to write it."""
    left = list(errors)

    real_place = Placer.place_whole

    def place_whole(self: Placer, *args: Any) -> str:
        if left and isinstance(left[0], OSError):
            raise left.pop(0)
        return real_place(self, *args)

    monkeypatch.setattr(Placer, "place_whole", place_whole)
    real = OneFileThere.gathered

    async def gathered(self: OneFileThere, of: str) -> AsyncIterator[list[FoundFile]]:
        if left and not isinstance(left[0], OSError):
            raise left.pop(0)
        async for found in real(self, of):
            yield found

    monkeypatch.setattr(OneFileThere, "gathered", gathered)


@pytest.mark.parametrize("error", [busy, gone])
def test_what_fails_for_a_moment_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    failing(monkeypatch, error(), error())

    async def scenario(home: Home) -> None:
        home.results.fetch_soon(await home.job())
        await home.results.settled(1)
        assert home.engine.job(1).results == at_home(str(tmp_path / "job_results/1"))
        assert (tmp_path / "job_results/1/made").read_text() == "new"

    play_on(lambda: Home(tmp_path), scenario, seconds=30)


def test_what_fails_all_the_time_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, *(busy() for _ in range(50)))

    async def scenario(home: Home) -> None:
        home.results.fetch_soon(await home.job())
        await home.results.settled(1)
        assert home.engine.job(1).results == not_fetched("gpu1: too many open files")

    play_on(lambda: Home(tmp_path), scenario, seconds=30)


def test_why_results_are_not_fetched_names_the_job_as_people_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = AgentError("gpu1: no job 5f21aa90-1-1-9d3c41ee-0 on this machine")
    unknown.code = "unknown_job"
    failing(monkeypatch, unknown)

    async def scenario(home: Home) -> None:
        home.results.fetch_soon(await home.job())
        await home.results.settled(1)
        told = home.engine.job(1).results
        assert told == not_fetched("the folder of job 1 is not on its machine")

    play_on(lambda: Home(tmp_path), scenario, seconds=30)


def test_results_of_an_attempt_are_not_forgotten_over_those_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, AgentError("gpu1: no job 1 on this machine"))

    async def scenario(home: Home) -> None:
        began, may_fail = asyncio.Event(), asyncio.Event()
        real = home.engine.note_results

        async def note(*about: object) -> None:
            began.set()
            await may_fail.wait()
            await real(*about)  # type: ignore[arg-type]

        monkeypatch.setattr(home.engine, "note_results", note)
        home.results.fetch_soon(await home.job())
        # It has failed, and before that is written down the job is over again.
        await began.wait()
        home.engine.store.commit({1: home.ended(1, attempt=2)}, (), (), 2.0)
        home.results.fetch_soon(home.engine.job(1))
        may_fail.set()
        await home.results.settled(1)
        assert home.engine.job(1).results == at_home(str(tmp_path / "job_results/1"))
        assert (tmp_path / "job_results/1/made").read_text() == "new"

    play_on(lambda: Home(tmp_path), scenario, seconds=30)


@pytest.mark.parametrize(("made", "asked"), [(1, []), (-1, ["out", "err"])])
def test_output_that_is_known_to_be_empty_is_not_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: int, asked: list[str]
) -> None:
    """Only where nobody counted, as an older agent does not."""
    read: list[str] = []

    async def output(self: OneFileThere, stream: str) -> AsyncIterator[bytes]:
        read.append(stream)
        for nothing in ():
            yield nothing

    monkeypatch.setattr(OneFileThere, "output", output)

    async def scenario(home: Home) -> None:
        job = await home.job()
        assert job.attempt is not None
        endings = {0: Ending(code=0, started=1.0, made=made)}
        await home.results.fetch(replace(job, attempt=replace(job.attempt, endings=endings)))
        assert (tmp_path / "job_results/1/made").read_text() == "new"
        assert sorted(read) == sorted(asked)  # both are read at the same time

    play_on(lambda: Home(tmp_path), scenario, seconds=30)
