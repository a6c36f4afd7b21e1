"""Work that goes on beside never fails without a word and a consequence."""

import asyncio
import logging

import pytest

from towline.backends.tasks import Tasks
from towline.errors import AgentError, Unreachable


async def fail(error: Exception) -> None:
    raise error


def consequences(*errors: Exception) -> list[Exception]:
    heard: list[Exception] = []

    async def play() -> None:
        tasks = Tasks("machine gpu1")
        spawned = [tasks.spawn(fail(error), heard.append) for error in errors]
        await asyncio.gather(*spawned, return_exceptions=True)
        await asyncio.sleep(0)

    asyncio.run(play())
    return heard


def test_a_task_that_fails_is_logged_and_has_its_consequence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refused, broken = AgentError("gpu1: no"), KeyError("raw")
    assert consequences(refused, broken) == [refused, broken]
    assert [record.message for record in caplog.records] == [
        "machine gpu1: gpu1: no",
        "machine gpu1: 'raw'",
    ]
    # What nobody expected comes with the place where it happened.
    assert [bool(record.exc_info) for record in caplog.records] == [False, True]


def test_for_those_that_do_not_ask_again_a_broken_connection_is_a_failure() -> None:
    async def play() -> list[Exception]:
        heard: list[Exception] = []
        task = Tasks("services", asks_again=False).spawn(fail(Unreachable("x")), heard.append)
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(0)
        return heard

    assert [type(error) for error in asyncio.run(play())] == [Unreachable]


def test_a_broken_connection_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    assert consequences(Unreachable("gpu1: gone")) == []
    assert caplog.records == []


def test_a_consequence_that_fails_itself_is_logged_too(caplog: pytest.LogCaptureFixture) -> None:
    def worse(error: Exception) -> None:
        raise ValueError("worse")

    async def play() -> None:
        task = Tasks("x").spawn(fail(KeyError("bad")), worse)
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(0)

    with caplog.at_level(logging.ERROR):
        asyncio.run(play())
    assert "after that failure" in caplog.text
    assert "worse" in caplog.text


def test_closing_ends_what_goes_on() -> None:
    async def play() -> None:
        tasks = Tasks("x")
        task = tasks.spawn(asyncio.sleep(3600), lambda error: None)
        tasks.close()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()

    asyncio.run(play())
