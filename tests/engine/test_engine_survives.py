"""One bad fact, one bad row or a full disk: the loop goes on, and nothing accepted is lost."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from engine.bench import MACHINE, EngineBench, play_on
from engine.test_engine import a_spec
from towline.engine import engine as engine_module
from towline.engine import writing
from towline.errors import CannotWrite, Damaged, NotFound
from towline.model.events import MachineSeen, ProcessEnded, ProcessStarted
from towline.model.job import Ending, Job, State
from towline.store.store import Store


class Bench(EngineBench):
    async def reaches(self, job_id: int, *states: State) -> Job:
        return await self.engine.job_where(job_id, lambda job: job.state in states)

    async def runs(self) -> int:
        [number] = await self.engine.submit([a_spec()])
        await self.reaches(number, State.RUNNING)
        return number


Scenario = Callable[[Bench], Awaitable[None]]
Play = Callable[[Scenario], None]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    for module in (engine_module, writing):
        monkeypatch.setattr(module, "AGAIN_S", 0.01)
    return lambda scenario: play_on(lambda: Bench(tmp_path), scenario, seconds=20)


#: Endings that do not get through the door for what machines say.
BAD: list[Any] = [
    Ending(code=10**23, ended=1.0),
    Ending(cause="lost", text="f\udcff", ended=1.0),
    Ending(cause=["lost"], ended=1.0),  # type: ignore[arg-type]
    None,
]


@pytest.mark.parametrize("ending", BAD)
def test_an_ending_that_cannot_be_handled_or_written_ends_its_own_job_alone(
    play: Play, ending: Any
) -> None:
    async def scenario(bench: Bench) -> None:
        bad, good = await bench.runs(), await bench.runs()
        bench.engine.report(ProcessEnded(bad, 1, 0, ending))
        bench.engine.report(ProcessEnded(good, 1, 0, Ending(code=3, ended=1.0)))
        assert (await bench.reaches(good, State.FAILED)).exit_code == 3
        lost = await bench.reaches(bad, State.LOST)
        assert lost.reason
        assert bench.engine.store.job(bad) == lost
        # What it had is free again, and the next ones run.
        await bench.runs()
        await bench.kill_and_restart()
        assert bench.engine.job(bad).state is State.LOST

    play(scenario)


def test_facts_that_make_no_sense_are_dropped(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        number = await bench.runs()
        bench.engine.report(MachineSeen(None))  # type: ignore[arg-type]
        bench.engine.report(ProcessStarted(number, 1, [], "x"))  # type: ignore[arg-type]
        bench.engine.report(ProcessEnded("x", [], {}, 5))  # type: ignore[arg-type]
        bench.engine.report(object())  # type: ignore[arg-type]
        await bench.runs()

    play(scenario)


def test_a_backend_that_fails_over_one_job_loses_that_job_alone(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        start = bench.backend.start

        def failing(job: Job, request: Any) -> None:
            if job.id == 1:
                raise KeyError("gpu7")
            start(job, request)

        bench.backend.start = failing  # type: ignore[method-assign]
        ids = await bench.engine.submit([a_spec(), a_spec()])
        assert "gpu7" in (await bench.reaches(ids[0], State.LOST)).reason.text
        await bench.reaches(ids[1], State.RUNNING)

    play(scenario)


class Full:
    """A store whose disk is full, as long as a test wants it to be."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_full = True
        self.tries = 0
        commit = store.commit

        def committing(*args: Any, **fields: Any) -> None:
            self.tries += 1
            if self.is_full:
                raise sqlite3.OperationalError("database or disk is full")
            commit(*args, **fields)

        monkeypatch.setattr(store, "commit", committing)


def test_with_a_full_disk_new_jobs_are_refused_in_words_and_all_else_waits_for_room(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(bench: Bench) -> None:
        number = await bench.runs()
        disk = Full(bench.engine.store, monkeypatch)
        with pytest.raises(CannotWrite, match="disk is full") as refused:
            await bench.engine.submit([a_spec(), a_spec()])
        assert refused.value.status == 503
        assert sorted(bench.engine.core.jobs) == [number]
        bench.backend.end(number, 1, 0, Ending(code=5, ended=1.0))
        orders = list(bench.backend.orders)
        tries = disk.tries
        while disk.tries < tries + 3:
            await asyncio.sleep(0.01)
        # Nothing is done that is not written down, and nobody waits for the disk.
        assert bench.backend.orders == orders
        assert not bench.engine.store.job(number).state.final  # type: ignore[union-attr]
        with pytest.raises(CannotWrite):
            await bench.engine.submit([a_spec()])
        with pytest.raises(CannotWrite):
            await bench.engine.stop([number])
        for _ in range(1000):
            bench.engine.report(MachineSeen(MACHINE))
        assert len(bench.engine._facts) < 10
        disk.is_full = False
        assert (await bench.reaches(number, State.FAILED)).exit_code == 5
        await bench.runs()
        assert all(count == 1 for count in bench.backend.starts.values())

    play(scenario)


def test_what_was_refused_for_a_full_disk_never_runs(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(bench: Bench) -> None:
        disk = Full(bench.engine.store, monkeypatch)
        asked = [bench.engine.submit([a_spec()], key=f"k{n}") for n in range(5)]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(answer, CannotWrite) for answer in answers)
        disk.is_full = False
        # All of the machine is free for these.
        ids = await bench.engine.submit([a_spec() for _ in range(4)])
        for number in ids:
            await bench.reaches(number, State.RUNNING)
        assert {process[0] for process in bench.backend.running} == set(ids)
        assert not bench.engine.store.submission("me", "k0")

    play(scenario)


def test_a_store_that_is_locked_for_a_while_loses_nothing(play: Play, tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        number = await bench.runs()
        bench.engine.store._db.execute("PRAGMA busy_timeout=20")
        other = sqlite3.connect(bench.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        bench.backend.end(number, 1, 0, Ending(code=0, ended=1.0))
        with pytest.raises(CannotWrite, match="locked"):
            await bench.engine.submit([a_spec()])
        other.execute("ROLLBACK")
        other.close()
        await bench.reaches(number, State.DONE)
        await bench.runs()

    play(scenario)


def spoil(path: str, job: int, column: str, value: object) -> None:
    with sqlite3.connect(path) as db:
        db.execute(f"UPDATE jobs SET {column}=? WHERE id=?", (value, job))
    db.close()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("attempt", b'{"number":1,"placement":[],"endings":{"0":{"code":"abc"}}}'),
        ("attempt", b"\xff"),
        ("spec", b"{}"),
        ("state", "dancing"),
        ("avoid", b"5"),
    ],
)
def test_one_row_that_cannot_be_read_hides_no_other_and_keeps_no_engine_from_starting(
    play: Play, column: str, value: object
) -> None:
    async def scenario(bench: Bench) -> None:
        bad, good = await bench.runs(), await bench.runs()
        spoil(bench.path, bad, column, value)
        await bench.kill_and_restart()
        store = bench.engine.store
        assert [job.id for job in store.active()] == [good]
        assert list(store.unreadable) == [bad]
        with pytest.raises(Damaged, match=f"the record of job {bad} cannot be read") as told:
            bench.engine.job(bad)
        assert told.value.status == 410
        with pytest.raises(NotFound):
            bench.engine.job(99)
        bench.backend.end(good, 1, 0, Ending(code=0, ended=1.0))
        await bench.reaches(good, State.DONE)
        assert (await bench.engine.submit([a_spec()]))[0] > good

    play(scenario)


def test_two_submissions_under_one_key_are_one_row_and_harm_nobody(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        twice = [bench.engine.submit([a_spec()], key="same") for _ in range(2)]
        first, _ = await asyncio.gather(*twice)
        assert list(bench.engine.store.submission("me", "same")) == first
        await bench.runs()

    play(scenario)
