"""What is written is there after anything; old stores open; newer ones are refused."""

import os
import sqlite3
import stat
import threading
from pathlib import Path

import pytest

from towline.core import jobs
from towline.engine.wording import words
from towline.errors import EngineError
from towline.model.job import Ending, Job, JobSpec, State
from towline.model.journal import Kind, Told, rebuild
from towline.model.machine import Slot
from towline.store.journal import Note
from towline.store.migrations import MIGRATIONS
from towline.store.store import Store

SPEC = JobSpec(argv=("echo", "ü ñ", "$HOME\n"), cluster="lab", owner="me", env={"KEY": "secret"})


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "store.db")


def submitted(store: Store, spec: JobSpec = SPEC) -> Job:
    job = jobs.accepted(next(iter(store.new_ids(1))), spec, 100.0)
    store.commit({job.id: job}, {job.id}, [Told(Kind.SUBMITTED, None, job)], 100.0)
    return job


def test_a_job_comes_back_as_it_was(path: str) -> None:
    store = Store(path)
    job = submitted(store)
    placed = jobs.running(jobs.placed(job, (Slot("gpu1", (0, 1)), Slot("gpu2"))), 101.0)
    ended = jobs.with_ending(placed, 0, Ending(code=3, text="x", ended=102.0))
    store.commit({job.id: ended}, set(), [], 102.0)
    store.close()
    assert Store(path).job(job.id) == ended


def test_only_unfinished_jobs_are_taken_up_after_a_restart(path: str) -> None:
    store = Store(path)
    first, second = submitted(store), submitted(store)
    stopped = jobs.stop_asked(first, 105.0)
    store.commit({first.id: stopped}, set(), [], 105.0)
    store.close()
    assert [job.id for job in Store(path).unfinished()] == [second.id]


def test_a_job_that_is_submitted_and_placed_in_one_step_is_written_once(path: str) -> None:
    store = Store(path)
    job = jobs.placed(jobs.accepted(1, SPEC, 100.0), (Slot("gpu1"),))
    store.commit({1: job}, {1}, [], 100.0)
    assert store.job(1) == job


def test_numbers_go_on_after_a_restart(path: str) -> None:
    store = Store(path)
    submitted(store)
    last = submitted(store).id
    store.close()
    assert submitted(Store(path)).id == last + 1


def test_a_step_is_written_whole_or_not_at_all(path: str) -> None:
    store = Store(path)
    job = submitted(store)
    other = jobs.accepted(job.id, SPEC, 100.0)  # the same number again: refused by the table
    with pytest.raises(sqlite3.IntegrityError):
        store.commit({job.id: other}, {job.id}, [Told(Kind.ENDED, None, other)], 100.0)
    assert [event.kind for event in store.journal.of_job(job.id)] == ["submitted"]
    assert [event.kind for event in store.journal.take_committed()] == ["submitted"]


def test_the_engine_keeps_its_name(path: str) -> None:
    store = Store(path)
    name = store.engine_id
    store.close()
    assert Store(path).engine_id == name


def test_an_environment_is_kept_once(path: str) -> None:
    store = Store(path)
    digest = store.remember_environment({"B": "2", "A": "1"})
    assert store.remember_environment({"A": "1", "B": "2"}) == digest
    assert store.environment(digest) == {"A": "1", "B": "2"}
    assert store.environment("unknown") is None


def test_machines_clusters_and_forwards_are_remembered(path: str) -> None:
    store = Store(path)
    store.remember_machine({"gpu1": b"[]"})
    store.remember_cluster("lab", b"{}")
    store.remember_forward(6006, 1, 16006)
    assert (store.machine("gpu1"), store.machine("gpu2")) == (b"[]", None)
    assert store.clusters() == {"lab": b"{}"}
    assert store.forwards() == [(6006, 1, 16006)]
    store.forget_forward(6006)
    assert store.forwards() == []


def test_the_store_is_for_its_owner_alone(path: str) -> None:
    Store(path).close()
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_a_store_of_a_newer_version_is_refused_with_a_way_out(path: str) -> None:
    Store(path).close()
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    db.close()
    with pytest.raises(EngineError, match="newer Towline"):
        Store(path)


def test_a_damaged_store_is_a_clear_error(path: str) -> None:
    Path(path).write_bytes(b"this is not a database" * 1000)
    with pytest.raises(EngineError, match="cannot open the store"):
        Store(path)


@pytest.mark.parametrize("old", sorted((Path(__file__).parents[1] / "compat").glob("store-*.sql")))
def test_an_old_store_always_opens(old: Path, path: str) -> None:
    db = sqlite3.connect(path)
    db.executescript(old.read_text())
    db.close()
    store = Store(path)
    jobs_found = [*store.ended(0.0, 100), *store.active()]
    assert [job.state for job in jobs_found] == [State.DONE, State.QUEUED]
    assert [job.id for job in store.unfinished()] == [2]
    for job in jobs_found:
        assert rebuild(job.spec, store.journal.of_job(job.id)) == job
        assert words(store.journal.of_job(job.id)[0]) == "submitted"


def test_two_threads_that_write_do_not_undo_each_other(path: str) -> None:
    store = Store(path)
    first = submitted(store)
    stop = threading.Event()

    def note() -> None:
        while not stop.is_set():
            store.results.note([Note(first, "/home", 1.0)])

    noting = threading.Thread(target=note)
    noting.start()
    try:
        ids = [submitted(store).id for _ in range(300)]
    finally:
        stop.set()
        noting.join()
    store.close()
    assert [job.id for job in Store(path).unfinished()] == [first.id, *ids]
