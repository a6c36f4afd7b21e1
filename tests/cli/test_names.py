"""Jobs and batches as people name them, and what each command does with a batch."""

import pytest

from cli.stub import Stub, answer, batch, frame, job, refusal, stream
from testbed.tow import Tow

SWEEP = {"batch": "sweep", "first": 12, "count": 4}


def test_a_name_is_looked_up_by_the_engine(tow: Tow, stub: Stub) -> None:
    stub.on("GET /v1/named", answer({"job": 7}))
    stub.on("GET /v1/jobs/7", answer(job(7)))
    stub.on("GET /v1/jobs/7/files", answer({"entries": []}))
    stub.on("GET /v1/jobs/7/why", answer({"text": "x"}))
    assert tow.json("show", "base line")["id"] == 7
    for command in ("ls", "why"):
        assert tow(command, "sweep.3").returncode == 0
    asked = [one.query["name"] for one in stub.asked_of("GET /v1/named")]
    assert asked == ["base line", "sweep.3", "sweep.3"]


def test_a_number_needs_no_look_up(tow: Tow, stub: Stub) -> None:
    stub.on("GET /v1/jobs/7", answer(job(7)))
    assert tow("show", "7").returncode == 0
    assert stub.asked_of("GET /v1/named") == []


@pytest.mark.parametrize("name", ["nothing", "-5", "12x", "5-1", "99999999999999999999"])
def test_a_job_that_is_not_there_is_an_error_for_people(tow: Tow, stub: Stub, name: str) -> None:
    stub.on("GET /v1/named", refusal(f"there is no job {name!r}", code="not_found"))
    done = tow("stop", "--", name)
    assert done.returncode == 2
    assert done.stderr.startswith("tow: ") and "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [("ls",), ("cat",), ("pull",), ("exec",), ("checkout",)])
def test_what_needs_one_job_says_how_to_name_one_of_a_batch(
    tow: Tow, stub: Stub, words: tuple[str, ...]
) -> None:
    stub.on("GET /v1/named", answer(SWEEP))
    more = () if words[0] in ("ls", "checkout") else ("x",)
    done = tow(*words, "sweep", *more)
    assert done.returncode == 2
    assert "sweep is a batch of 4 jobs" in done.stderr and "sweep.1" in done.stderr


def test_a_batch_can_be_named_where_a_job_can(tow: Tow, stub: Stub) -> None:
    done = batch(done=4)
    line = job(14, "done", line=3)
    stub.on("GET /v1/named", answer(SWEEP))
    stub.on("GET /v1/batches/sweep", answer({"batch": done, "jobs": [line]}))
    stub.on("GET /v1/batches/sweep/follow", stream(frame(view=done, over=True)))
    stub.on("GET /v1/jobs/14/log", stream({"job": line}, {"end": line}))
    stub.on("POST /v1/batches/sweep/stop", answer({"batch": done}))
    stub.on("POST /v1/batches/sweep/retry", answer({"batch": done, "retried": 2}))
    stub.on("POST /v1/batches/sweep/results", answer({"batch": done, "pending": 0}))
    assert tow("show", "sweep").stdout.startswith("batch sweep · done")
    assert "4 done" in tow("attach", "sweep").stdout
    assert tow("log", "--stdout", "sweep").returncode == 0
    assert stub.asked_of("GET /v1/jobs/14/log")[0].query["stream"] == "out"
    assert tow("stop", "sweep").stdout == "batch sweep stopping\n"
    assert tow("retry", "sweep").stdout == "batch sweep: 2 jobs again\n"
    assert "4 of 4 have ended" in tow("results", "sweep").stdout
    assert [one["name"] for one in tow.json("status", "sweep")["batches"]] == ["sweep"]


def test_why_of_a_batch_is_that_of_the_first_that_waits(tow: Tow, stub: Stub) -> None:
    waiting = {"batch": batch(queued=4), "jobs": [job(13, "queued", line=2)]}
    stub.on("GET /v1/named", answer(SWEEP))
    stub.on("GET /v1/batches/sweep", answer(waiting), answer({"batch": batch(done=4), "jobs": []}))
    stub.on("GET /v1/jobs/13/why", answer({"text": "lab is full", "machines": []}))
    assert tow("why", "sweep").stdout == "line 2, job 13: lab is full\n"
    assert tow("why", "sweep").stdout == "batch sweep is done: 4 done\n"


def test_what_cannot_be_asked_of_a_batch_is_refused(tow: Tow, stub: Stub) -> None:
    stub.on("GET /v1/named", answer(SWEEP))
    assert "for one job, e.g. sweep.1" in tow("log", "--tail", "5", "sweep").stderr
    assert "for one job, e.g. sweep.1" in tow("results", "--back", "x", "sweep").stderr


def test_stop_takes_numbers_ranges_and_all(tow: Tow, stub: Stub) -> None:
    stub.on("POST /v1/jobs/stop", answer({"jobs": [job(12, "stopping")]}))
    stub.on("GET /v1/jobs", answer({"jobs": [job(2), job(3, "queued")]}))
    assert tow("stop", "12", "14-16", "12").stdout == "job 12 stopping\n"
    assert tow.json("stop", "all")["jobs"][0]["id"] == 12
    asked = [asked.json["ids"] for asked in stub.asked_of("POST /v1/jobs/stop")]
    assert asked == [[12, 14, 15, 16], [2, 3]]
    assert stub.asked_of("GET /v1/jobs")[0].query == {"state": "active"}


def test_stopping_all_of_nothing_asks_nothing(tow: Tow, stub: Stub) -> None:
    stub.on("GET /v1/jobs", answer({"jobs": []}))
    assert tow("stop", "all").stdout == "no job is active\n"
    assert stub.asked_of("POST /v1/jobs/stop") == []


def test_one_number_that_is_nobodys_does_not_keep_the_others_from_being_stopped(
    tow: Tow, stub: Stub
) -> None:
    stub.on("POST /v1/jobs/stop", answer({"jobs": [job(1, "stopping")], "unknown": [99, 2]}))
    done = tow("stop", "1", "99", "1-2")
    assert (done.returncode, done.stdout) == (2, "job 1 stopping\n")
    assert done.stderr == "tow: there is no job 99\n"


@pytest.mark.parametrize("name", ["last", "all", "5", "14-20"])
def test_a_batch_is_not_called_what_means_other_jobs(tow: Tow, stub: Stub, name: str) -> None:
    done = tow("batch", "--name", name, "-", input="true\n")
    assert done.returncode == 2 and "means other jobs" in done.stderr
