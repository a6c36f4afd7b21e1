"""Results of one machine do not wait for those of another."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from engine.bench import play_on
from engine.one_file import Home, OneFile, OneFileThere
from towline.backends.terms import FoundFile
from towline.engine.results.places import ALTOGETHER, OF_ONE_MACHINE
from towline.model.job import Job


class Slowly(OneFileThere):
    """The files of a job on one of some machines."""

    def __init__(self, machines: "SomeAway", job: Job) -> None:
        self.machines = machines
        self.job = job

    async def gathered(self, of: str) -> AsyncIterator[list[FoundFile]]:
        machines = self.machines
        await machines.reach(self.job)
        machines.now += 1
        machines.most = max(machines.most, machines.now)
        try:
            if machine_of(self.job) == "silent":
                await asyncio.Event().wait()
            await asyncio.sleep(0.001)
            async for found in super().gathered(of):
                yield found
        finally:
            machines.now -= 1


class SomeAway(OneFile):
    """Machines of which one does not answer, and one stops to while results come from it."""

    def __init__(self) -> None:
        #: From how many jobs results are coming, and the most that were.
        self.now = self.most = 0

    async def reach(self, job: Job) -> None:
        if machine_of(job) == "away":
            await asyncio.Event().wait()

    def files(self, job: Job, rank: int) -> OneFileThere:
        return Slowly(self, job)


def machine_of(job: Job) -> str:
    assert job.attempt is not None
    return job.attempt.placement[0].machine


def test_results_of_machines_that_are_away_keep_no_others_from_coming_home(tmp_path: Path) -> None:
    async def scenario(home: Home) -> None:
        for _ in range(2 * ALTOGETHER):
            home.results.fetch_soon(await home.job("away"))
        job = await home.job("gpu1")
        home.results.fetch_soon(job)
        await home.results.settled(job.id)
        assert home.engine.job(job.id).results.here

    play_on(lambda: Home(tmp_path, SomeAway()), scenario, seconds=60)


def test_a_machine_that_is_silent_for_a_while_holds_only_places_of_its_own(tmp_path: Path) -> None:
    machines = SomeAway()

    async def scenario(home: Home) -> None:
        for _ in range(2 * ALTOGETHER):
            home.results.fetch_soon(await home.job("silent"))
        while machines.now < OF_ONE_MACHINE:
            await asyncio.sleep(0.001)
        job = await home.job("gpu1")
        home.results.fetch_soon(job)
        await home.results.settled(job.id)
        assert (machines.now, machines.most) == (OF_ONE_MACHINE, OF_ONE_MACHINE + 1)

    play_on(lambda: Home(tmp_path, machines), scenario, seconds=60)


def test_results_of_very_many_machines_come_some_at_a_time(tmp_path: Path) -> None:
    machines = SomeAway()

    async def scenario(home: Home) -> None:
        jobs = [await home.job(f"h{number}") for number in range(2 * ALTOGETHER)]
        for job in jobs:
            home.results.fetch_soon(job)
        for job in jobs:
            await home.results.settled(job.id)
        assert machines.most <= ALTOGETHER

    play_on(lambda: Home(tmp_path, machines), scenario, seconds=60)
