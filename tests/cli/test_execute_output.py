"""What the ssh scheduler's commands ask of the Engine, and what they print."""

import signal
from pathlib import Path
from typing import Any

import pytest

from cli.stub import Stub, answer, job, out, refusal, stream
from testbed.tow import Tow
from towline.client.submission import umask

LINES = (
    'echo "one job"',
    'echo "jobs will tell you if they fail" && exit 1',
    'echo "another job" && echo "a combined job (bash syntax applies)"',
    "bash local.sh && echo",
    "echo done before",
)
WARNING = (
    "WARNING: job results already exists for line 5, "
    "skipping evaluation: delete if you wish to rerun"
)
AT_ONCE = {"name": "ben@gpu1", "slots": [[0], [1]], "reason": "", "hint": "", "cluster": "ad-hoc:1"}
AWAY = {"name": "ben@gpu2", "slots": [], "reason": "ben@gpu2: does not answer", "hint": "is it on?"}


def batch(state: str = "running", **more: Any) -> dict[str, Any]:
    """The view of a batch whose jobs are all in one state."""
    counts = {"failed": 0, "queued": 0, **{state: 4}}
    over = state != "running"
    base = {"name": "batch_script", "count": 4, "first": 7, "counts": counts, "why": ""}
    return {**base, "ended": 2.0 if over else None, **more}


def event(seq: int, line: int, state: str, gpus: list[int], text: str = "") -> list[Any]:
    because = "exit_code" if "exit code" in text else "told"
    about = [seq, 1.0, 6 + line, line, state, "ben@gpu1", gpus, None]
    return [*about, text, "ended", because, text.removeprefix(f"{state}: ")]


def frame(*events: list[Any], state: str = "running", over: bool = False) -> dict[str, Any]:
    return {"events": list(events), "batch": batch(state), "over": over}


@pytest.fixture
def project(tow: Tow) -> Path:
    """The ssh scheduler's example, of which the fifth line was run before."""
    folder = tow.folder
    (folder / "example").mkdir()
    (folder / "example" / "batch_script.sh").write_text("\n".join(LINES))
    (folder / "my_machine.yaml").write_text("username: ben\nip: gpu1\n")
    (folder / "second.yaml").write_text("username: ben\nip: gpu2\nport: 23\n")
    (folder / "job_results" / "example_batch_script.sh.5").mkdir(parents=True)
    return folder


def execute(tow: Tow, name: str, *words: str) -> Any:
    tow.program = [tow.program[0], "-m", f"towline.cli.compat.{name}"]
    return tow(*words)


def test_progress_is_told_as_the_ssh_scheduler_tells_it(
    tow: Tow, stub: Stub, project: Path
) -> None:
    stub.on("POST /v1/limits", answer({"cluster": "ad-hoc:1", "machines": [AT_ONCE]}))
    stub.on("POST /v1/batches", answer({"batch": batch()}))
    stub.on(
        "GET /v1/batches/batch_script/follow",
        stream(frame(event(1, 1, "started", [0]), event(2, 2, "started", [1])), broken=True),
        stream(
            frame(event(2, 2, "started", [1]), event(3, 1, "done", [0])),
            frame(event(4, 3, "started", [0]), event(5, 2, "failed", [1], "exit code 1")),
            frame(event(6, 3, "done", [0]), event(7, 4, "lost", [1], "ben@gpu1 went away")),
            frame(state="failed", over=True),
        ),
    )
    words = ("example/batch_script.sh", "--machines", "my_machine.yaml", "--memory-required=2000")
    done = execute(tow, "execute_batch", *words)
    names = [f"example_batch_script.sh.{number}" for number in range(6)]
    gpu = "export CUDA_VISIBLE_DEVICES={} && ".format
    assert done.stdout.splitlines() == [
        "machine limits:  {'my_machine.yaml': 2}",
        "machine gpu choices: [[0, 1]]",
        WARNING,
        f"started: {names[1]};  {gpu(0)}{LINES[0]}",
        f"started: {names[2]};  {gpu(1)}{LINES[1]}",
        f"finished: {names[1]}; {LINES[0]}",
        f"started: {names[3]};  {gpu(0)}{LINES[2]}",
        f"failed: {names[2]}; {LINES[1]}",
        f"finished: {names[3]}; {LINES[2]}",
        f"started: {names[4]};  {gpu(1)}{LINES[3]}",
        f"failed: {names[4]}; {LINES[3]}",
    ]
    assert done.stderr == f"{names[4]}: ben@gpu1 went away\n"
    assert done.returncode == 1


def test_everything_is_asked_for_at_once(tow: Tow, stub: Stub, project: Path) -> None:
    stub.on("POST /v1/limits", answer({"cluster": "ad-hoc:1", "machines": [AT_ONCE, AWAY]}))
    stub.on("POST /v1/batches", answer({"batch": batch()}))
    stub.on("GET /v1/batches/batch_script/follow", stream(frame(state="done", over=True)))
    machines = ("--machines", "my_machine", "second.yaml")
    done = execute(tow, "execute_batch", "example/batch_script.sh", *machines)
    assert done.returncode == 0
    assert done.stdout.startswith("machine limits:  {'my_machine': 2, 'second.yaml': 0}\n")
    assert "second.yaml: not used for now: ben@gpu2: does not answer\n  is it on?" in done.stderr
    [asked] = stub.asked_of("POST /v1/batches")
    assert asked.headers["idempotency-key"]
    entries = [{"ssh": "ben@gpu1"}, {"ssh": "ben@gpu2:23"}]
    assert asked.json["machines"] == entries
    assert asked.json["base"] == {
        "argv": [],
        "cwd": str(project),
        "request": "[cpus=1,mem=7000M,gpu,gpumem=1000M,gpuutil=0.75,reserve]",
        "only": ["."],
        "back": ["."],
        "whole": True,
        "umask": umask(),
        "empty_outputs": True,
    }
    assert asked.json["lines"][1] == {
        "argv": ["bash", "-i", "-c", LINES[1]],
        "title": LINES[1],
        "name": "example_batch_script.sh.2",
        "number": 2,
    }
    assert len(asked.json["lines"]) == 4
    [limits] = stub.asked_of("POST /v1/limits")
    assert limits.json["machines"] == entries


def test_nothing_is_sent_when_all_results_are_there(tow: Tow, stub: Stub, project: Path) -> None:
    (project / "one.sh").write_text("true\n")
    (project / "job_results" / "one.sh.1.out").touch()
    stub.on("POST /v1/limits", answer({"cluster": "ad-hoc:1", "machines": [AT_ONCE]}))
    done = execute(tow, "execute_batch", "one.sh", "--machines", "my_machine.yaml")
    assert done.returncode == 0
    assert "exists for line 1," in done.stdout
    assert stub.asked_of("POST /v1/batches") == []


@pytest.mark.parametrize(
    ("name", "words", "told"),
    [
        ("execute_batch", ["example/batch_script.sh"], "required: --machines"),
        ("execute_batch", ["--machines", "my_machine.yaml"], "a file of commands"),
        ("execute_batch", ["gone.sh", "--machines", "my_machine.yaml"], "cannot read gone.sh"),
        ("execute_batch", ["example/batch_script.sh", "--machines", "gone"], "no machine file"),
        ("execute_batch", ["x", "--machines", "m", "--num-cpus", "many"], "invalid float value"),
        ("execute_remote", ["--machine", "my_machine.yaml"], "required: command"),
        ("execute_remote", ["true"], "required: --machine"),
        ("execute_to", ["--machines", "my_machine.yaml"], "a command and the machines"),
        ("execute_to", ["--machines", "gone.yaml", "--", "true"], "no machine file gone.yaml"),
        ("combine_folders", ["dest"], "required: SRC"),
        ("combine_folders", ["dest", "gone"], "gone does not exist"),
    ],
)
def test_wrong_words_are_told_without_asking_the_engine(
    tow: Tow, stub: Stub, project: Path, name: str, words: list[str], told: str
) -> None:
    done = execute(tow, name, *words)
    assert done.returncode == 2
    assert done.stderr.startswith(f"{name}: ")
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert stub.asked == []


def test_what_the_engine_refuses_is_told_in_its_words(tow: Tow, stub: Stub, project: Path) -> None:
    stub.on("POST /v1/limits", refusal("no machine answers", hint="try ssh", exit=1))
    done = execute(tow, "execute_batch", "example/batch_script.sh", "--machines", "my_machine")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "execute_batch: no machine answers\n  try ssh\n"


def test_ctrl_c_ends_the_following_and_says_how_to_look_and_stop(
    tow: Tow, stub: Stub, project: Path
) -> None:
    import threading

    stub.on("POST /v1/limits", answer({"cluster": "ad-hoc:1", "machines": [AT_ONCE]}))
    stub.on("POST /v1/batches", answer({"batch": batch()}))
    hold = threading.Event()
    stub.on(
        "GET /v1/batches/batch_script/follow",
        stream(frame(event(1, 1, "started", [0])), hold=hold),
    )
    tow.program = [tow.program[0], "-m", "towline.cli.compat.execute_batch"]
    typed = tow.popen("example/batch_script.sh", "--machines", "my_machine.yaml")
    assert typed.stdout is not None
    while not typed.stdout.readline().startswith("started"):
        pass
    typed.send_signal(signal.SIGINT)
    _, told = typed.communicate(timeout=30)
    assert typed.returncode == 130
    assert "tow batch stop batch_script" in told
    assert stub.asked_of("POST /v1/batches/batch_script/stop") == []


def test_one_command_is_a_job_like_any_other(tow: Tow, stub: Stub, project: Path) -> None:
    stub.on("POST /v1/limits", answer({"cluster": "ad-hoc:1", "machines": [AT_ONCE]}))
    end = {"end": job(state="failed", exit_code=3)}
    stub.on("POST /v1/run", stream({"job": job()}, out("hello\n"), end))
    words = ("--copy-backwards", "--machine", "my_machine.yaml", "--job-name", "mine", "a b")
    done = execute(tow, "execute_remote", *words)
    assert (done.returncode, done.stdout) == (3, "hello\n")
    [asked] = stub.asked_of("POST /v1/run")
    wanted = {
        "argv": ["bash", "-i", "-c", "a b"],
        "cluster": "ad-hoc:1",
        "name": "mine",
        "back": ["/"],
    }
    assert {name: asked.json[name] for name in wanted} == wanted


def test_output_of_every_machine_has_its_name_in_front(tow: Tow, stub: Stub, project: Path) -> None:
    second = {**AT_ONCE, "name": "ben@gpu2:23", "cluster": "ad-hoc:2"}
    stub.on("POST /v1/limits", answer({"cluster": "ad-hoc:3", "machines": [AT_ONCE, second]}))
    stub.on(
        "POST /v1/run",
        stream({"job": job()}, out("a\nunfinished"), {"end": job(state="done")}),
    )
    words = ("--machines", "my_machine.yaml", "second.yaml", "--", "hostname")
    done = execute(tow, "execute_to", *words)
    assert done.returncode == 0
    files = ("my_machine.yaml", "second.yaml")
    lines = [f"[{file}] {text}" for file in files for text in ("a", "unfinished")]
    assert sorted(done.stdout.splitlines()) == lines
    assert done.stderr.splitlines() == [f"{file}: done (3.2 s)" for file in files]
    asked = stub.asked_of("POST /v1/run")
    assert {one.json["cluster"] for one in asked} == {"ad-hoc:1", "ad-hoc:2"}
    assert all(one.json["only"] == [] and one.json["results"] is False for one in asked)


def test_lines_that_were_stopped_or_failed_before_are_told_apart(
    tow: Tow, stub: Stub, project: Path
) -> None:
    for number in range(1, 5):
        (project / "job_results" / f"example_batch_script.sh.{number}").mkdir(exist_ok=True)
    states = {1: "done", 2: "stopped", 3: "failed", 4: "done"}

    def before(number: int, state: str, text: str) -> dict[str, Any]:
        command = ["bash", "-i", "-c", text]
        return {**job(20 + number, state), "line": number, "command": command}

    jobs = [before(number, state, LINES[number - 1]) for number, state in states.items()]
    other = [before(1, "failed", "another command")]
    named = [
        {**batch(), "folder": str(project), "name": name}
        for name in ("batch_script", "batch_script-2")
    ]
    stub.on("POST /v1/limits", answer({"cluster": "ad-hoc:1", "machines": [AT_ONCE]}))
    stub.on("GET /v1/batches", answer({"batches": named}))
    stub.on("GET /v1/batches/batch_script", answer({"batch": named[0], "jobs": jobs}))
    stub.on("GET /v1/batches/batch_script-2", answer({"batch": named[1], "jobs": other}))
    done = execute(tow, "execute_batch", "example/batch_script.sh", "--machines", "my_machine")
    warnings = [line for line in done.stdout.splitlines() if line.startswith("WARNING")]
    assert [line.partition(",")[0].rpartition(" line ")[2] for line in warnings] == [
        "1",
        "2 (stopped before)",
        "3 (failed before)",
        "4",
        "5",
    ]
    assert "2 skipped lines were not done" in done.stderr
    names = " ".join(f"job_results/example_batch_script.sh.{n}" for n in (2, 3))
    assert f"rm -r {names}\n" in done.stderr
    assert done.returncode == 1 and stub.asked_of("POST /v1/batches") == []


def test_a_dry_run_refuses_what_the_run_would_refuse(tow: Tow, stub: Stub, project: Path) -> None:
    full = {**AT_ONCE, "slots": []}
    stub.on("POST /v1/limits", answer({"cluster": "ad-hoc:1", "machines": [full]}))
    never = "no machine of ad hoc can ever take it"
    stub.on("POST /v1/plan", refusal(never, code="impossible"), answer({}))
    words = ("example/batch_script.sh", "--dry-run", "--machines", "my_machine")
    done = execute(tow, "execute_batch", *words)
    assert done.returncode == 2 and never in done.stderr
    assert stub.asked_of("POST /v1/plan")[0].json["cluster"] == "ad-hoc:1"
    tow.program = [tow.program[0], "-m", "towline.cli.compat.execute_batch"]
    waiting = tow(*words)
    assert waiting.returncode == 0 and "waits for room" in waiting.stdout
