"""`tow run`: what is asked, what is shown, what it exits with."""

import json
import os
import signal
from typing import Any

import pytest

from cli.stub import Stub, answer, job, out, refusal, stream
from testbed.tow import Tow
from testbed.waiting import wait_until


def ended(state: str = "done", **more: Any) -> dict[str, Any]:
    return {"end": job(state=state, **more)}


def test_output_and_errors_are_kept_apart_and_the_exit_code_is_the_commands_own(
    tow: Tow, stub: Stub
) -> None:
    frames = out("hello\n"), out("careful\n", stream="err")
    stub.on("POST /v1/run", stream({"job": job()}, *frames, ended("failed", exit_code=3)))
    done = tow("run", "python", "train.py")
    assert done.returncode == 3
    assert done.stdout == "hello\n"
    assert done.stderr == (
        "careful\n✗ job 12 failed: exit code 3 after 3.2 s on gpu1 · tow log 12\n"
    )


def test_a_good_end_is_told_in_one_line(tow: Tow, stub: Stub) -> None:
    stub.on("POST /v1/run", stream({"job": job()}, ended()))
    done = tow("run", "true")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "✓ job 12 done in 3.2 s on gpu1 · files: tow ls 12\n"


@pytest.mark.parametrize(
    ("state", "code", "expected"),
    [
        ("failed", 137, 137),
        ("failed", -9, 137),
        ("failed", None, 1),
        ("failed", 0, 1),
        ("stopped", None, 130),
        ("stopped", 143, 143),
        ("lost", None, 1),
    ],
)
def test_exit_code_of_every_kind_of_end(
    tow: Tow, stub: Stub, state: str, code: int | None, expected: int
) -> None:
    stub.on("POST /v1/run", stream({"job": job()}, ended(state, exit_code=code)))
    assert tow("run", "x").returncode == expected


def test_arguments_arrive_exactly_as_typed(tow: Tow, stub: Stub) -> None:
    stub.on("POST /v1/run", stream({"job": job()}, ended()))
    odd = ["a b", "it's", '"q"', "$HOME", "new\nline", "雪", "", "--json", "-d", "--", "*"]
    tow("run", "-c", "lab", "prog", *odd)
    (asked,) = stub.asked_of("POST /v1/run")
    assert asked.json["argv"] == ["prog", *odd]
    assert asked.json["cluster"] == "lab"
    assert asked.json["cwd"] == str(tow.folder)


def test_an_argument_that_is_not_utf8_is_carried(tow: Tow, stub: Stub) -> None:
    stub.on("POST /v1/run", stream({"job": job()}, ended()))
    name = os.fsdecode(b"caf\xe9.txt")
    assert tow("run", "cat", name, env={"ODD": name}).returncode == 0
    assert stub.asked_of("POST /v1/run")[0].json["argv"] == ["cat", name]


def test_leading_dashes_are_dropped_once(tow: Tow, stub: Stub) -> None:
    stub.on("POST /v1/run", stream({"job": job()}, ended()))
    tow("run", "--gpus", "2", "--", "-odd", "--", "x")
    assert stub.asked_of("POST /v1/run")[0].json["argv"] == ["-odd", "--", "x"]


def test_options_are_passed_on_as_typed(tow: Tow, stub: Stub) -> None:
    stub.on("POST /v1/run", stream({"job": job()}, ended()))
    words = ["--cpus", "4", "--mem", "10G", "--gpus", "2:gtx1070", "--exclusive", "-t", "T"]
    words += ["--time", "2h", "--retries", "1"]
    words += ["--priority=-5", "--setup", "source env", "-r[]", "-eA=b=c", "-e", "HERE", "true"]
    tow("run", *words, env={"HERE": "from here"})
    asked = stub.asked_of("POST /v1/run")[0].json
    expected = {
        "cpus": "4",
        "mem": "10G",
        "gpus": "2:gtx1070",
        "exclusive": True,
        "title": "T",
        "time": "2h",
        "retries": "1",
        "priority": "-5",
        "setup": "source env",
        "request": "[]",
        "env": {"A": "b=c", "HERE": "from here"},
        "argv": ["true"],
    }
    assert {name: asked[name] for name in expected} == expected


def test_a_variable_that_is_not_here_is_refused(tow: Tow, stub: Stub) -> None:
    done = tow("run", "-e", "NOT_SET_ANYWHERE", "true")
    assert done.returncode == 2
    assert "there is no variable NOT_SET_ANYWHERE here" in done.stderr
    assert stub.asked == []


def test_lines_of_several_processes_have_their_process_in_front(tow: Tow, stub: Stub) -> None:
    frames = [
        out("one\ntw", label="0.0"),
        out("eins\n", label="0.1", process=1),
        out("o\n", 6, label="0.0"),
        out("unended", 5, label="0.1", process=1),
    ]
    stub.on("POST /v1/run", stream({"job": job()}, *frames, ended()))
    done = tow("run", "-r", "2:[]", "x")
    assert done.stdout == "[0.0] one\n[0.1] eins\n[0.0] two\n[0.1] unended\n"


def test_binary_output_passes_unchanged(tow: Tow, stub: Stub) -> None:
    import subprocess

    blob = bytes(range(256)) * 3000
    stub.on("POST /v1/run", stream({"job": job()}, out(blob), ended()))
    done = subprocess.run(
        [*tow.program, "run", "x"], env=tow.env, cwd=tow.folder, capture_output=True, timeout=60
    )
    assert done.stdout == blob


def test_a_job_that_waits_says_so_once_per_reason(tow: Tow, stub: Stub) -> None:
    note = {"note": "waiting: gpu1 is full"}
    stub.on("POST /v1/run", stream({"job": job(state="queued")}, note, note, ended()))
    done = tow("run", "x")
    assert done.stderr.splitlines()[0] == "job 12 · lab · waiting: gpu1 is full"
    assert len(done.stderr.splitlines()) == 2


def test_detached_prints_the_number_and_returns(tow: Tow, stub: Stub) -> None:
    stub.on("POST /v1/jobs", answer({"jobs": [job()]}))
    assert tow("run", "-d", "x").stdout == "job 12\n"
    assert tow.json("run", "-d", "x")["id"] == 12
    assert stub.asked_of("POST /v1/jobs")[0].json["jobs"][0]["argv"] == ["x"]


def test_json_prints_one_document_per_frame_and_nothing_else(tow: Tow, stub: Stub) -> None:
    frames = out("hi\n"), out(b"\xff\x00", 3)
    stub.on("POST /v1/run", stream({"job": job()}, *frames, {"note": "n"}, ended()))
    done = tow("run", "--json", "x")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [next(iter(line)) for line in lines] == ["job", "stream", "stream", "note", "end"]
    assert lines[1]["text"] == "hi\n"
    assert lines[2]["base64"] == "/wA="
    assert done.stderr == ""


def test_dry_run_shows_where_it_would_go(tow: Tow, stub: Stub) -> None:
    plan = {
        "cluster": "lab",
        "request": "[gpu]",
        "placement": [{"machine": "gpu1", "gpus": [1]}],
        "why": "",
        "command": ["python", "a b.py"],
        "files": 2,
        "bytes": 2048,
        "largest": [["data.bin", 2000]],
        "env": ["SEED"],
    }
    stub.on("POST /v1/plan", answer(plan))
    shown = tow("run", "--dry-run", "-e", "SEED=1", "python", "a b.py").stdout
    for text in (
        "python 'a b.py'",
        "at once on gpu1 (GPU 1)",
        "2 files, 2.0 KB",
        "data.bin",
        "SEED",
    ):
        assert text in shown
    assert tow.json("run", "--dry-run", "x") == plan


def test_what_the_engine_refuses_is_told_with_its_hint(tow: Tow, stub: Stub) -> None:
    stub.on("POST /v1/run", refusal("there is no cluster 'x'", hint="clusters: local"))
    done = tow("run", "-c", "x", "true")
    assert done.returncode == 2
    assert done.stderr == "tow: there is no cluster 'x'\n  clusters: local\n"


def test_an_error_in_the_stream_is_told_the_same_way(tow: Tow, stub: Stub) -> None:
    error = {"error": {"code": "host", "text": "gpu1 is full", "hint": "clean it"}, "exit": 1}
    stub.on("POST /v1/run", stream({"job": job()}, error))
    done = tow("run", "true")
    assert (done.returncode, done.stderr) == (1, "tow: gpu1 is full\n  clean it\n")


def test_ctrl_c_in_a_pipe_detaches_and_says_how_to_come_back(tow: Tow, stub: Stub) -> None:
    import threading

    stub.on("POST /v1/run", stream({"job": job()}, out("begun\n"), hold=threading.Event()))
    running = tow.popen("run", "x")
    assert running.stdout is not None and running.stdout.readline() == "begun\n"
    running.send_signal(signal.SIGINT)
    _, told = running.communicate(timeout=20)
    assert running.returncode == 130
    assert told == "detached; job 12 goes on: tow attach 12\n"


def test_a_closed_pipe_ends_tow_quietly_and_not_the_job(tow: Tow, stub: Stub) -> None:
    import threading

    hold = threading.Event()
    stub.on("POST /v1/run", stream({"job": job()}, out("y\n" * 200_000), hold=hold))
    running = tow.popen("run", "x")
    assert running.stdout is not None and running.stdout.readline() == "y\n"
    running.stdout.close()
    wait_until(lambda: running.poll() is not None)
    assert running.returncode == 141
    assert running.stderr is not None and running.stderr.read() == ""
    assert [asked.path for asked in stub.asked] == ["/v1/run"]
