"""Following goes on over broken streams, other attempts and restarted Engines."""

import json
import threading

from cli.following import END, OnTerminal, held, stops_when_told
from cli.stub import Stub, answer, job, out, refusal, stream
from testbed.tow import Tow


def test_a_broken_stream_goes_on_where_it_was(tow: Tow, stub: Stub) -> None:
    stub.on("POST /v1/run", stream({"job": job()}, out("one\ntw"), broken=True))
    stub.on("GET /v1/jobs/12/log", stream({"job": job()}, out("o\nthree\n", 6), END))
    done = tow("run", "x")
    assert (done.returncode, done.stdout) == (0, "one\ntwo\nthree\n")
    (asked,) = stub.asked_of("GET /v1/jobs/12/log")
    assert json.loads(asked.query["from"]) == {"0.0.out": 6}
    assert asked.query["follow"] == "1"
    assert done.stderr.count("\n") == 1


def test_what_was_shown_is_not_shown_again_when_it_is_sent_again(tow: Tow, stub: Stub) -> None:
    stub.on("POST /v1/run", stream({"job": job()}, out("one\n"), broken=True))
    stub.on(
        "GET /v1/jobs/12/log",
        stream({"job": job()}, out("one\ntwo\n"), broken=True),
        stream({"job": job()}, out("three\n", 8), END),
    )
    assert tow("run", "x").stdout == "one\ntwo\nthree\n"


def test_the_output_of_the_next_attempt_is_shown_from_its_start(tow: Tow, stub: Stub) -> None:
    second = {"job": job(attempt=2)}
    frames = [{"job": job()}, out("first try\n"), second, out("second\n"), END]
    stub.on("POST /v1/run", stream(*frames))
    assert tow("run", "x").stdout == "first try\nsecond\n"


def test_a_next_attempt_that_nobody_announced_is_shown_too(tow: Tow, stub: Stub) -> None:
    stub.on("POST /v1/run", stream({"job": job()}, out("first try\n"), out("second\n"), END))
    assert tow("run", "x").stdout == "first try\nsecond\n"


def test_an_attempt_that_began_while_the_stream_was_broken_is_read_from_its_start(
    tow: Tow, stub: Stub
) -> None:
    stub.on("POST /v1/run", stream({"job": job()}, out("first try\n"), broken=True))
    stub.on(
        "GET /v1/jobs/12/log",
        stream({"job": job(attempt=2)}, out("cond\n", 2), END),
        stream({"job": job(attempt=2)}, out("second\n"), END),
    )
    assert tow("run", "x").stdout == "first try\nsecond\n"
    assert "from" not in stub.asked_of("GET /v1/jobs/12/log")[1].query


def test_a_submission_is_repeated_only_to_an_engine_that_recognises_it(
    tow: Tow, stub: Stub
) -> None:
    stub.on("POST /v1/run", stream(broken=True), stream({"job": job()}, END))
    stub.on("GET /v1/engine", answer({"pid": 1, "keys": True}))
    assert tow("run", "x").returncode == 0
    keys = [asked.headers["idempotency-key"] for asked in stub.asked_of("POST /v1/run")]
    assert len(keys) == 2 and keys[0] == keys[1]


def test_a_submission_that_may_have_been_accepted_is_not_repeated_blindly(
    tow: Tow, stub: Stub
) -> None:
    stub.on("POST /v1/run", stream(broken=True), stream({"job": job()}, END))
    stub.on("GET /v1/engine", answer({"pid": 1}))
    done = tow("run", "x")
    assert done.returncode == 1
    assert "before it said whether it accepted the job" in done.stderr
    assert len(stub.asked_of("POST /v1/run")) == 1


def test_attach_follows_from_the_start_and_exits_like_the_job(tow: Tow, stub: Stub) -> None:
    end = {"end": job(state="failed", exit_code=5)}
    stub.on("GET /v1/jobs/12/log", stream({"job": job()}, out("all\n"), end))
    done = tow("attach", "12")
    assert (done.returncode, done.stdout) == (5, "all\n")


def test_log_prints_what_there_is_and_succeeds(tow: Tow, stub: Stub) -> None:
    end = {"end": job(state="failed", exit_code=5)}
    stub.on("GET /v1/jobs/12/log", stream({"job": job()}, out("all\n"), end))
    done = tow("log", "--stdout", "--tail", "100", "12")
    assert (done.returncode, done.stdout, done.stderr) == (0, "all\n", "")
    query = stub.asked_of("GET /v1/jobs/12/log")[0].query
    assert query == {"follow": "0", "stream": "out", "lines": "100"}
    tow("log", "--tail", "64k", "12")
    assert stub.asked_of("GET /v1/jobs/12/log")[1].query["tail"] == "65536"
    assert tow("log", "--tail", "x", "12").returncode == 2


def test_log_of_a_job_that_waits_says_why_there_is_nothing(tow: Tow, stub: Stub) -> None:
    waits = job(state="queued")
    stub.on("GET /v1/jobs/12/log", stream({"job": waits}, {"end": waits}))
    stub.on("GET /v1/jobs/12/why", answer({"text": "number 2 of 5\nmore", "machines": []}))
    done = tow("log", "12")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "job 12 is queued: number 2 of 5\n"


def test_log_of_a_job_that_still_runs_ends_where_its_output_ends(tow: Tow, stub: Stub) -> None:
    stub.on("GET /v1/jobs/12/log", stream({"job": job()}, out("so far\n")))
    done = tow("log", "12")
    assert (done.returncode, done.stdout) == (0, "so far\n")


def test_a_login_that_nobody_can_type_is_told(tow: Tow, stub: Stub) -> None:
    login = {"machine": "gpu1", "target": "me@gpu1", "command": ["false"]}
    stub.on("POST /v1/run", stream({"job": job()}, {"login": login}, END))
    done = tow("run", "x")
    assert done.returncode == 0
    assert "type: tow login gpu1" in done.stderr


def test_a_refused_machine_without_a_terminal_says_which_command_to_type(
    tow: Tow, stub: Stub
) -> None:
    login = {"target": "me@gpu1", "command": ["false"]}
    stub.on("GET /v1/jobs", refusal("gpu1 wants a password", code="refused", exit=1, login=login))
    done = tow("status")
    assert done.returncode == 1
    assert "tow login me@gpu1" in done.stderr


QUESTION = "job 12 has not ended. [s]top it, [k]eep following, [d]etach?"


def test_ctrl_c_on_a_terminal_can_stop_the_job(tow: Tow, stub: Stub) -> None:
    held(stub, out("begun\n"))
    stops_when_told(stub)
    with OnTerminal(tow, "run", "x") as terminal:
        terminal.is_asked(QUESTION)
        terminal.types("what?\ns")
        terminal.sees("job 12 stopped")
        assert terminal.leaves() == 130
    assert stub.asked_of("POST /v1/jobs/stop")[0].json == {"ids": [12]}


def test_a_folder_that_takes_long_to_read_is_told_and_so_is_ctrl_c_meanwhile(
    tow: Tow, stub: Stub
) -> None:
    stub.on("POST /v1/run", stream(hold=threading.Event()))
    with OnTerminal(tow, "run", "x") as terminal:
        terminal.sees("reading this folder; .towignore and --exclude leave things out")
        terminal.interrupts()
        terminal.sees("interrupted; if the job was accepted by then, it goes on: tow status")
        assert terminal.leaves() == 130


def test_ctrl_c_on_a_terminal_can_be_taken_back(tow: Tow, stub: Stub) -> None:
    held(stub, out("begun\n"))
    stub.on("GET /v1/jobs/12/log", stream({"job": job()}, out("more\n", 6), END))
    with OnTerminal(tow, "run", "x") as terminal:
        terminal.is_asked(QUESTION)
        terminal.types("k")
        terminal.sees("job 12 done")
        assert terminal.leaves() == 0
    asked = stub.asked_of("GET /v1/jobs/12/log")[0]
    assert json.loads(asked.query["from"]) == {"0.0.out": 6}


def test_a_second_ctrl_c_detaches(tow: Tow, stub: Stub) -> None:
    held(stub, out("begun\n"))
    with OnTerminal(tow, "run", "x") as terminal:
        terminal.is_asked(QUESTION)
        terminal.interrupts()
        terminal.sees("detached; job 12 goes on: tow attach 12")
        assert terminal.leaves() == 130


def test_a_login_on_a_terminal_runs_ssh_and_dials_again(tow: Tow, stub: Stub) -> None:
    login = {"machine": "gpu1", "target": "me@gpu1", "command": ["true"]}
    stub.on("POST /v1/machines/redial", answer({}))
    stub.on("POST /v1/run", stream({"job": job()}, {"login": login}, END))
    with OnTerminal(tow, "run", "x") as terminal:
        terminal.sees("job 12 done")
        terminal.leaves()
    assert stub.asked_of("POST /v1/machines/redial")[0].json == {"machines": ["gpu1"]}


def test_how_long_a_job_has_waited_goes_on_being_shown_on_a_terminal_only(
    tow: Tow, stub: Stub
) -> None:
    queue = {"kind": "slurm", "number": "4711", "partition": "main", "since": 1000.0}
    waits = {"waits": {**queue, "reason": "Priority", "place": 3, "waiting": 12}}
    runs = {"job": job(queue=queue)}
    stub.on("POST /v1/run", *[stream({"job": job(state="queued")}, waits, runs, END)] * 2)
    done = tow("run", "x")
    assert done.stderr.splitlines()[0] == "job 12 · lab · Slurm 4711 · runs on gpu1"
    with OnTerminal(tow, "run", "x") as terminal:
        terminal.sees("job 12 · lab · Slurm 4711 · waits for")
        terminal.sees("runs on gpu1")
        assert terminal.leaves() == 0
    assert "number 3 of 12" in terminal.seen
