"""Machines that are away or speak nonsense: housekeeping says so and goes on with the others."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from engine.bench import play_on
from engine.test_housekeeping import FakeMachine, House, Play
from towline.errors import Unreachable


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return lambda scenario: play_on(lambda: House(tmp_path), scenario, seconds=20)


def test_a_machine_that_does_not_answer_is_told_and_holds_up_nobody(play: Play) -> None:
    async def scenario(house: House) -> None:
        old = house.add_job(20)
        silent = FakeMachine("gpu2")
        silent.error = Unreachable("gpu2: does not answer", hint="is it on?")
        house.fleet.machines["gpu2"] = silent
        done = await house.housekeeping.clean(dry_run=False)
        first, second = done["machines"]
        assert (first["jobs"], first["error"]) == ([old], "")
        assert (second["error"], second["hint"]) == ("gpu2: does not answer", "is it on?")

    play(scenario)


def test_whatever_fails_over_one_machine_is_told_and_holds_up_no_other(play: Play) -> None:
    async def scenario(house: House) -> None:
        old = house.add_job(20)
        odd = FakeMachine("gpu0")
        odd._sweep = lambda **fields: {}  # type: ignore[method-assign]
        house.fleet.machines = {"gpu0": odd, **house.fleet.machines}
        first, second = (await house.housekeeping.clean(dry_run=False))["machines"]
        assert first["error"] == "gpu0: the Engine failed over it: KeyError('snapshots')"
        assert (second["jobs"], second["error"]) == ([old], "")

    play(scenario)


@pytest.mark.parametrize("listed", [[], [["{key}", 5, True]]])
def test_a_machine_that_always_has_more_to_list_is_told_and_holds_up_nobody(
    play: Play, listed: list[list[Any]]
) -> None:
    async def scenario(house: House) -> None:
        key = f"{house.store.engine_id}-1-1-0"
        folders = [[key, *entry[1:]] for entry in listed]
        old = house.add_job(20)
        odd = FakeMachine("gpu0")
        odd._sizes = lambda **fields: {"folders": folders, "more": True}  # type: ignore[method-assign]
        house.fleet.machines = {"gpu0": odd, **house.fleet.machines}
        first, second = (await house.housekeeping.clean(dry_run=False))["machines"]
        assert first["error"] == "gpu0: its agent lists the same job folders over and over"
        assert (second["jobs"], second["error"]) == ([old], "")

    play(scenario)


def test_of_a_machine_that_lists_without_end_so_many_are_seen(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("towline.engine.cleaning.housekeeping._MOST_FOLDERS", 100)

    async def scenario(house: House) -> None:
        numbers = itertools.count()

        def more(prefix: str, after: str) -> dict[str, Any]:
            return {"folders": [[f"{prefix}1-{next(numbers):09}", 5, True]], "more": True}

        house.machine._sizes = more  # type: ignore[method-assign]
        [seen] = (await house.housekeeping.clean(dry_run=True))["machines"]
        assert seen["error"] == "gpu1: only its first 101 job folders were seen"

    play(scenario)
