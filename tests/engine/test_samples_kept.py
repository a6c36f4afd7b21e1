"""What jobs use is kept while they run, survives the Engine, and goes with the job."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import msgspec
import pytest

from engine.bench import EngineBench, play_on
from towline.core.samples import MOST, STRETCH_S, Peaks, Reading, SampleStretch, Use, Used
from towline.engine.samples import SampleKeeper
from towline.model.job import Ending, JobSpec, State, key_of, process_of

SPEC = JobSpec(argv=("true",), cluster="lab", owner="me", request="[]", results=False)


class SampleBench(EngineBench):
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        super().__init__(folder)

    def equip(self) -> None:
        self.samples = SampleKeeper(self.engine)
        self.now = 1_000.0

    async def put_away(self) -> None:
        self.samples.close()

    def count_writes(self) -> list[int]:
        """How many rows each write of samples has, from now on."""
        samples, written = self.engine.store.samples, list[int]()
        add = samples.add

        def counted(measured: Iterable[tuple[int, SampleStretch]]) -> None:
            rows = list(measured)
            written.append(len(rows))
            add(rows)

        self.monkeypatch.setattr(samples, "add", counted)
        return written

    async def running(self) -> int:
        [job] = await self.engine.submit([SPEC])
        await self.engine.job_where(job, lambda job: job.state is State.RUNNING)
        return job

    def use(self, job: int, use: Use, token: str | None = None) -> None:
        attempt = self.engine.job(job).attempt
        assert attempt is not None
        key = key_of(self.engine.store.engine_id, job, attempt, 0)
        key = key if token is None else key.replace(attempt.token, token)
        self.monkeypatch.setattr(self.engine, "clock", lambda: self.now)
        self.samples.take({key: use})


Play = Callable[[Callable[[SampleBench], Awaitable[None]]], None]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    bench = functools.partial(SampleBench, tmp_path, monkeypatch)
    return lambda scenario: play_on(bench, scenario, seconds=60)


def test_what_a_job_used_is_known_while_it_runs_after_a_restart_and_after_its_end(
    play: Play,
) -> None:
    async def scenario(bench: SampleBench) -> None:
        job = await bench.running()
        for second, cpus in ((0, 1.0), (30, 3.0), (STRETCH_S, 2.0), (70, 1.0)):
            bench.now = 1_000.0 + second
            bench.use(job, Use(100 + second, cpus))
        assert [one.at for one in bench.samples.of_job(job)] == [1_000.0, 1_070.0]
        known = bench.samples.peaks(bench.engine.job(job))
        assert known is not None and (known.cpus, known.mem_mb) == (3.0, 170.0)
        bench.samples.close()
        await bench.kill_and_restart()
        assert [one.seconds for one in bench.samples.of_job(job)] == [STRETCH_S, 1.0]
        bench.backend.end(job, 1, 0, Ending(code=0, started=1.0, ended=2.0, peak_kb=1 << 20))
        ended = await bench.engine.job_where(job, lambda job: job.state.final)
        known = bench.samples.peaks(ended)
        assert known is not None and (known.cpus, known.mem_mb) == (3.0, 1024.0)
        bench.engine.store.forget([job])
        assert bench.samples.of_job(job) == []

    play(scenario)


def test_a_stretch_ends_with_the_job_and_what_is_told_of_others_is_dropped(play: Play) -> None:
    async def scenario(bench: SampleBench) -> None:
        job = await bench.running()
        bench.use(job, Use(50), token="00000000")
        bench.samples.take({"other-1-1-0": Use(1), "": Use(1)})
        assert bench.samples.of_job(job) == []
        bench.use(job, Use(50))
        bench.backend.end(job, 1, 0, Ending(code=0, started=1.0, ended=2.0))
        await bench.engine.job_where(job, lambda job: job.state.final)
        while bench.samples._measuring:  # told once the end is written
            await asyncio.sleep(0)
        assert len(bench.samples.of_job(job)) == 1

    play(scenario)


def test_what_is_told_of_a_job_that_is_over_is_not_kept(play: Play) -> None:
    async def scenario(bench: SampleBench) -> None:
        job = await bench.running()
        running = bench.engine.job(job)
        bench.backend.end(job, 1, 0, Ending(code=0, started=1.0, ended=2.0))
        ended = await bench.engine.job_where(job, lambda job: job.state.final)
        bench.engine.core.jobs[job] = msgspec.structs.replace(ended, attempt=running.attempt)
        bench.use(job, Use(50))
        assert bench.samples._measuring == {}
        del bench.engine.core.jobs[job]

    play(scenario)


def test_what_nodes_of_a_queue_measured_is_kept_also_when_it_is_heard_after_the_end(
    play: Play,
) -> None:
    async def scenario(bench: SampleBench) -> None:
        job = await bench.running()
        attempt = bench.engine.job(job).attempt
        assert attempt is not None
        bench.backend.end(job, 1, 0, Ending(code=0, started=1.0, ended=2.0, peak_kb=1024))
        await bench.engine.job_where(job, lambda job: job.state.final)
        key = key_of(bench.engine.store.engine_id, job, attempt, 0)
        minutes = [Reading(60.0 * n, 60.0, Used(0, 1.0, n, 100.0, 0.5, 0.7, 512.0)) for n in (1, 2)]
        other = key.replace(attempt.token, "00000000")
        for _ in range(2):
            bench.samples.take_readings({key: minutes, other: minutes, "x-1-1-0": minutes})
        assert [one.at for one in bench.samples.of_job(job)] == [60.0, 120.0]
        bench.samples.close()
        await bench.kill_and_restart()
        bench.samples.take_readings({key: minutes[:1]})
        assert [one.at for one in bench.samples.of_job(job)] == [60.0, 120.0]
        known = bench.samples.peaks(bench.engine.job(job))
        assert known == Peaks(2.0, 100.0, 0.7, 512.0)

    play(scenario)


def test_a_thousand_running_jobs_are_written_together(play: Play) -> None:
    async def scenario(bench: SampleBench) -> None:
        store, first = bench.engine.store, await bench.running()
        written = bench.count_writes()
        for number in range(1000):
            bench.samples._unwritten.append(
                (first, SampleStretch(float(number), 60.0, 1, (Used(0),)))
            )
        bench.use(first, Use(1))
        bench.samples.close()
        await bench.engine.in_turn(lambda: None)
        assert written == [1001]
        assert len(store.samples.of_job(first)) <= MOST

    play(scenario)


def test_a_key_says_which_process_it_is() -> None:
    assert process_of("ab", "ab-7-2-0a0b0c0d-3") == (7, 2, "0a0b0c0d", 3)
    assert process_of("ab", "ab-7-2-3") == (7, 2, "", 3)
    for odd in ("ab-7-2-0a0b0c0d-3.x1", "cd-7-2-3", "", "ab-"):
        assert process_of("ab", odd) is None
