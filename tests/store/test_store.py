"""What is written is there after anything; old stores open; newer ones are refused."""

import os
import sqlite3
import stat
import threading
from pathlib import Path

import pytest

from towline.core import jobs
from towline.engine.reasons import reason_words
from towline.engine.wording import words
from towline.errors import EngineError, NotFound
from towline.model.batch import Batch, Line
from towline.model.job import Ending, Job, JobSpec, State
from towline.model.journal import Kind, Told, rebuild
from towline.model.machine import Slot
from towline.model.odd_text import keepable
from towline.model.principal import Principal
from towline.model.reason import STOP_ASKED, STOPPED, STOPPED_WAITING, Reason
from towline.model.results import PENDING, at_home, not_fetched
from towline.store.journal import Note
from towline.store.migrations import MIGRATIONS
from towline.store.store import Store

COMPAT = Path(__file__).parents[1] / "compat"
FIRST_WITH_BATCHES = 3
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


@pytest.mark.parametrize("old", sorted(COMPAT.glob("store-*.sql")), ids=lambda path: path.stem)
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
    assert list(store.submission("me", "k")) == [1, 2]
    if int(old.stem.removeprefix("store-")) >= FIRST_WITH_BATCHES:
        batch = store.batches.named("me", "sweep")
        assert list(store.submission("me", "b")) == [batch.first, batch.last] == [3, 4]
        assert [job.spec.argv for job in store.waiting_of(3, 4, 10)] == [
            ("echo", "1"),
            ("echo", "2"),
        ]
        assert store.batches.unfinished() == [batch]


def test_there_is_a_store_of_every_format_that_ever_was() -> None:
    known = {int(path.stem.removeprefix("store-")) for path in COMPAT.glob("store-*.sql")}
    assert known == set(range(1, len(MIGRATIONS) + 1)), "python tests/compat/make.py makes the last"


def test_keys_and_names_of_batches_belong_to_their_owners(path: str) -> None:
    store = Store(path)
    for owner in ("anna", "ben"):
        base = JobSpec(argv=(), cluster="lab", owner=owner)
        batch = Batch("sweep", base, store.new_ids(1)[0], 1, 100.0)
        store.batches.add(batch, [Line(argv=("echo", owner), number=1)], "key")
    assert list(store.submission("anna", "key")) == [1] and not store.submission("eve", "key")
    assert [job.spec.argv for job in store.jobs_of([1, 2])] == [("echo", "anna"), ("echo", "ben")]
    ben, eve, root = Principal("ben"), Principal("eve"), Principal("root", administrator=True)
    assert store.batches.meant(ben, "sweep").first == 2
    # An administrator without such a batch means the newest.
    assert store.batches.meant(root, "sweep").first == 2
    with pytest.raises(NotFound, match="no batch 'sweep'"):
        store.batches.meant(eve, "sweep")
    store.forget([1], [("anna", "sweep")])
    assert [batch.base.owner for batch in Store(path).batches.all()] == ["ben"]


#: What version 7 wrote as sentences: where the results of a job stand, what was said last of it.
RESULTS = {
    1: (at_home("/home/me/job_results/1"), "results: /home/me/job_results/1"),
    2: (PENDING, "failed: exit code 3"),
    4: (not_fetched("no space left"), "results: not fetched: no space left"),
    5: (
        at_home(keepable("/home/me/\udcff/job_results/5")),
        "results: /home/me/\udcff/job_results/5",
    ),
}
#: And why jobs waited, or ended as they did.
REASONS = {
    2: (Reason("exit_code", code=3), "exit code 3"),
    3: (STOPPED_WAITING, "stopped before it started"),
    4: (Reason("signal", signal=9), "killed by signal 9 (SIGKILL)"),
    6: (STOP_ASKED, "stop was asked for"),
    8: (Reason("line_ended", line=3, state="failed"), "stopped because line 3 failed"),
    9: (STOPPED, "stopped"),
}
#: What was said in so many ways that it stays as it was said.
AS_TOLD = {
    7: "attempt 1 on gpu1: exit code 1; trying again",
    11: "set-up failed with exit code 1: no such module",
    12: "gpu1 was restarted\nask for it again: tow retry",
}


def test_what_an_older_version_wrote_as_sentences_is_data_and_reads_the_same(path: str) -> None:
    db = sqlite3.connect(path)
    db.executescript((COMPAT / "sentences-7.sql").read_text())
    db.close()
    store = Store(path)
    for job in store.jobs_between(1, 12):
        events = store.journal.of_job(job.id)
        assert rebuild(job.spec, events) == job
        if job.id in RESULTS:
            assert (job.results, words(events[-1])) == RESULTS[job.id]
        if job.id in REASONS:
            assert (job.reason, reason_words(job.reason)) == REASONS[job.id]
        if job.id in AS_TOLD:
            assert job.reason == Reason("told", AS_TOLD[job.id])
            assert reason_words(job.reason) == AS_TOLD[job.id]
    assert words(store.journal.of_job(9)[-1]) == "stopped"
    assert words(store.journal.of_job(1)[-2]).startswith("kept a.txt as it was")
    assert store.results.wanted() == [2, 9]


def test_two_threads_that_write_do_not_undo_each_other(path: str) -> None:
    store = Store(path)
    first = submitted(store)
    stop = threading.Event()

    def note() -> None:
        while not stop.is_set():
            store.results.note([Note(first, at_home("/home"), 1.0)])

    noting = threading.Thread(target=note)
    noting.start()
    try:
        ids = [submitted(store).id for _ in range(300)]
    finally:
        stop.set()
        noting.join()
    store.close()
    assert [job.id for job in Store(path).unfinished()] == [first.id, *ids]
