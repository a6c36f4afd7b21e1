"""A batch in the Engine: the core has a window of it, the store all, a kill loses nothing."""

import asyncio
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from engine.batch_bench import AT_ONCE, BASE, ME, Bench, Play, lines
from engine.bench import MACHINE, play_on
from towline.core.batches import WINDOW
from towline.engine.batches import follow as batch_follow
from towline.engine.batches.batches import Batches, Wish
from towline.engine.batches.follow import follow
from towline.engine.reasons import reason_words
from towline.errors import NotFound
from towline.model.batch import Line
from towline.model.events import MachineSeen
from towline.model.job import Ending, JobSpec, State
from towline.model.reason import Reason


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return lambda scenario: play_on(lambda: Bench(tmp_path), scenario, seconds=60)


def started_lines(bench: Bench) -> Counter[int]:
    return Counter(job for job, _, _ in bench.backend.starts)


def test_every_line_runs_once_and_the_core_has_only_a_window(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        count = WINDOW * 2 + 10
        bench.engine.report(MachineSeen(replace(MACHINE, cpus=200)))
        batch = await bench.batches.submit(Wish("sweep", BASE, lines(count)))
        most = 0
        while batch.key in bench.batches.active:
            most = max(most, len(bench.engine.core.jobs))
            bench.end_all()
            await asyncio.sleep(0)
        assert bench.counts("sweep") == {"done": count}
        assert started_lines(bench) == Counter(range(batch.first, batch.last + 1))
        assert most <= WINDOW + 400

    play(scenario)


def test_a_batch_tells_which_machines_keep_its_results(tmp_path: Path, play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        away = {"gpu1": "gpu1: the connection broke"}
        batches = Batches(bench.engine, lambda job: away)
        base = replace(BASE, folder=str(tmp_path), results=True)
        batch = await bench.batches.submit(Wish("sweep", base, lines(3)))
        assert batches.view(batch)["away"] == []
        await bench.play_out(batch, lambda job: Ending(code=0, started=1.0, made=1))
        view = batches.view(batch)
        assert (view["home"], view["pending"]) == (False, 3)
        assert view["away"] == [{"machine": "gpu1", "reason": away["gpu1"]}]

    play(scenario)


def test_a_job_of_a_batch_is_what_its_line_says(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        own = Line(argv=("a",), number=7, name="mine", env={"K": "v"}, back=("out",))
        wish = Wish("b", JobSpec((), "lab", "me", env={"J": "w"}, snapshot="s"), [own])
        batch = await bench.batches.submit(wish)
        spec = bench.engine.job(batch.first).spec
        assert (spec.argv, spec.batch, spec.line, spec.name) == (("a",), "b", 7, "mine")
        assert (spec.env, spec.back, spec.snapshot) == ({"J": "w", "K": "v"}, ("out",), "s")

    play(scenario)


def test_a_name_that_is_taken_gets_a_number(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        wishes = [bench.batches.submit(Wish("sweep", BASE, lines(1))) for _ in range(3)]
        names = {batch.name for batch in await asyncio.gather(*wishes)}
        assert names == {"sweep", "sweep-2", "sweep-3"}

    play(scenario)


def test_the_same_key_is_the_same_batch(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        first = await bench.batches.submit(Wish("sweep", BASE, lines(3)), "key")
        assert await bench.batches.submit(Wish("sweep", BASE, lines(3)), "key") == first
        assert len(bench.batches.listed(ME, True)) == 1

    play(scenario)


def test_kills_of_the_engine_lose_no_line_and_run_none_twice(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        batch = await bench.batches.submit(Wish("sweep", BASE, lines(60)))
        for _ in range(8):
            await bench.until(lambda: bool(bench.backend.running))
            bench.end_all()
            await asyncio.sleep(0)
            await bench.kill_and_restart()
        await bench.play_out(batch)
        assert bench.counts("sweep") == {"done": 60}
        # A start that an Engine did not live to give is given by the next, as another attempt.
        assert Counter(bench.backend.starts.values()) == {1: len(bench.backend.starts)}
        assert started_lines(bench) == Counter(range(batch.first, batch.last + 1))

    play(scenario)


@pytest.mark.parametrize("at_most", [0, 2], ids=["by_the_window", "by_the_scheduler"])
def test_no_more_than_max_parallel_run_at_a_time(play: Play, at_most: int) -> None:
    async def scenario(bench: Bench) -> None:
        base = replace(BASE, at_most=at_most)
        batch = await bench.batches.submit(Wish("sweep", base, lines(20), max_parallel=2))
        await bench.until(lambda: len(bench.backend.running) == 2)
        assert bench.batches.view(batch)["why"] == "2 run at a time"
        most = 0
        while batch.key in bench.batches.active:
            most = max(most, len(bench.backend.running))
            for process in list(bench.backend.running)[:1]:
                bench.backend.end(*process, ending=Ending(code=0))
            await asyncio.sleep(0.001)
        assert most == 2
        assert bench.counts("sweep") == {"done": 20}

    play(scenario)


def test_with_fail_fast_the_first_failure_stops_the_rest(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        wish = Wish("sweep", BASE, lines(3000), fail_fast=True)
        batch = await bench.batches.submit(wish)
        await bench.until(lambda: len(bench.backend.running) == AT_ONCE)
        bench.backend.end(batch.first + 1, 1, 0, Ending(code=3))
        await bench.until(lambda: batch.key not in bench.batches.active)
        assert bench.counts("sweep") == {"failed": 1, "stopped": 2999}
        why = bench.engine.job(batch.last).reason
        assert why == Reason("line_ended", line=2, state="failed")
        assert reason_words(why) == "stopped because line 2 failed"
        assert len(bench.backend.starts) < 20

    play(scenario)


def test_a_batch_that_is_to_stop_waits_for_a_store_that_cannot_be_written(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("towline.engine.batches.batches.AGAIN_S", 0.01)

    async def scenario(bench: Bench) -> None:
        batch = await bench.batches.submit(Wish("sweep", BASE, lines(100), fail_fast=True))
        await bench.until(lambda: len(bench.backend.running) == AT_ONCE)
        change, tries = bench.batches.store.batches.change, []

        def full(*args: Any) -> None:
            tries.append(args)
            if len(tries) < 4:
                raise sqlite3.OperationalError("database or disk is full")
            change(*args)

        monkeypatch.setattr(bench.batches.store.batches, "change", full)
        bench.backend.end(batch.first, 1, 0, Ending(code=3))
        await bench.until(lambda: batch.key not in bench.batches.active)
        assert bench.counts("sweep") == {"failed": 1, "stopped": 99}

    play(scenario)


def test_whoever_follows_a_batch_that_cannot_be_stopped_is_told(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(bench: Bench) -> None:
        batch = await bench.batches.submit(Wish("sweep", BASE, lines(100), fail_fast=True))
        await bench.until(lambda: len(bench.backend.running) == AT_ONCE)

        def fail(*args: Any) -> None:
            raise RuntimeError("odd")

        with monkeypatch.context() as broken:
            broken.setattr(bench.batches.store.batches, "change", fail)
            bench.backend.end(batch.first, 1, 0, Ending(code=3))
            async for header, _ in follow(bench.batches, batch, 0):
                why = header["batch"]["why"]
                if why == "the rest could not be stopped: odd; tow batch stop sweep":
                    break
        await bench.batches.stop(bench.batch("sweep"))
        await bench.until(lambda: batch.key not in bench.batches.active)

    play(scenario)


def test_whoever_follows_a_batch_hears_how_far_what_it_needs_is_on_its_way(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        batch = await bench.batches.submit(Wish("sweep", BASE, lines(2)))
        told: Any = follow(bench.batches, bench.batch("sweep"), 0, lambda snapshots: (1, 2))
        header, _ = await anext(told)
        assert header["batch"]["sending"] == [1, 2]
        await told.aclose()
        await bench.play_out(batch)
        async for header, _ in follow(
            bench.batches, bench.batch("sweep"), 0, lambda snapshots: (1, 2)
        ):
            assert "sending" not in header["batch"]

    play(scenario)


def test_a_stopped_batch_is_taken_up_where_it_was(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        batch = await bench.batches.submit(Wish("sweep", BASE, lines(30)))
        await bench.until(lambda: len(bench.backend.running) == AT_ONCE)
        bench.end_all()
        await bench.until(lambda: bench.counts("sweep")["done"] == AT_ONCE)
        await bench.batches.stop(bench.batch("sweep"))
        await bench.until(lambda: batch.key not in bench.batches.active)
        stopped = bench.counts("sweep")["stopped"]
        assert bench.counts("sweep") == {"done": AT_ONCE, "stopped": 30 - AT_ONCE}
        await bench.kill_and_restart()
        assert await bench.batches.retry(bench.batch("sweep"), [State.STOPPED]) == stopped
        await bench.play_out(batch)
        assert bench.counts("sweep") == {"done": 30}
        assert started_lines(bench)[batch.first] == 1

    play(scenario)


def test_only_what_failed_is_started_again(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        batch = await bench.batches.submit(Wish("sweep", BASE, lines(10)))
        await bench.play_out(batch, lambda job: Ending(code=job % 2))
        failed = bench.counts("sweep")["failed"]
        assert failed == 5
        assert await bench.batches.retry(bench.batch("sweep"), [State.FAILED]) == failed
        await bench.play_out(batch)
        assert bench.counts("sweep") == {"done": 10}
        assert sorted(started_lines(bench).values()) == [1] * 5 + [2] * 5
        job = next(job for job, times in started_lines(bench).items() if times == 2)
        earlier = bench.engine.store.attempts.numbered(job, 1)
        assert earlier is not None and earlier.endings[0].code == 1

    play(scenario)


def test_one_job_of_a_batch_can_be_stopped_and_started_again_by_its_number(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        batch = await bench.batches.submit(Wish("sweep", BASE, lines(10), max_parallel=1))
        await bench.until(lambda: bool(bench.backend.running))
        await bench.engine.stop([batch.last])
        assert bench.engine.job(batch.last).state is State.STOPPED
        await bench.play_out(batch)
        assert bench.counts("sweep") == {"done": 9, "stopped": 1}
        await bench.engine.retry([batch.last])
        await bench.until(lambda: batch.key in bench.batches.active)
        await bench.play_out(batch)
        assert bench.counts("sweep") == {"done": 10}

    play(scenario)


def test_followers_hear_each_start_and_end_once_also_across_a_kill(play: Play) -> None:
    async def listen(bench: Bench, since: int, most: int) -> tuple[int, list[Any]]:
        heard: list[Any] = []
        async for frame, _ in follow(bench.batches, bench.batch("sweep"), since):
            heard += frame["events"]
            if frame["over"] or len(heard) >= most:
                break
            bench.end_all()
        return (heard[-1][0] if heard else since), heard

    async def scenario(bench: Bench) -> None:
        await bench.batches.submit(Wish("sweep", BASE, lines(12)))
        seq, before = await listen(bench, 0, 6)
        await bench.kill_and_restart()
        _, after = await listen(bench, seq, 1000)
        heard = Counter((event[3], event[4]) for event in before + after)
        for number in range(1, 13):
            assert heard[number, "done"] == 1
            assert heard[number, "started"] >= 1

    play(scenario)


def test_the_end_is_told_at_once_however_seldom_all_else_is(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pause in ("_PAUSE_S", "_QUIET_S"):
        monkeypatch.setattr(batch_follow, pause, 3600)

    async def followed(bench: Bench) -> None:
        batch = await bench.batches.submit(Wish("sweep", BASE, lines(2)))
        frames = follow(bench.batches, batch, 0)
        await anext(frames)
        rest = asyncio.ensure_future(anext(frames))
        await bench.until(lambda: len(bench.backend.running) == 2)
        await bench.play_out(batch)
        frame, _ = await asyncio.wait_for(rest, 30)
        assert frame["over"] and [event[4] for event in frame["events"]][-2:] == ["done", "done"]

    play(followed)


def test_an_unknown_batch_is_told(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        with pytest.raises(NotFound, match="no batch 'nothing'"):
            await bench.batches.stop(bench.batch("nothing"))

    play(scenario)
