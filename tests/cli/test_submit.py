"""What `submit` asks of the Engine, what it shows, and what it asks a person."""

import json
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from cli.following import END, OnTerminal, held, stops_when_told
from cli.stub import Stub, answer, job, out, stream
from testbed.tow import Tow
from towline.cli.compat import submit_follow
from towline.client.session import Session

URL = "http://localhost:20123"
BOARD = {"job": 12, "name": "tensorboard", "state": "up", "text": "", "url": URL}
UP = {"note": f"tensorboard: {URL}", "service": BOARD}
BROKEN = {"note": "cedar: does not answer; the job goes on, trying again", "broken": True}
MENDED = {"note": "connected again", "broken": False}
QUESTION = "Cancel job 12? [y]es, [n]o"
CLUSTER = "slurm:me@cedar"


@pytest.fixture
def submit(tow: Tow, stub: Stub) -> Tow:
    """`submit` in a folder with a `cedar.json`."""
    tow.program = [tow.program[0], "-m", "towline.cli.compat.submit"]
    cedar = {"host": "me@cedar", "sbatch": {"--mem": "16G"}, "setup": ["source env", "true"]}
    (tow.folder / "cedar.json").write_text(json.dumps(cedar))
    stub.on("POST /v1/clusters/behind", answer({"cluster": CLUSTER}))
    stub.on("GET /v1/clusters", answer({"clusters": [{"name": "local"}, {"name": "big"}]}))
    stub.on("POST /v1/run", stream({"job": job()}, END))
    return tow


def asked(stub: Stub) -> dict[str, Any]:
    found: dict[str, Any] = stub.asked_of("POST /v1/run")[-1].json
    return found


@pytest.mark.parametrize(
    "typed", [["-c=cedar.json"], ["-c", "cedar.json"], ["--config=cedar.json"]]
)
def test_the_file_says_where_and_how(submit: Tow, stub: Stub, typed: list[str]) -> None:
    done = submit(*typed, "python", "main.py", "-c", "5", "--sbatch_json")
    assert done.returncode == 0, done.stderr
    (made,) = stub.asked_of("POST /v1/clusters/behind")
    assert made.json == {"cwd": str(submit.folder), "kind": "slurm", "host": "me@cedar"}
    ask = asked(stub)
    assert ask["argv"] == ["python", "main.py", "-c", "5", "--sbatch_json"]
    assert (ask["cluster"], ask["cwd"]) == (CLUSTER, str(submit.folder))
    assert ask["options"] == {"--mem": "16G"}
    assert ask["setup"] == "source env\n(exit $?) || exit\ntrue"
    assert ask["services"] == ["tensorboard"]


def test_options_of_the_command_line_are_laid_over_those_of_the_file(
    submit: Tow, stub: Stub
) -> None:
    given = {"--mem": "20G", "-n": 1, "--requeue": True, "--signal": "USR1@60", "nice": 5}
    submit("-c=cedar.json", f"--sbatch_json={json.dumps(given)}", "x")
    ask = asked(stub)
    assert ask["options"] == {"--mem": "20G", "nice": "5"}
    assert (ask["requeue"], ask["signal"]) == (True, "USR1@60")


@pytest.mark.parametrize(
    ("words", "services"),
    [
        (["x"], ["tensorboard"]),
        (["--tensorboard", "x"], ["tensorboard"]),
        (["--no-tensorboard", "x"], None),
        (["--tensorboard=False", "x"], None),
        (["--tensorboard", "False", "x"], None),
        (["--tensorboard=true", "x"], ["tensorboard"]),
        (["--tensorboard", "True", "x"], ["tensorboard"]),
        (["--no-tensorboard", "--", "x"], None),
    ],
)
def test_tensorboard_is_there_unless_it_is_not_wanted(
    submit: Tow, stub: Stub, words: list[str], services: list[str] | None
) -> None:
    assert submit("-c=cedar.json", *words).returncode == 0
    assert asked(stub)["argv"] == ["x"]
    assert asked(stub).get("services") == services


def test_a_configured_cluster_is_used_by_its_name(submit: Tow, stub: Stub) -> None:
    assert submit("-c", "big", "x").returncode == 0
    assert asked(stub)["cluster"] == "big"
    assert stub.asked_of("POST /v1/clusters/behind") == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "-c/--config"),
        (["x"], "-c/--config"),
        (["-c=cedar.json"], "which command?"),
        (["-c=none.json", "x"], "there is no file none.json"),
        (["-c", "huge", "x"], "there is no cluster 'huge'"),
        (["-c=cedar.json", "--sbatch_json={--mem:", "20G}", "x"], "--sbatch_json is not JSON"),
        (["-c=cedar.json", '--sbatch_json={"-o": "f"}', "x"], "is Towline's own"),
        (["-c=cedar.json", "--patience", "0", "x"], "--patience"),
        (["-c=cedar.json", "--bord", "x"], "--bord"),
    ],
)
def test_what_is_typed_wrong_is_told_and_nothing_submitted(
    submit: Tow, stub: Stub, words: list[str], told: str
) -> None:
    done = submit(*words)
    assert done.returncode == 2
    assert done.stderr.startswith("submit: ") and told in done.stderr
    assert len(done.stderr.splitlines()) <= 3
    assert stub.asked_of("POST /v1/run") == []


def test_the_address_of_tensorboard_is_told_once_and_the_output_stays_clean(
    submit: Tow, stub: Stub
) -> None:
    on_slurm = {"job": job(queue={"kind": "slurm", "number": "4711"})}
    stub.on("POST /v1/run", stream(on_slurm, UP, out("one\n"), UP, broken=True))
    stub.on("GET /v1/jobs/12/log", stream(on_slurm, UP, out("two\n", 4), END))
    done = submit("-c=cedar.json", "x")
    assert (done.returncode, done.stdout) == (0, "one\ntwo\n")
    lines = done.stderr.splitlines()
    assert lines[:2] == ["job 12 · lab · Slurm 4711 · runs on gpu1", f"TensorBoard: {URL}"]
    assert done.stderr.count(URL) == 1
    assert "tow tensorboard 12" in lines[-1]


def test_missing_tensorboard_is_a_remark(submit: Tow, stub: Stub) -> None:
    failed = {**BOARD, "state": "failed", "text": "pip install tensorboard"}
    missing = {"note": "tensorboard does not run: pip install tensorboard", "service": failed}
    stub.on("POST /v1/run", stream({"job": job()}, missing, END))
    done = submit("-c=cedar.json", "x")
    assert done.returncode == 0
    assert "pip install tensorboard" in done.stderr
    assert "TensorBoard:" not in done.stderr and "tow tensorboard" not in done.stderr


def test_a_broken_network_is_told_and_the_address_again_when_it_is_back(
    submit: Tow, stub: Stub
) -> None:
    frames = [{"job": job()}, UP, out("one\n"), BROKEN, MENDED, out("two\n", 4), END]
    stub.on("POST /v1/run", stream(*frames))
    done = submit("-c=cedar.json", "x")
    assert done.stdout == "one\ntwo\n"
    assert "does not answer; the job goes on" in done.stderr
    assert done.stderr.count(URL) == 2


def test_ctrl_c_and_yes_stops_the_job(submit: Tow, stub: Stub) -> None:
    held(stub, UP, out("begun\n"))
    stops_when_told(stub)
    with OnTerminal(submit, "-c=cedar.json", "x") as terminal:
        terminal.is_asked(QUESTION)
        terminal.types("maybe\ny\n")
        terminal.sees("job 12 stopped")
        assert terminal.leaves() == 130
    assert stub.asked_of("POST /v1/jobs/stop")[0].json == {"ids": [12]}


def test_ctrl_c_and_no_goes_on_where_it_was_and_tells_the_address_again(
    submit: Tow, stub: Stub
) -> None:
    held(stub, UP, out("begun\n"))
    stub.on("GET /v1/jobs/12/log", stream({"job": job()}, UP, out("more\n", 6), END))
    with OnTerminal(submit, "-c=cedar.json", "x") as terminal:
        terminal.sees(URL)
        terminal.is_asked(QUESTION)
        terminal.types("no\n")
        terminal.sees("job 12 done")
        # There is no job to show here; a person may have left the address open in a browser.
        terminal.sees("to look again: tow tensorboard 12; Ctrl-C leaves")
        terminal.interrupts()
        assert terminal.leaves() == 0
    assert terminal.seen.count(URL) == 2
    (again,) = stub.asked_of("GET /v1/jobs/12/log")
    assert json.loads(again.query["from"]) == {"0.0.out": 6}
    assert stub.asked_of("POST /v1/jobs/stop") == []


def test_second_ctrl_c_leaves_the_job_and_says_how_to_come_back(submit: Tow, stub: Stub) -> None:
    held(stub, UP, out("begun\n"))
    with OnTerminal(submit, "-c=cedar.json", "x") as terminal:
        terminal.is_asked(QUESTION)
        terminal.interrupts()
        terminal.sees("job 12 goes on: tow attach 12")
        assert terminal.leaves() == 130
    assert stub.asked_of("POST /v1/jobs/stop") == []


def test_ctrl_c_while_it_is_being_cancelled_leaves(submit: Tow, stub: Stub) -> None:
    held(stub, UP, out("begun\n"))
    stops_when_told(stub)
    still = stream({"job": job()}, {"note": "stopping"}, hold=threading.Event())
    stub.on("GET /v1/jobs/12/log", still)
    with OnTerminal(submit, "-c=cedar.json", "x") as terminal:
        terminal.is_asked(QUESTION)
        terminal.types("yes\n")
        terminal.sees("· stopping")
        terminal.interrupts()
        terminal.sees("job 12 is being cancelled: tow status")
        assert terminal.leaves() == 130


def test_network_that_stays_away_asks_the_same_question(submit: Tow, stub: Stub) -> None:
    held(stub, UP, out("begun\n"), BROKEN)
    back = stream({"job": job()}, UP, out("more\n", 6), END)
    stub.on("GET /v1/jobs/12/log", back)
    with OnTerminal(submit, "-c=cedar.json", "--patience", "0.2", "x") as terminal:
        terminal.sees(f"lab could not be reached for 0.2 s.\n{QUESTION}")
        terminal.types("n\n")
        terminal.sees("trying to reach it again")
        terminal.sees("connected again")
        terminal.sees(URL)
        terminal.sees("job 12 done")
        # There is no job to show here; a person may have left the address open in a browser.
        terminal.sees("to look again: tow tensorboard 12; Ctrl-C leaves")
        terminal.interrupts()
        assert terminal.leaves() == 0
    assert terminal.seen.count(URL) == 2


def test_a_question_about_the_network_is_withdrawn_when_it_is_back(submit: Tow, stub: Stub) -> None:
    held(stub, UP, out("begun\n"), BROKEN)
    stub.on("GET /v1/jobs/12/log", stream({"job": job()}, out("more\n", 6), END))
    away, back = answer(job(silent_since=1000.0)), answer(job(silent_since=None))
    stub.on("GET /v1/jobs/12", away, back)
    words = ("-c=cedar.json", "--no-tensorboard", "--patience", "0.2", "x")
    with OnTerminal(submit, *words) as terminal:
        terminal.sees(QUESTION)
        terminal.sees("connected again")
        terminal.sees("job 12 done")
        assert terminal.leaves() == 0
    assert stub.asked_of("POST /v1/jobs/stop") == []


def test_patience_that_is_no_time_is_told(submit: Tow, stub: Stub) -> None:
    done = submit("-c=cedar.json", "--patience", "soon", "x")
    assert done.returncode == 2 and "is not a length of time" in done.stderr


def test_a_file_below_the_home_folder_is_found_though_no_shell_spells_it_out(
    submit: Tow, stub: Stub, tmp_path: Path
) -> None:
    (tmp_path / "far.json").write_text((submit.folder / "cedar.json").read_text())
    done = submit("-c=~/far.json", "x", env={"HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr


def test_job_can_be_cancelled_while_the_network_is_away(submit: Tow, stub: Stub) -> None:
    held(stub, UP, out("begun\n"), BROKEN)
    stops_when_told(stub)
    with OnTerminal(submit, "-c=cedar.json", "--patience", "0.2", "x") as terminal:
        terminal.sees(QUESTION)
        terminal.types("yes\n")
        terminal.sees("job 12 is cancelled as soon as lab answers")
        assert terminal.leaves() == 130


def test_network_that_is_back_in_time_asks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit_follow, "interactive", lambda: True)
    follow = submit_follow.SubmitFollow(Session(), {}, "key", 1000.0)
    for back in (MENDED, out("more\n"), {"job": job()}):
        header, blob = back if isinstance(back, tuple) else (back, b"")
        follow._show(BROKEN, b"")
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
        follow._show(header, blob)
        assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_without_a_terminal_nothing_is_asked(submit: Tow, stub: Stub) -> None:
    held(stub, UP, out("begun\n"), BROKEN)
    process = submit.popen("-c=cedar.json", "--patience", "0.1", "x")
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "job 12 goes on: tow attach 12" in said
    assert "Cancel" not in said


def test_the_example_is_understood(submit: Tow, stub: Stub) -> None:
    example = Path(__file__).parents[2] / "examples" / "cluster-tools"
    done = submit("-c=cedar.json", "python", "main.py", cwd=example)
    assert done.returncode == 0, done.stderr
    assert stub.asked_of("POST /v1/clusters/behind")[0].json["host"] == "me@cedar.example.org"
    assert asked(stub)["options"] == {"--mem": "16G", "--time": "3:00:00"}
