"""The loop with a fake backend: what is decided is written first, and survives the Engine."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from engine.bench import MACHINE, EngineBench, play_on
from towline.engine.following.follow import Follower
from towline.engine.reasons import reason_words
from towline.errors import NotFound
from towline.model.events import MachineGone, MachineSeen, StopAsked
from towline.model.job import Ending, Job, JobSpec, State


def a_spec(request: str = "[]", retries: int = 0) -> JobSpec:
    return JobSpec(argv=("true",), cluster="lab", owner="me", request=request, retries=retries)


class Bench(EngineBench):
    async def reaches(self, job_id: int, *states: State) -> Job:
        return await self.engine.job_where(job_id, lambda job: job.state in states)


Scenario = Callable[[Bench], Awaitable[None]]
Play = Callable[[Scenario], None]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return lambda scenario: play_on(lambda: Bench(tmp_path), scenario, seconds=20)


def test_a_job_runs_and_its_end_is_remembered(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        [number] = await bench.engine.submit([a_spec()])
        await bench.reaches(number, State.RUNNING)
        bench.backend.end(number, 1, 0, Ending(code=3, ended=1.0))
        job = await bench.reaches(number, State.FAILED)
        assert job.exit_code == 3
        assert bench.engine.store.job(number) == job
        assert not bench.engine.core.jobs

    play(scenario)


def test_paced_jobs_start_though_nothing_else_happens(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        bench.engine.report(MachineSeen(replace(MACHINE, cpus=32, stagger_s=0.02)))
        ids = await bench.engine.submit([a_spec() for _ in range(12)])
        assert len(bench.backend.running) < len(ids)
        for number in ids:
            await bench.reaches(number, State.RUNNING)

    play(scenario)


def test_an_acknowledged_job_survives_a_kill_of_the_engine(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        ids = await bench.engine.submit([a_spec() for _ in range(20)])
        await bench.kill_and_restart()
        for number in ids:
            job = await bench.reaches(number, State.RUNNING)
            assert job.attempt is not None
            bench.backend.end(number, job.attempt.number, 0, Ending(code=0))
            await bench.reaches(number, State.DONE)
        assert all(count == 1 for count in bench.backend.starts.values())
        assert len(bench.backend.starts) == 20

    play(scenario)


def test_a_job_that_ended_while_the_engine_was_dead_is_found(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        [number] = await bench.engine.submit([a_spec()])
        await bench.reaches(number, State.RUNNING)
        bench.backend.running.clear()
        await bench.kill_and_restart()
        await bench.reaches(number, State.DONE)

    play(scenario)


def test_when_one_process_fails_the_others_are_stopped(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        [number] = await bench.engine.submit([a_spec("3:[]")])
        await bench.reaches(number, State.RUNNING)
        bench.backend.end(number, 1, 1, Ending(code=5, started=1.0, ended=2.0))
        job = await bench.reaches(number, State.FAILED)
        assert (job.exit_code, reason_words(job.reason)) == (5, "process 0.1 on gpu1: exit code 5")
        assert not bench.backend.running

    play(scenario)


def test_a_failed_job_is_tried_again_as_often_as_asked(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        [number] = await bench.engine.submit([a_spec(retries=2)])
        for attempt in (1, 2, 3):
            await bench.engine.job_where(
                number,
                lambda job, attempt=attempt: (  # type: ignore[misc]
                    job.state is State.RUNNING
                    and job.attempt is not None
                    and job.attempt.number == attempt
                ),
            )
            bench.backend.end(number, attempt, 0, Ending(code=1, ended=1.0))
        await bench.reaches(number, State.FAILED)

    play(scenario)


def test_late_words_from_an_older_attempt_are_dropped(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        [number] = await bench.engine.submit([a_spec()])
        await bench.reaches(number, State.RUNNING)
        bench.backend.end(number, 1, 0, Ending(code=1, ended=1.0))
        await bench.reaches(number, State.FAILED)
        await bench.engine.retry([number])
        await bench.reaches(number, State.RUNNING)
        bench.backend.running[number, 1, 0] = "gpu1"
        bench.backend.end(number, 1, 0, Ending(code=0, ended=9.0))
        await bench.engine.stop([number])
        assert (await bench.reaches(number, State.STOPPED, State.DONE)).state is State.STOPPED

    play(scenario)


def test_a_waiting_job_stops_at_once_and_a_second_stop_changes_nothing(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        bench.engine.report(MachineGone("gpu1"))
        [number] = await bench.engine.submit([a_spec()])
        await bench.engine.stop([number])
        await bench.engine.stop([number])
        assert bench.engine.job(number).state is State.STOPPED
        assert bench.backend.orders == []

    play(scenario)


def test_following_gives_states_output_and_the_end(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        [number] = await bench.engine.submit([a_spec()])
        await bench.reaches(number, State.RUNNING)
        bench.backend.print((number, 1, 0), b"hello\n")
        bench.backend.end(number, 1, 0, Ending(code=0, ended=1.0))
        follower = Follower(bench.engine, bench.backend, number, {"0.0.out": 2}, ("out", "err"))
        frames = [frame async for frame in follower.frames()]
        assert [blob for header, blob in frames if "stream" in header] == [b"llo\n"]
        assert frames[-1][0]["end"]["state"] == "done"

    play(scenario)


def test_an_unknown_job_is_a_clear_error(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        with pytest.raises(NotFound, match="there is no job 99"):
            bench.engine.job(99)

    play(scenario)


def test_a_second_stop_gives_the_order_again(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        bench.backend.heeds_stops = False
        [number] = await bench.engine.submit([a_spec()])
        await bench.reaches(number, State.RUNNING)
        await bench.engine.stop([number])
        await bench.engine.stop([number], now=True)
        await bench.engine.tell(StopAsked(()))
        assert bench.backend.orders.count(("stop", number)) == 2

    play(scenario)
