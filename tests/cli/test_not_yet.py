"""What does not work yet is said, and what was meant is named."""

from pathlib import Path
from typing import Any

import pytest

from cli.stub import Stub, answer, job, stream
from e2e.person import Person
from testbed.tow import Tow
from towline.cli.commands.run import argv_of
from towline.model.lines import is_shell_line
from towline.model.parameters import matrix_commands

DONE = stream({"job": job()}, {"end": job(state="done")})


def asked(stub: Stub) -> Any:
    return stub.asked_of("POST /v1/run")[-1].json


def test_a_quoted_line_is_run_by_a_shell_as_ssh_would(tow: Tow, stub: Stub) -> None:
    stub.on("POST /v1/run", DONE)
    stub.on("POST /v1/jobs/12/exec", stream({"end": {"exit_code": 0}}))
    assert tow("run", "python3 train.py | tee log").returncode == 0
    assert asked(stub)["argv"] == ["sh", "-c", "python3 train.py | tee log"]
    assert asked(stub)["title"] == "python3 train.py | tee log"
    assert tow("run", "-t", "mine", "a b").returncode == 0
    assert asked(stub)["title"] == "mine"
    tow("exec", "12", "ls | wc -l")
    body = stub.asked_of("POST /v1/jobs/12/exec")[0].json
    assert body == {"argv": ["sh", "-c", "ls | wc -l"]}


def test_a_file_with_a_space_in_its_name_is_run_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my job").touch()
    assert argv_of(["my job"]) == ["my job"]
    assert argv_of(["my other job"]) == ["sh", "-c", "my other job"]
    assert argv_of(["echo", "a b"]) == ["echo", "a b"]


def test_a_sweep_of_a_quoted_line_is_run_by_a_shell_and_its_values_stay_one_word() -> None:
    found = matrix_commands(["lr=1,a b;c"], ["echo {lr} | cat"])
    assert [one.argv for one in found] == [
        ["sh", "-c", "echo 1 | cat"],
        ["sh", "-c", "echo 'a b;c' | cat"],
    ]
    assert not is_shell_line(["train.py"]) and not is_shell_line(["a b", "c"])


@pytest.mark.parametrize("words", [("-it", "bash"), ("-i", "-t", "x", "bash"), ("--pty", "bash")])
def test_a_terminal_in_a_job_is_refused_in_words(
    tow: Tow, stub: Stub, words: tuple[str, ...]
) -> None:
    for command in (("run",), ("run", "-c", "lab"), ("exec", "12"), ("exec",)):
        done = tow(*command, *words)
        assert done.returncode == 2
        assert "jobs have no terminal yet" in done.stderr, done.stderr


def test_a_shell_to_type_into_is_refused_on_a_terminal(tow: Tow, stub: Stub) -> None:
    for words in (("run", "bash"), ("exec", "12", "bash"), ("exec", "12", "--", "python3")):
        with Person(tow, *words) as person:
            person.sees("waits for somebody to type, but jobs have no terminal yet")
            assert person.leaves() == 2
    stub.on("POST /v1/run", DONE)
    assert tow("run", "bash").returncode == 0


def test_an_option_that_a_command_beside_a_job_has_itself_is_its_own(tow: Tow, stub: Stub) -> None:
    stub.on("POST /v1/jobs/12/exec", stream({"end": {"exit_code": 0}}))
    assert tow("exec", "12", "ls", "-t", "-i").returncode == 0


def test_what_is_piped_into_a_job_is_said_to_be_lost(tow: Tow, stub: Stub) -> None:
    stub.on("POST /v1/run", DONE)
    stub.on("POST /v1/jobs/12/exec", stream({"end": {"exit_code": 0}}))
    assert "what is piped in does not reach the job" in tow("run", "cat", input="hi\n").stderr
    assert "does not reach the command" in tow("exec", "12", "cat", input="hi\n").stderr
    assert "piped" not in tow("run", "cat").stderr
    assert "piped" not in tow("run", "cat", input="").stderr


def test_a_file_that_a_loop_of_the_shell_reads_is_not_taken_for_input(
    tow: Tow, stub: Stub, tmp_path: Path
) -> None:
    stub.on("POST /v1/run", DONE)
    path = tmp_path / "list"
    path.write_text("a\nb\n")

    def told(offset: int) -> str:
        with path.open("rb", buffering=0) as file:
            file.seek(offset)
            running = tow.popen("run", "true", stdin=file)
            return running.communicate(timeout=60)[1]

    assert "piped in" in told(0) and "piped in" not in told(2)


SCRIPT = """#!/bin/bash
#SBATCH --cpus-per-task=2 --mem=300M   # a remark
#SBATCH --gres=gpu:a100:2
#SBATCH -t 60
#SBATCH -p gpu
#SBATCH --output=x.log
echo hi
#SBATCH --nodes=4
"""


@pytest.mark.parametrize(
    "words", [("bash", "job.sbatch"), ("./job.sbatch", "x"), ("sh", "-e", "job.sbatch")]
)
def test_sbatch_lines_are_said_to_be_unread_and_how_to_type_them(
    tow: Tow, stub: Stub, words: tuple[str, ...]
) -> None:
    stub.on("POST /v1/run", DONE)
    (tow.folder / "job.sbatch").write_text(SCRIPT)
    told = tow("run", *words).stderr
    assert (
        "job.sbatch are not read; as options: "
        "--cpus 2 --mem 300M --gpus 2:a100 --time 60m -o partition=gpu\n" in told
    )
    (tow.folder / "job.sbatch").write_text("echo '#SBATCH'\n")
    assert "SBATCH" not in tow("run", *words).stderr


def test_a_script_is_no_list_of_commands(tow: Tow, stub: Stub) -> None:
    (tow.folder / "job.sh").write_text(SCRIPT)
    done = tow("batch", "job.sh")
    assert done.returncode == 2 and stub.asked == []
    assert done.stderr.startswith("tow: job.sh is a script, not a list of commands")
    assert "tow run bash job.sh" in done.stderr


@pytest.mark.parametrize(
    ("word", "command"),
    [
        ("ps", "status"),
        ("ls-jobs", "status"),
        ("queue", "status"),
        ("jobs", "status"),
        ("cancel", "stop"),
        ("kill", "stop"),
        ("ssh", "exec"),
        ("shell", "exec"),
        ("submit", "run"),
        ("stats", "status"),
    ],
)
def test_words_of_other_tools_lead_to_the_right_command(tow: Tow, word: str, command: str) -> None:
    done = tow(word)
    assert done.returncode == 2 and f"`tow {command}`" in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("run", "--gpu", "1", "x"), "there is no option --gpu; did you mean --gpus?"),
        (("run", "--retrys=3", "x"), "there is no option --retrys; did you mean --retries?"),
        (("run", "-p", "gpu", "x"), "no option -p; for sbatch's --partition: -o partition=gpu"),
        (("run", "-pgpu", "x"), "for sbatch's --partition: -o partition=gpu"),
        (("run", "--partition=gpu", "x"), "for sbatch's --partition: -o partition=gpu"),
        (("run", "-A", "me", "x"), "for sbatch's --account: -o account=me"),
        (("run", "-N", "2", "x"), "for sbatch's --nodes: -r '2:[]'"),
        (("run", "-J", "base", "x"), "for sbatch's --job-name: -t base"),
        (("run", "--gres=gpu:2", "x"), "for sbatch's --gres: --gpus 2"),
        (("batch", "--qos", "hi", "f"), "for sbatch's --qos: -o qos=hi"),
        (("run", "--output=x", "x"), "Towline sees to it by itself"),
        (("status", "--al"), "did you mean --all?"),
        (("why", "1", "2"), "what is 2?"),
    ],
)
def test_unknown_options_name_what_was_meant(
    tow: Tow, stub: Stub, words: tuple[str, ...], told: str
) -> None:
    done = tow(*words)
    assert done.returncode == 2 and told in done.stderr


def test_hints_stand_on_lines_of_their_own(tow: Tow, stub: Stub) -> None:
    reason = "command not found: python\npython3 is there"
    failed = job(state="failed", exit_code=127, reason=reason)
    stub.on("POST /v1/run", stream({"job": job()}, {"end": failed}))
    stub.on("GET /v1/jobs", answer({"jobs": [failed]}))
    history = [{"at": 1.0, "text": f"failed: {reason}"}]
    stub.on("GET /v1/jobs/12", answer({**failed, "processes": [], "history": history}))
    lines = tow("run", "python").stderr.splitlines()
    assert lines == [
        "✗ job 12 failed: command not found: python after 3.2 s on gpu1 · tow log 12",
        "  python3 is there",
    ]
    assert tow("status").stdout.endswith("  command not found: python\n")
    shown = tow("show", "12").stdout
    assert "failed: command not found: python\n    python3 is there\n" in shown
    assert "failed: command not found: python · python3 is there" in shown
