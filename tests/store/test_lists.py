"""What a list has: all that is active, then the newest that ended; and what a name means."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from towline.core import jobs
from towline.engine.lists import JobFilter, JobPage, checked_state, jobs_of_batch, listed, meant
from towline.errors import NotFound, UsageError
from towline.model.batch import Batch, Line
from towline.model.job import Ending, Job, JobSpec, Queueing
from towline.model.machine import Slot
from towline.model.principal import Principal
from towline.store.store import Store

NOW = 1_000_000.0
ME = Principal("me")
SPEC = JobSpec(argv=("true",), cluster="lab", owner="me", title="train")
IN_A_SLURM = replace(SPEC, cluster="cedar", queue=Queueing("slurm"))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store.db"))


def put(store: Store, spec: JobSpec = SPEC) -> Job:
    """A job that waits."""
    job = jobs.accepted(store.new_ids(1)[0], spec, NOW - 500)
    store.commit({job.id: job}, {job.id}, [], NOW)
    return job


def moved(store: Store, job: Job, *, runs: bool = False, ended: float = 0.0) -> int:
    """The same on a machine, running there, or ended."""
    job = jobs.placed(job, (Slot("gpu1"),))
    if runs or ended:
        job = jobs.running(job, NOW - 400)
    if ended:
        job = jobs.with_ending(job, 0, Ending(code=0, ended=ended))
        job = jobs.concluded(job, ended)
    store.commit({job.id: job}, set(), [], NOW)
    return job.id


def numbers(found: JobPage) -> list[int]:
    return [job.id for job in found.jobs]


def test_what_is_active_is_listed_however_much_came_after_it(store: Store) -> None:
    running = moved(store, put(store), runs=True)
    ended = [moved(store, put(store), ended=NOW - 10) for _ in range(40)]
    waiting = [put(store).id for _ in range(40)]
    found = listed(store, JobFilter(), NOW)
    assert numbers(found) == [running, *ended[-5:], *waiting]
    assert found.left_out == 35
    everything = listed(store, JobFilter(everything=True), NOW)
    assert numbers(everything) == [running, *ended, *waiting] and everything.left_out == 0


def test_of_more_active_ones_than_are_wanted_those_that_run_come_first(store: Store) -> None:
    running = moved(store, put(store), runs=True)
    waiting = [put(store).id for _ in range(9)]
    moved(store, put(store), ended=NOW - 10)
    found = listed(store, JobFilter(limit=3), NOW)
    assert numbers(found) == [running, *waiting[-2:]] and found.left_out == 8


def test_what_ended_long_ago_is_listed_only_when_asked_for(store: Store) -> None:
    old = moved(store, put(store), ended=NOW - 200_000)
    assert numbers(listed(store, JobFilter(), NOW)) == []
    assert numbers(listed(store, JobFilter(everything=True), NOW)) == [old]


def test_a_job_in_the_queue_of_its_slurm_is_found_as_queued(store: Store) -> None:
    there = moved(store, put(store, IN_A_SLURM))
    here = put(store).id
    starting = moved(store, put(store))
    assert numbers(listed(store, JobFilter(state="queued"), NOW)) == [there, here]
    assert numbers(listed(store, JobFilter(state="starting"), NOW)) == [starting]
    assert numbers(listed(store, JobFilter(state="active", cluster="cedar"), NOW)) == [there]
    assert numbers(listed(store, JobFilter(state="done"), NOW)) == []


def a_batch(store: Store, base: JobSpec = SPEC, name: str = "sweep", step: int = 1) -> Batch:
    """Of three jobs, the lines of which are `step` apart."""
    base = replace(base, argv=(), title="")
    batch = Batch(name, base, first=store.new_ids(3)[0], count=3, submitted=NOW)
    lines = [
        Line(argv=("echo", str(n)), number=n, title="train") for n in (1, 1 + step, 1 + 2 * step)
    ]
    store.batches.add(batch, lines)
    return batch


def test_jobs_of_a_batch_in_the_queue_of_its_slurm_are_found_as_queued(store: Store) -> None:
    batch = a_batch(store, IN_A_SLURM)
    first = store.job(batch.first)
    assert first is not None
    moved(store, first)

    def found(state: str) -> list[int]:
        return [job.id for job in jobs_of_batch(store, batch, state, -1)]

    assert found("queued") == found("active") == [1, 2, 3] and found("starting") == []


def test_a_state_that_is_none_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError, match="no state 'runing'") as refused:
        checked_state("runing")
    assert "running" in refused.value.hint and "active" in refused.value.hint


def test_of_several_jobs_with_one_title_the_active_one_is_meant_then_the_newest(
    store: Store,
) -> None:
    first, second = put(store), put(store)
    moved(store, second, ended=NOW)
    assert meant(store, ME, "train") == {"job": first.id}
    moved(store, first, ended=NOW)
    assert meant(store, ME, "train") == {"job": second.id}


@pytest.mark.parametrize("step", [1, 4])
def test_a_line_of_a_batch_is_a_job(store: Store, step: int) -> None:
    put(store)
    batch = a_batch(store, step=step)
    a_batch(store, name="sweep.2")
    assert meant(store, ME, f"sweep.{1 + 2 * step}") == {"job": batch.last}
    assert meant(store, ME, "sweep.1") == {"job": batch.first}
    assert meant(store, ME, "sweep") == {"batch": "sweep", "first": batch.first, "count": 3}
    assert meant(store, ME, "sweep.2")["batch"] == "sweep.2"
    for number in ("0", "77"):
        with pytest.raises(NotFound, match=f"no line {number}"):
            meant(store, ME, f"sweep.{number}")
    with pytest.raises(NotFound, match=r"no job 'other\.1'"):
        meant(store, ME, "other.1")


def test_last_is_what_was_submitted_last_be_it_a_batch(store: Store) -> None:
    with pytest.raises(NotFound, match="no job yet"):
        meant(store, ME, "last")
    put(store)
    a_batch(store)
    assert meant(store, ME, "last")["batch"] == "sweep"
    assert meant(store, ME, "last") == meant(store, ME, "sweep")
    newest = put(store).id
    assert meant(store, ME, "last") == {"job": newest}
