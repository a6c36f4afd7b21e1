"""The journal is complete: rows can be made of it again, and it tells each attempt as it was."""

from collections import Counter
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from engine.batch_bench import AT_ONCE, BASE, Bench, Play, lines
from engine.bench import MACHINE, play_on
from towline.core.batches import WINDOW
from towline.engine.batches.batches import Wish
from towline.engine.batches.follow import follow
from towline.engine.journal import MOST_WAITING
from towline.engine.wording import words
from towline.model.batch import Batch
from towline.model.events import MachineSeen
from towline.model.job import Ending, Job, State
from towline.model.journal import JournalEvent, Kind, rebuild
from towline.store.store import Store

_ENDINGS = (
    Ending(code=0, started=1.0, ended=2.0),
    Ending(code=3, started=1.0, ended=2.0, text="a word"),
    Ending(signal=9, started=1.0, ended=2.0),
    Ending(cause="void", text="gpu1 went away before it started"),
)


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return lambda scenario: play_on(lambda: Bench(tmp_path), scenario, seconds=60)


def rebuilt(store: Store, job: Job) -> Job:
    """A job as the journal alone tells it."""
    events = store.journal.of_job(job.id)
    if job.spec.batch:
        of_batch = [event for event in everything(store) if event.batch == job.spec.batch]
        events = [e for e in of_batch if e.kind == Kind.BATCH_SUBMITTED] + events
    return rebuild(job.spec, events)


def everything(store: Store) -> list[JournalEvent]:
    return store.journal.since(0, 1_000_000)


def test_rows_can_be_made_of_the_journal_alone_also_after_kills_stops_and_retries(
    play: Play,
) -> None:
    random = Random(7)

    async def scenario(bench: Bench) -> None:
        base = replace(BASE, retries=1)
        batch = await bench.batches.submit(Wish("sweep", base, lines(60)))
        for _ in range(4):
            for _ in range(3):
                await bench.until(lambda: bool(bench.backend.running))
                bench.end_all(lambda job: random.choice(_ENDINGS))
            await bench.kill_and_restart()
        await bench.batches.stop(bench.batch("sweep"))
        await bench.play_out(batch)
        await bench.batches.retry(bench.batch("sweep"), [State.FAILED, State.STOPPED])
        await bench.until(lambda: bool(bench.backend.running))
        bench.end_all(lambda job: random.choice(_ENDINGS))
        await bench.kill_and_restart()
        await bench.until(lambda: len(bench.backend.running) >= AT_ONCE)
        store = bench.engine.store

        def compare() -> None:
            for job in store.jobs_between(batch.first, batch.last):
                assert rebuilt(store, job) == job
            assert_batch_is_told(store, batch)

        # While nothing is written.
        await bench.engine.in_turn(compare)

    play(scenario)


def assert_batch_is_told(store: Store, batch: Batch) -> None:
    """What the journal says of a batch is what its row says."""
    told = [event for event in everything(store) if event.batch == batch.name]
    [submitted] = [event.fields() for event in told if event.kind == Kind.BATCH_SUBMITTED]
    changes = [event.fields() for event in told if event.kind == Kind.BATCH_CHANGED]
    assert submitted == {"first": batch.first, "count": batch.count}
    assert changes[-1]["stopped"] == store.batches.named(*batch.key).stopped


def test_stopping_a_batch_tells_of_each_line_that_waited(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        count = 2 * WINDOW
        batch = await bench.batches.submit(Wish("sweep", BASE, lines(count)))
        await bench.until(lambda: len(bench.backend.running) == AT_ONCE)
        bench.end_all()
        await bench.batches.stop(bench.batch("sweep"))
        await bench.play_out(batch)
        ended = [event.job for event in everything(bench.engine.store) if event.kind == Kind.ENDED]
        assert Counter(ended) == Counter(range(batch.first, batch.last + 1))
        assert sum(bench.counts("sweep").values()) == count

    play(scenario)


def test_a_batch_whose_stop_was_cut_off_by_a_kill_is_stopped_to_the_end(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        batch = await bench.batches.submit(Wish("sweep", BASE, lines(WINDOW + 50)))
        await bench.until(lambda: len(bench.backend.running) == AT_ONCE)
        store, clock = bench.engine.store, bench.engine.clock
        stopped = replace(batch, stopped=True)
        await bench.engine.in_turn(lambda: store.batches.change(stopped, clock()))
        await bench.kill_and_restart()
        await bench.play_out(batch)
        assert bench.counts("sweep")["stopped"] >= WINDOW + 50 - AT_ONCE

    play(scenario)


def test_a_replay_tells_the_machine_and_the_exit_code_of_each_attempt(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        batch = await bench.batches.submit(Wish("sweep", BASE, lines(1)))
        await bench.until(lambda: bool(bench.backend.running))
        bench.end_all(lambda job: Ending(code=3, started=1.0, ended=2.0))
        await bench.until(lambda: batch.key not in bench.batches.active)
        bench.engine.report(MachineSeen(replace(MACHINE, cpus=0)))
        bench.engine.report(MachineSeen(replace(MACHINE, name="gpu2")))
        await bench.batches.retry(bench.batch("sweep"), [State.FAILED])
        await bench.play_out(batch)
        told: list[tuple[str, str, int | None]] = []
        async for header, _ in follow(bench.batches, bench.batch("sweep"), 0):
            told += [
                (what, machine, code) for _, _, _, _, what, machine, _, code, *_ in header["events"]
            ]
        assert told == [
            ("started", "gpu1", None),
            ("failed", "gpu1", 3),
            ("requeued", "gpu1", None),
            ("started", "gpu2", None),
            ("done", "gpu2", 0),
        ]

    play(scenario)


def test_a_start_that_was_void_says_why_in_the_words_of_its_machine(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        (job,) = await bench.engine.submit([BASE])
        await bench.until(lambda: bool(bench.backend.running))
        bench.end_all(lambda job: Ending(cause="void", text="GPU 0 is reserved for a job of bob"))
        await bench.until(lambda: bench.backend.orders.count(("start", job)) > 1)
        told = [event for event in everything(bench.engine.store) if event.job == job]
        (again,) = [words(event) for event in told if event.kind == Kind.REQUEUED]
        assert again == "it did not start: GPU 0 is reserved for a job of bob; waiting again"

    play(scenario)


def test_a_subscriber_that_does_not_keep_up_is_told_that_there_is_a_gap(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        before = bench.engine.store.journal.last_seq()
        with bench.engine.journal.subscribe() as news:
            for _ in range(MOST_WAITING + 10):
                await bench.engine.submit([BASE])
            assert news.gap
            assert len(news.take()) < MOST_WAITING
        missed = bench.engine.store.journal.since(before, 10 * MOST_WAITING)
        assert [e.seq for e in missed] == list(range(before + 1, missed[-1].seq + 1))
        assert sum(e.kind == Kind.SUBMITTED for e in missed) == MOST_WAITING + 10

    play(scenario)
