"""Batches that are there already: gone on with, listed, shown, stopped, started again."""

import time
from pathlib import Path
from typing import Any

import pytest

from cli.stub import Stub, answer, batch, frame, job, out, stream
from testbed.tow import Tow
from towline.cli.batch.actions import parser_of
from towline.cli.commands.batch import ACTIONS
from towline.model.lines import as_name
from towline.workspace.batch_ask import batch_name

SUBMIT, FOLLOW = "POST /v1/batches", "GET /v1/batches/sweep/follow"
ALL_DONE = batch(done=4)


def write(tow: Tow, text: str) -> None:
    (tow.folder / "sweep.txt").write_text(text)


def earlier(tow: Tow, stub: Stub, *lines: str, name: str = "sweep", **more: Any) -> dict[str, Any]:
    """The Engine has a batch of these lines, submitted from this folder."""
    more = {"count": len(lines), "folder": str(tow.folder), "seq": 40, **more}
    view = batch(name, **more)
    jobs = [job(12 + n, command=["bash", "-c", line]) for n, line in enumerate(lines)]
    stub.on(f"GET /v1/batches/{name}", answer({"batch": view, "jobs": jobs}))
    return view


def test_resume_starts_again_what_was_lost_or_stopped(tow: Tow, stub: Stub) -> None:
    view = earlier(tow, stub, "a", "b", done=1, failed=1)
    stub.on("GET /v1/batches", answer({"batches": [batch(folder="/elsewhere"), view]}))
    stub.on("POST /v1/batches/sweep/retry", answer({"batch": view, "retried": 1}))
    stub.on(FOLLOW, stream(frame(view=view, over=True)))
    write(tow, "# a comment more changes nothing\na\nb\n")
    done = tow("batch", "--resume", "sweep.txt")
    assert done.returncode == 1
    assert "1 done before, 1 job again, with the files as they were submitted" in done.stderr
    tow("batch", "--rerun-failed", "sweep.txt")
    states = [one.json["states"] for one in stub.asked_of("POST /v1/batches/sweep/retry")]
    undone = ["lost", "stopped", "skipped"]
    assert states == [undone, [*undone, "failed"]]
    assert stub.asked_of(FOLLOW)[0].query["since"] == "40"
    assert stub.asked_of("GET /v1/batches")[0].query == {"all": "1"}
    assert stub.asked_of(SUBMIT) == []


def test_resume_finds_the_batch_whose_name_got_a_number(tow: Tow, stub: Stub) -> None:
    mine = earlier(tow, stub, "a", name="sweep-2", done=1)
    other = earlier(tow, stub, "x", name="sweep-77", done=1)
    stub.on("GET /v1/batches", answer({"batches": [mine, batch("sweep-x"), other]}))
    stub.on("POST /v1/batches/sweep-2/retry", answer({"batch": mine, "retried": 0}))
    write(tow, "a\n")
    assert tow("batch", "--resume", "-d", "sweep.txt").stdout == "batch sweep-2\n"


def test_resume_of_what_was_never_submitted_submits_it(tow: Tow, stub: Stub) -> None:
    stub.on(SUBMIT, answer({"batch": ALL_DONE}))
    write(tow, "true\n")
    assert tow("batch", "--resume", "-d", "sweep.txt").stdout == "batch sweep\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a\n\nB\nc\n", "sweep.txt, line 3 was another command in batch sweep: 'b'"),
        ("a\nb\nc\nd\n", "sweep.txt, line 4 is not in batch sweep"),
        ("a\nb\n", "sweep.txt has 2 commands, but batch sweep has 3"),
    ],
)
def test_resume_of_a_changed_file_says_which_line_and_does_nothing(
    tow: Tow, stub: Stub, text: str, told: str
) -> None:
    view = earlier(tow, stub, "a", "b", "c", done=3)
    stub.on("GET /v1/batches", answer({"batches": [view]}))
    write(tow, text)
    done = tow("batch", "--resume", "sweep.txt")
    assert done.returncode == 2
    assert told in done.stderr
    assert "--name" in done.stderr and "tow batch retry sweep" in done.stderr
    assert {one.method for one in stub.asked} == {"GET"}


def test_batches_are_listed(tow: Tow, stub: Stub) -> None:
    assert tow("batch").stdout == "no batches yet: tow batch FILE starts one\n"
    views = [batch(running=1, queued=1, done=2, rate=2.0, eta_s=1.2), batch("old", done=4)]
    stub.on("GET /v1/batches", answer({"batches": views}))
    lines = tow("batch").stdout.splitlines()
    assert lines[0].split() == ["BATCH", "STATE", "PROGRESS", "CLUSTER", "TIME", "JOBS"]
    assert lines[1].startswith("sweep  running  █████░░░░░ 2 of 4")
    assert lines[1].endswith("1 running, 1 waiting, 2 done · 2.0/s · 1 s left")
    assert lines[2].startswith("old    done     ██████████ 4 of 4")
    assert tow.json("batch") == tow.json("batch", "list") == {"batches": views}
    tow("batch", "list", "--all")
    assert stub.asked_of("GET /v1/batches")[-1].query == {"all": "1"}


def test_show_tells_how_far_it_is_and_what_failed(tow: Tow, stub: Stub) -> None:
    view = batch(done=1, failed=1, running=2, max_parallel=2, machines={"h1": {"running": 2}})
    failed = job(13, "failed", line=7, title="cmd 7", exit_code=3, machines=["h1"])
    stub.on("GET /v1/batches/sweep", answer({"batch": view, "jobs": [failed]}))
    shown = tow("batch", "show", "sweep").stdout
    assert shown.startswith("batch sweep · running · ██████████░░░░░░░░░░ 2 of 4\n")
    assert "2 running, 1 done, 1 failed (12 to 15)" in shown
    assert "7     13   failed  h1        cmd 7    exit code 3" in shown
    assert shown.endswith("to follow it: tow batch show -f sweep\n")
    tow("batch", "show", "--state", "done", "-n", "5", "sweep")
    assert stub.asked_of("GET /v1/batches/sweep")[-1].query == {"state": "done", "limit": "5"}
    assert tow.json("batch", "show", "sweep")["batch"] == view


def test_show_can_follow_from_now_on(tow: Tow, stub: Stub) -> None:
    stub.on("GET /v1/batches/sweep", answer({"batch": batch(running=4, seq=33), "jobs": []}))
    stub.on(FOLLOW, stream(frame(view=batch(done=3, failed=1), over=True)))
    assert tow("batch", "show", "-f", "sweep").returncode == 1
    assert stub.asked_of(FOLLOW)[0].query == {"since": "33"}


def test_log_prints_the_output_of_all_jobs_or_of_some_lines(tow: Tow, stub: Stub) -> None:
    jobs = [job(12, line=2), job(13, line=5), job(14, line=6)]
    stub.on("GET /v1/batches/sweep", answer({"batch": batch(count=3), "jobs": jobs[::-1]}))
    for number in (12, 13, 14):
        stub.on(f"GET /v1/jobs/{number}/log", stream({"job": job(number)}, out(f"{number}\n")))
    assert tow("batch", "log", "sweep").stdout == "12\n13\n14\n"
    assert tow("batch", "log", "--stdout", "sweep", "2", "6-9").stdout == "12\n14\n"
    assert stub.asked_of("GET /v1/jobs/12/log")[-1].query == {"follow": "0", "stream": "out"}
    tow("batch", "log", "--state", "failed", "sweep")
    assert stub.asked_of("GET /v1/batches/sweep")[-1].query == {"state": "failed"}
    assert tow("batch", "log", "sweep", "6-999999999999999").stdout == "14\n"
    for lines in ("77", "x", "5-", "²"):
        assert tow("batch", "log", "sweep", lines).returncode == 2


def test_log_says_what_is_no_longer_there(tow: Tow, stub: Stub) -> None:
    jobs = [job(12, line=1)]
    stub.on("GET /v1/batches/sweep", answer({"batch": batch(count=1), "jobs": jobs}))
    gone = {"note": "its output is no longer on its machine"}
    stub.on("GET /v1/jobs/12/log", stream({"job": job(12)}, gone, {"end": job(12, "done")}))
    done = tow("batch", "log", "sweep")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "job 12 · lab · its output is no longer on its machine\n"


def test_stop_retry_and_results_are_asked_of_the_engine(tow: Tow, stub: Stub) -> None:
    view = batch(stopping=1, done=3, folder=str(tow.folder))
    stub.on("GET /v1/batches", answer({"batches": [batch("a"), view]}))
    stub.on("POST /v1/batches/sweep/stop", answer({"batch": view}))
    stub.on("POST /v1/batches/sweep/retry", answer({"batch": view, "retried": 2}))
    stub.on("POST /v1/batches/sweep/results", answer({"batch": ALL_DONE | view, "pending": 1}))
    assert tow("batch", "stop", "last").stdout == "batch sweep: 1 running, 3 done\n"
    assert tow("batch", "retry", "sweep").stdout == "batch sweep: 2 jobs again\n"
    assert tow.json("batch", "retry", "--state", "lost", "sweep")["retried"] == 2
    states = [one.json["states"] for one in stub.asked_of("POST /v1/batches/sweep/retry")]
    assert states == [["failed", "lost", "stopped", "skipped"], ["lost"]]
    done = tow("batch", "results", "sweep")
    assert done.stdout == "3 of 4 have ended; what they made is in job_results/sweep.*\n"
    assert "not home yet: 1 job" in done.stderr


def test_lines_of_a_batch_are_named_with_commas_or_spaces(tow: Tow, stub: Stub) -> None:
    lines = [job(10 + n, "done", line=n, title=f"cmd {n}") for n in range(1, 9)]
    stub.on("GET /v1/batches/sweep", answer({"batch": ALL_DONE, "jobs": lines}))
    for number in (13, 15, 17):
        ended = job(number, "done")
        stub.on(
            f"GET /v1/jobs/{number}/log", stream({"job": ended}, out(f"{number}\n"), {"end": ended})
        )
    assert tow("batch", "log", "sweep", "3,5", "7").stdout == "13\n15\n17\n"


def test_stopping_all_stops_batches_too(tow: Tow, stub: Stub) -> None:
    stub.on("GET /v1/jobs", answer({"jobs": []}))
    stub.on("GET /v1/batches", answer({"batches": [batch("old", done=4), batch(running=4)]}))
    stub.on("POST /v1/batches/sweep/stop", answer({"batch": batch(stopping=4)}))
    assert tow("stop", "all").stdout == "batch sweep stopping\n"


def test_status_has_one_row_for_a_batch(tow: Tow, stub: Stub) -> None:
    now = time.time()
    view = batch(
        count=120,
        running=3,
        queued=60,
        done=56,
        failed=1,
        rate=5.9,
        eta_s=70.0,
        submitted=now - 62,
        machines={"h1": {"running": 2}, "h2": {"running": 1}},
    )
    stub.on("GET /v1/jobs", answer({"jobs": [job(9, "done"), job(200, "queued")]}))
    stub.on("GET /v1/batches", answer({"batches": [view]}))
    lines = tow("status").stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["9", "batch", "200"]
    assert lines[2].split()[1:6] == ["running", "sweep", "lab", "h1,", "h2"]
    assert lines[2].endswith("████░░░░░░ 57 of 120, 1 failed · 5.9/s · 1 min 10 s left")
    assert tow.json("status")["batches"] == [view]
    assert tow.json("status", "-c", "other")["batches"] == []
    assert tow.json("status", "--state", "running")["batches"] == [view]
    assert tow.json("status", "--state", "done")["batches"] == []


@pytest.mark.parametrize("text", ["_x", "a b/c", "...", "雪-1", "x" * 70, "a" * 59 + "/b", "é"])
def test_the_engine_calls_a_batch_what_we_call_it(text: str) -> None:
    assert (as_name(text) or "batch") == batch_name(text)[:60]


@pytest.mark.parametrize("action", ACTIONS)
def test_every_word_of_its_own_has_help_and_is_documented(
    action: str, capfd: pytest.CaptureFixture[str]
) -> None:
    parser = parser_of(action)
    assert all(option.help for option in parser._actions)
    with pytest.raises(SystemExit):
        parser.read(["--help"])
    shown = capfd.readouterr().out
    assert shown.startswith(f"usage: tow batch {action}") and f"  tow batch {action}" in shown
    page = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()
    (row,) = [line for line in page.splitlines() if line.startswith(f"| `tow batch {action}")]
    flags = {flag for option in parser._actions for flag in option.option_strings[:1]}
    missing = [flag for flag in flags - {"-h", "--json"} if f"`{flag}" not in row]
    assert missing == []
