"""`tow wait`, and what `tow run` and `tow retry` say of chains."""

import json
from typing import Any

from cli.stub import Answer, Stub, answer, job
from testbed.tow import Tow


def a_batch(name: str, **counts: int) -> dict[str, Any]:
    return {
        "name": name,
        "count": sum(counts.values()),
        "counts": counts,
        "submitted": 1.0,
        "ended": 2.0,
        "home": True,
    }


def events_of(*told: dict[str, Any]) -> Answer:
    whole = {"at": 1.0, "owner": "me", "batch": "", "attempt": 1, "machine": "", "text": ""}
    lines = [json.dumps({**whole, "seq": n, **one}) for n, one in enumerate(told, 1)]
    body = "".join(f"data: {line}\n\n" for line in lines)
    return Answer(body=body.encode(), headers={"Towline-Seq": "0"})


def test_wait_ends_with_zero_only_when_all_ended_well(tow: Tow, stub: Stub) -> None:
    stub.on("GET /v1/events", events_of({"job": 12, "kind": "ended", "data": {"state": "done"}}))
    stub.on("GET /v1/named", answer({"batch": "sweep", "first": 1, "count": 2}))
    stub.on("GET /v1/jobs/12", answer(job(12, "running")), answer(job(12, "done", exit_code=0)))
    stub.on("GET /v1/batches/sweep", answer({"batch": a_batch("sweep", done=2), "jobs": []}))
    done = tow("wait", "12", "sweep")
    assert (done.returncode, "job 12 done" in done.stderr) == (0, True), done.stderr
    stub.on("GET /v1/jobs/13", answer(job(13, "failed", exit_code=3)))
    stub.on("GET /v1/jobs/14", answer(job(14, "skipped", reason="job 13 failed")))
    assert tow("wait", "13").returncode == 3
    both = tow("wait", "13", "14")
    assert both.returncode == 1
    assert "job 14 skipped: job 13 failed" in both.stderr
    assert tow("wait", "--any", "13", "14").returncode == 3


def test_wait_gives_up_after_its_time(tow: Tow, stub: Stub) -> None:
    stub.on("GET /v1/events", Answer(headers={"Towline-Seq": "0"}))
    stub.on("GET /v1/jobs/12", answer(job(12, "running")))
    late = tow("wait", "--timeout", "0.2s", "12")
    assert (late.returncode, late.stderr) == (124, "tow: not ended after 0.2s: 12\n")


def test_retry_says_what_was_skipped_because_of_it(tow: Tow, stub: Stub) -> None:
    views = [job(12, "queued"), job(13, "waiting", reason="waits for job 12 (queued)")]
    stub.on("POST /v1/jobs/retry", answer({"jobs": views, "skipped": ["14", "sweep"]}))
    again = tow("retry", "12", "13")
    assert again.stdout == "job 12 queued\njob 13 waiting: waits for job 12 (queued)\n"
    assert "tow retry 14 sweep" in again.stderr


def test_run_names_what_must_have_ended_first(tow: Tow, stub: Stub) -> None:
    stub.on("POST /v1/jobs", answer({"jobs": [job(14, "waiting")]}))
    words = ("--after", "12,13", "--after-any", "sweep", "--after-failed", "x", "--after", "9")
    assert tow("run", "-d", *words, "true").stdout == "job 14\n"
    ask = stub.asked_of("POST /v1/jobs")[0].json["jobs"][0]
    assert (ask["after"], ask["after_any"]) == (["12", "13", "9"], ["sweep"])
    assert ask["after_failed"] == ["x"]
