"""Chains in the Engine: on disk, over restarts, for jobs and for whole batches."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from engine.batch_bench import BASE, ME, Bench, Play, lines
from engine.bench import play_on
from towline.engine.batches.batches import Wish
from towline.engine.chains import (
    after_from,
    check_nobody_waits,
    check_retry,
    skipped_because,
    waiting_words,
)
from towline.errors import NotFound, UsageError
from towline.model.job import Awaited, Ending, JobSpec, State
from towline.model.journal import rebuild
from towline.model.names import ANY, OK

WELL, FAILED = Ending(code=0), Ending(code=1)


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return lambda scenario: play_on(lambda: Bench(tmp_path), scenario, seconds=300)


def a_spec(*after: Awaited) -> JobSpec:
    return JobSpec(("true",), "lab", "me", results=False, after=after)


async def submit(bench: Bench, *after: Awaited) -> int:
    [job] = await bench.engine.submit([a_spec(*after)])
    return job


async def state(bench: Bench, job: int, wanted: str) -> None:
    await bench.until(lambda: bench.engine.job(job).state == wanted)


async def end(bench: Bench, job: int, ending: Ending = WELL) -> None:
    await bench.until(lambda: any(process[0] == job for process in bench.backend.running))
    [process] = [process for process in bench.backend.running if process[0] == job]
    bench.backend.end(*process, ending=ending)


def test_a_chain_survives_kills_and_each_of_it_runs_once_and_in_order(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        first = await submit(bench)
        left = await submit(bench, Awaited(OK, job=first))
        right = await submit(bench, Awaited(OK, job=first))
        last = await submit(bench, Awaited(OK, job=left), Awaited(OK, job=right))
        order = []
        for job in (first, left, right, last):
            await bench.kill_and_restart()
            order.append(job)
            assert last == job or bench.engine.job(last).state is State.WAITING
            await end(bench, job)
            await state(bench, job, "done")
        assert order == [first, left, right, last]
        starts = [job for job, _, _ in bench.backend.starts]
        assert (sorted(starts), starts[0], starts[-1]) == (order, first, last)

    play(scenario)


def test_a_skipped_job_is_on_disk_with_its_reason_and_in_the_journal(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        first = await submit(bench)
        second = await submit(bench, Awaited(OK, job=first))
        third = await submit(bench, Awaited(OK, job=second))
        await end(bench, first, FAILED)
        await state(bench, third, "skipped")
        await bench.kill_and_restart()
        job = bench.engine.store.job(second)
        assert (job.state, job.reason.job, job.reason.state) == ("skipped", first, "failed")
        assert rebuild(job.spec, bench.engine.store.journal.of_job(second, 100)) == job
        assert skipped_because(bench.engine, [first]) == [second, third]
        with pytest.raises(UsageError, match=f"job {first} failed"):
            check_retry(bench.engine, [job])
        jobs = [bench.engine.job(number) for number in (first, second, third)]
        check_retry(bench.engine, jobs)
        await bench.engine.retry([first, second, third])
        assert bench.engine.job(second).state is State.WAITING
        for number in (first, second, third):
            await end(bench, number)
        await state(bench, third, "done")

    play(scenario)


def test_a_batch_waits_as_a_whole_and_the_next_waits_for_it(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        first = await submit(bench)
        held = replace(BASE, after=(Awaited(OK, job=first),))
        batch = await bench.batches.submit(Wish("held", held, lines(3)))
        next_one = replace(BASE, after=(Awaited(OK, batch="held"),))
        await bench.batches.submit(Wish("next", next_one, lines(2)))
        last = await submit(bench, Awaited(ANY, batch="next"))
        await bench.kill_and_restart()
        await bench.until(lambda: "next" in bench.engine.core.chains)
        assert bench.counts("held") == {"queued": 3}
        assert bench.batches.view(bench.batch("held"))["why"].startswith(f"waits for job {first} (")
        assert waiting_words(bench.engine, last, (Awaited(ANY, batch="next"),)).endswith("to end")
        with pytest.raises(UsageError, match="batch next was submitted to run after batch held"):
            check_nobody_waits(bench.engine, [], ["held"])
        await end(bench, first)
        await bench.play_out(batch, lambda job: FAILED if job == batch.first else WELL)
        await bench.until(lambda: bench.counts("next") == {"skipped": 2})
        await end(bench, last)
        await state(bench, last, "done")
        assert bench.engine.job(last - 1).reason.batch == "held"
        # Retried together, they wait for one another again.
        check_retry(bench.engine, [], [bench.batch("held"), bench.batch("next")])
        await bench.batches.retry(bench.batch("held"), [State.FAILED])
        await bench.batches.retry(bench.batch("next"), [State.SKIPPED])
        await bench.until(lambda: "next" in bench.engine.core.chains)
        while ("me", "next") in bench.batches.active:
            bench.end_all()
            await asyncio.sleep(0.001)
        assert (bench.counts("held"), bench.counts("next")) == ({"done": 3}, {"done": 2})

    play(scenario)


def test_a_stopped_batch_that_waited_never_begins(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        first = await submit(bench)
        held = replace(BASE, after=(Awaited(OK, job=first),))
        await bench.batches.submit(Wish("held", held, lines(3)))
        await bench.until(lambda: "held" in bench.engine.core.chains)
        await bench.batches.stop(bench.batch("held"))
        assert bench.counts("held") == {"stopped": 3}
        await bench.until(lambda: "held" not in bench.engine.core.chains)
        await end(bench, first)
        await state(bench, first, "done")
        assert bench.counts("held") == {"stopped": 3}

    play(scenario)


def test_names_mean_jobs_and_batches_that_there_are(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        one, two = await bench.engine.submit([replace(a_spec(), title="prepare"), a_spec()])
        await bench.batches.submit(Wish("sweep", BASE, lines(3)))
        named = [(OK, "prepare"), (OK, "sweep.2"), (OK, f"{one}-{two}"), (ANY, "sweep")]
        found = after_from(ME, named, bench.engine)
        assert [one.unit for one in found] == [one, two + 2, two, "sweep"]
        assert [one.when for one in found] == [OK, OK, OK, ANY]
        for wrong in ("99", "nothing"):
            with pytest.raises(NotFound):
                after_from(ME, [(OK, wrong)], bench.engine)
        with pytest.raises(UsageError, match="named twice"):
            after_from(ME, [(OK, str(one)), (ANY, "prepare")], bench.engine)

    play(scenario)
