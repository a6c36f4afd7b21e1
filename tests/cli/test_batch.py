"""`tow batch`: what it asks of the Engine, and what it prints until the batch has ended."""

import json
import signal
import threading
from typing import Any

import pytest

from cli.stub import Stub, answer, batch, event, frame, job, out, refusal, stream
from testbed.tow import Tow
from towline.cli.commands.batch import ACTIONS

SUBMIT, FOLLOW = "POST /v1/batches", "GET /v1/batches/sweep/follow"
ALL_DONE = batch(done=4)


def write(tow: Tow, text: str, name: str = "sweep.txt") -> str:
    (tow.folder / name).write_text(text)
    return name


@pytest.fixture
def accepting(stub: Stub) -> Stub:
    """An Engine that accepts a batch and has done it at once."""
    stub.on(SUBMIT, answer({"batch": batch(queued=4)}))
    stub.on(FOLLOW, stream(frame(view=ALL_DONE, over=True)))
    return stub


def asked(stub: Stub) -> dict[str, Any]:
    found: dict[str, Any] = stub.asked_of(SUBMIT)[0].json
    return found


def test_every_line_of_a_file_is_a_command_for_bash(tow: Tow, accepting: Stub) -> None:
    write(tow, "# comment\necho 'a b' | wc\n\npython x.py \\\n  --lr 1\n")
    assert tow("batch", "sweep.txt").returncode == 0
    ask = asked(accepting)
    assert ask["name"] == "sweep"
    assert ask["lines"] == [
        {"argv": ["bash", "-c", "echo 'a b' | wc"], "title": "echo 'a b' | wc", "number": 2},
        {
            "argv": ["bash", "-c", "python x.py \\\n  --lr 1"],
            "title": "python x.py --lr 1",
            "number": 4,
        },
    ]
    assert ask["base"]["cwd"] == str(tow.folder) and ask["base"]["argv"] == []
    assert (ask["max_parallel"], ask["fail_fast"]) == (0, False)
    assert len(accepting.asked_of(SUBMIT)[0].headers["idempotency-key"]) == 24


def test_commands_may_come_from_stdin(tow: Tow, accepting: Stub) -> None:
    assert tow("batch", "--name", "night", "-", input="echo a\necho b\n").returncode == 0
    ask = asked(accepting)
    assert (ask["name"], len(ask["lines"])) == ("night", 2)


def test_options_of_run_hold_for_every_job(tow: Tow, accepting: Stub) -> None:
    write(tow, "true\n")
    words = "-c lab --gpus 1 --mem 8G --time 2h --retries 2 --priority 5 --setup s -e A=1"
    more = "--include i --exclude x --back b --no-results --exclusive --sandbox --max-parallel 3"
    more += " --fail-fast"
    # Options may stand behind the file, too.
    assert tow("batch", *words.split(), "sweep.txt", *more.split()).returncode == 0
    ask = asked(accepting)
    expected = {"cluster": "lab", "gpus": "1", "mem": "8G", "time": "2h", "retries": "2"}
    expected |= {"priority": "5", "setup": "s", "env": {"A": "1"}, "include": ["i"]}
    expected |= {"exclude": ["x"], "back": ["b"], "results": False, "exclusive": True}
    expected |= {"sandbox": True}
    assert expected.items() <= ask["base"].items()
    assert (ask["max_parallel"], ask["fail_fast"]) == (3, True)


def test_a_matrix_fills_the_command_in_without_a_shell(tow: Tow, accepting: Stub) -> None:
    done = tow("batch", "--matrix", "lr=1,2", "m=a b", "--", "t", "--lr={lr}", "{m}", "{{x}}", "-d")
    assert done.returncode == 0
    assert [line["argv"] for line in asked(accepting)["lines"]] == [
        ["t", "--lr=1", "a b", "{x}", "-d"],
        ["t", "--lr=2", "a b", "{x}", "-d"],
    ]
    assert asked(accepting)["lines"][0]["title"] == "lr=1 m=a b"


def test_a_table_of_parameters_fills_the_command_in(tow: Tow, accepting: Stub) -> None:
    write(tow, "lr,id\n0.10,1\n", "runs.csv")
    assert tow("batch", "--params", "runs.csv", "--", "t", "{lr}").returncode == 0
    assert asked(accepting)["lines"][0]["argv"] == ["t", "0.10"]
    assert asked(accepting)["name"] == "runs"


@pytest.mark.parametrize(
    ("options", "request_text"),
    [
        (["--pack", "3"], "[1:gpu,gpuutil=0.333]"),
        (["--pack", "6"], "[1:gpu,gpuutil=0.166]"),
        (["--pack", "2", "--gpus", "gtx1070"], "[gtx1070,gpuutil=0.5]"),
        (["--pack", "4", "--gpus", "2", "--cpus", "2"], "[2:gpu,gpuutil=0.25]"),
    ],
)
def test_pack_asks_for_a_share_of_a_gpu(
    tow: Tow, accepting: Stub, options: list[str], request_text: str
) -> None:
    write(tow, "true\n")
    assert tow("batch", *options, "sweep.txt").returncode == 0
    base = asked(accepting)["base"]
    assert base["request"] == request_text and "gpus" not in base


@pytest.mark.parametrize("name", ACTIONS)
def test_a_file_called_like_a_word_of_its_own_is_given_with_its_folder(
    tow: Tow, accepting: Stub, name: str
) -> None:
    write(tow, "true\n", name)
    assert tow("batch", f"./{name}").returncode == 0
    assert tow("batch", "--", name).returncode == 0
    assert [one.json["name"] for one in accepting.asked_of(SUBMIT)] == [name, name]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nowhere.txt"], "cannot read nowhere.txt: No such file"),
        (["."], "cannot read .: Is a directory"),
        (["empty.txt"], "empty.txt has no command in it"),
        (["binary.txt"], "binary.txt, line 2 is not UTF-8 text"),
        (["--matrix", "lr=1"], "which command?"),
        (["--matrix", "lr=1", "--", "x"], "the command does not use `lr`"),
        (["--matrix", "lr=1", "--", "{lt}"], "there is no value for {lt}"),
        (["--params", "no.csv", "--", "{x}"], "cannot read no.csv"),
        (["good.txt", "--", "x", "y"], "the commands are in the FILE"),
        (["good.txt", "--matrix", "a=1"], "one of them"),
        (["--", "python", "x.py"], "what varies?"),
        (["--max-parallel", "0", "good.txt"], "--max-parallel must be at least 1"),
        (["--pack", "0", "good.txt"], "--pack must be from 1 to 1000"),
        (["--pack", "2", "-r", "[gpu]", "good.txt"], "--pack and -r both say"),
        (["--pack", "2", "--gpus", "x],[y", "good.txt"], "cannot read --gpus"),
        (["--keep-order", "--json", "good.txt"], "not with --json"),
        (["--name", "a/b", "good.txt"], "a batch cannot be called 'a/b'"),
        (["--name", "last", "good.txt"], "a batch cannot be called 'last'"),
        (["show"], "the following arguments are required: NAME"),
        (["retry", "--state", "done", "x"], "invalid choice: 'done'"),
        (["log", "--stdout", "--stderr", "x"], "not allowed with"),
    ],
)
def test_what_cannot_be_is_told_before_anything_is_asked(
    tow: Tow, stub: Stub, words: list[str], told: str
) -> None:
    write(tow, "", "empty.txt")
    write(tow, "true\n", "good.txt")
    (tow.folder / "binary.txt").write_bytes(b"true\n\xff\n")
    done = tow("batch", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("tow: ") and told in done.stderr
    assert len(done.stderr.splitlines()) <= 3
    assert stub.asked == []


def test_a_refusal_of_the_engine_is_passed_on(tow: Tow, stub: Stub) -> None:
    stub.on(SUBMIT, refusal("there is no cluster 'lab'", hint="tow clusters"))
    write(tow, "true\n")
    done = tow("batch", "-c", "lab", "sweep.txt")
    assert (done.returncode, done.stderr) == (2, "tow: there is no cluster 'lab'\n  tow clusters\n")


def test_in_a_pipe_each_event_is_a_line_and_the_last_sums_it_up(tow: Tow, stub: Stub) -> None:
    view = batch(done=3, failed=1)
    stub.on(SUBMIT, answer({"batch": batch(queued=4)}))
    events = [
        event(1, 3, "started", "running on h1", gpus=[0, 1]),
        event(2, 3, "done", "done", code=0),
        event(3, 4, "failed", "failed: exit code 1", code=1, machine="h2"),
        event(4, 5, "lost", "lost: h2 restarted", machine="h2"),
        event(5, 5, "requeued", "h2 restarted", machine="h2"),
        event(6, 6, "stopped", "stopped", because="stopped"),
        event(7, 6, "remark", "stop was asked for"),
    ]
    stub.on(FOLLOW, stream(frame(*events[:2], view=view), frame(*events[2:], view=view, over=True)))
    write(tow, "true\n")
    done = tow("batch", "sweep.txt")
    assert done.stdout.splitlines() == [
        "started 3 line 3 on h1 gpu 0,1: cmd 3",
        "done 3 line 3 on h1",
        "failed 4 line 4 on h2 (exit code 1): cmd 4 · tow log 4",
        "lost 5 line 5 on h2 (h2 restarted): cmd 5 · tow log 5",
        "requeued 5 line 5 on h2 (h2 restarted)",
        "stopped 6 line 6 on h1",
        "job 6 line 6: stop was asked for",
        "✗ batch sweep: 3 done, 1 failed in 12.5 s · tow batch show sweep",
    ]
    assert (done.returncode, done.stderr) == (1, "batch sweep: 4 jobs on lab\n")


@pytest.mark.parametrize(
    ("view", "code", "last"),
    [
        (batch(done=4), 0, "✓ batch sweep: 4 done in 12.5 s"),
        (batch(done=3, lost=1), 1, "✗ batch sweep: 3 done, 1 lost in 12.5 s"),
        (batch(done=3, stopped=1), 130, "■ batch sweep: 3 done, 1 stopped in 12.5 s"),
        (batch(failed=1, stopped=3), 1, "✗ batch sweep: 1 failed, 3 stopped in 12.5 s"),
    ],
)
def test_the_exit_code_says_how_it_ended(
    tow: Tow, stub: Stub, view: dict[str, Any], code: int, last: str
) -> None:
    stub.on(SUBMIT, answer({"batch": view}))
    stub.on(FOLLOW, stream(frame(view=view, over=True)))
    write(tow, "true\n")
    done = tow("batch", "sweep.txt")
    assert done.returncode == code
    assert done.stdout.startswith(last)


def test_json_lines_carry_the_batch_its_events_and_its_end(tow: Tow, stub: Stub) -> None:
    first = batch(queued=4)
    stub.on(SUBMIT, answer({"batch": first}))
    stub.on(FOLLOW, stream(frame(event(7, 12, "done", code=0), view=ALL_DONE, over=True)))
    write(tow, "true\n")
    done = tow("batch", "--json", "sweep.txt")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[0] == {"batch": first} and lines[-1] == {"end": ALL_DONE}
    told = {"seq": 7, "job": 12, "line": 12, "state": "done", "exit_code": 0, "title": "cmd 12"}
    assert told.items() <= lines[1]["event"].items()
    assert (done.returncode, done.stderr) == (0, "")


def test_detached_it_prints_its_name_and_returns(tow: Tow, accepting: Stub) -> None:
    write(tow, "true\n")
    done = tow("batch", "-d", "sweep.txt")
    assert (done.returncode, done.stdout, done.stderr) == (0, "batch sweep\n", "")
    assert tow.json("batch", "-d", "sweep.txt")["name"] == "sweep"
    assert accepting.asked_of(FOLLOW) == []


def test_a_dry_run_shows_the_commands_and_the_plan_of_the_first(tow: Tow, stub: Stub) -> None:
    plan = {"command": ["bash", "-c", "echo 0"], "cluster": "lab", "request": "[]", "files": 1}
    stub.on("POST /v1/plan", answer(plan))
    write(tow, "".join(f"echo {n}\n" for n in range(9)))
    shown = tow("batch", "--dry-run", "-c", "lab", "sweep.txt").stdout
    assert shown.startswith("9 jobs:\n     1  echo 0\n")
    assert "and 4 more" in shown and "cluster   lab" in shown
    assert stub.asked_of("POST /v1/plan")[0].json["argv"] == ["bash", "-c", "echo 0"]
    found = tow.json("batch", "--dry-run", "sweep.txt")
    assert found["plan"] == plan and len(found["lines"]) == 9
    assert stub.asked_of(SUBMIT) == []


def test_an_engine_that_goes_away_is_asked_for_what_came_after(tow: Tow, stub: Stub) -> None:
    running = batch(running=4)
    stub.on(SUBMIT, answer({"batch": running}))
    stub.on(
        FOLLOW,
        stream(frame(event(7, 1, "started"), view=running), broken=True),
        # What was seen may come again; it is not shown again.
        stream(frame(event(7, 1, "started"), event(9, 1, "done"), view=running), broken=True),
        stream(frame(view=ALL_DONE, over=True)),
    )
    write(tow, "true\n")
    done = tow("batch", "sweep.txt")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["started", "done", "✓"]
    assert [one.query["since"] for one in stub.asked_of(FOLLOW)] == ["0", "7", "9"]


def test_in_a_pipe_it_is_said_once_which_machine_keeps_results(tow: Tow, stub: Stub) -> None:
    stub.on(SUBMIT, answer({"batch": batch(queued=4)}))
    away = [{"machine": "h2", "reason": "h2: the connection broke"}]
    waits = batch(done=4, home=False, pending=1, away=away)
    views = [batch(done=3, running=1), batch(done=4, home=False, pending=1), waits, waits]
    last = frame(view=batch(done=4), over=True)
    stub.on(FOLLOW, stream(*(frame(view=view) for view in views), last))
    write(tow, "true\n")
    done = tow("batch", "sweep.txt")
    said = "all have ended; results of 1 job are not home: h2: the connection broke"
    assert done.stderr.splitlines().count(said) == 1
    assert (done.returncode, done.stdout) == (0, "✓ batch sweep: 4 done in 12.5 s\n")


def test_ctrl_c_in_a_pipe_leaves_it_running_and_says_how_to_come_back(tow: Tow, stub: Stub) -> None:
    view = batch(running=4)
    stub.on(SUBMIT, answer({"batch": view}))
    hold = threading.Event()
    stub.on(FOLLOW, stream(frame(event(1, 1, "started"), view=view), hold=hold))
    write(tow, "true\n")
    running = tow.popen("batch", "sweep.txt")
    assert running.stdout is not None
    running.stdout.readline()
    running.send_signal(signal.SIGINT)
    _, told = running.communicate(timeout=20)
    assert running.returncode == 130
    assert "tow batch show -f sweep" in told and "tow batch stop sweep" in told
    assert stub.asked_of("POST /v1/batches/sweep/stop") == []


def test_in_order_only_what_the_jobs_write_is_printed(tow: Tow, stub: Stub) -> None:
    view = batch(count=2, running=2)
    stub.on(SUBMIT, answer({"batch": view}))
    first = [
        {"job": job(12)},
        out("one\n"),
        {"note": "waiting: x", "kind": "waiting"},
        {"end": job(12, "done")},
    ]
    second = [out("two\n"), out("oops\n", stream="err"), {"end": job(13, "failed", exit_code=1)}]
    stub.on("GET /v1/jobs/12/log", stream(*first))
    stub.on("GET /v1/jobs/13/log", stream({"job": job(13)}, *second))
    stub.on("GET /v1/batches/sweep", answer({"batch": batch(count=2, done=1, failed=1)}))
    write(tow, "true\ntrue\n")
    done = tow("batch", "--keep-order", "sweep.txt")
    assert (done.returncode, done.stdout) == (1, "one\ntwo\n")
    assert done.stderr.startswith("oops\n✗ batch sweep: 1 done, 1 failed")
    assert stub.asked_of(FOLLOW) == []


def test_a_command_without_the_two_dashes_is_asked_back(tow: Tow, stub: Stub) -> None:
    for words in (("--matrix", "lr=1,2", "python3", "train.py", "--lr", "{lr}"),):
        done = tow("batch", *words)
        assert done.returncode == 2 and "put `--` in front of the command" in done.stderr


def test_what_looks_like_a_range_and_is_none_is_said(tow: Tow, stub: Stub) -> None:
    done = tow("batch", "--dry-run", "--matrix", "seed=1-3", "--", "echo", "{seed}")
    assert "seed has one value, 1-3; a range is 1..3" in done.stderr
