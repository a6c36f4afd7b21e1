"""A command on this machine, without any configuration."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from e2e.jobs import (
    complaint,
    configure,
    ended,
    engine_pid,
    raw,
    read_line_with,
    resident_mb,
    show,
    submit,
    wait_for,
)
from e2e.person import CTRL_C, Person
from testbed.tow import Tow
from testbed.waiting import wait_until

ODD_WORDS = [
    "two words",
    "it's",
    '"',
    "$HOME",
    "`id`",
    "a\nb\n",
    "ünï 雪 🚀",
    "",
    "*",
    "\\",
    "-x",
    "--",
]
SHOW_WORDS = "import os, sys; print([os.fsencode(word) for word in sys.argv[1:]])"


def test_exit_code_and_both_streams_are_those_of_the_command(tow: Tow) -> None:
    done = tow("run", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert done.returncode == 7
    assert done.stdout == "out\n"
    assert done.stderr.splitlines()[0] == "err"
    assert "exit code 7" in done.stderr.splitlines()[-1]


def test_a_signal_that_ends_the_command_is_said(tow: Tow) -> None:
    done = tow("run", "sh", "-c", "kill -SEGV $$")
    assert done.returncode == 128 + signal.SIGSEGV
    assert "SIGSEGV" in done.stderr


def test_json_lines_carry_the_job_its_output_and_its_end(tow: Tow) -> None:
    done = tow("run", "--json", "-t", "mine", "sh", "-c", "echo hi; exit 3")
    frames = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 3
    assert done.stderr == ""
    assert [frame["text"] for frame in frames if "stream" in frame] == ["hi\n"]
    end = frames[-1]["end"]
    assert (end["title"], end["state"], end["exit_code"]) == ("mine", "failed", 3)
    assert (end["cluster"], end["machines"], end["request"]) == ("local", ["this"], "[]")
    assert end["submitted"] <= end["started"] <= end["ended"]
    assert end["id"] == frames[0]["job"]["id"]
    assert "exit code 3" in end["reason"]


def test_arguments_arrive_exactly_as_typed(tow: Tow) -> None:
    done = raw(tow, "run", "python3", "-c", SHOW_WORDS, *ODD_WORDS, b"\xff\xfe raw")
    expected = [os.fsencode(word) for word in ODD_WORDS] + [b"\xff\xfe raw"]
    assert done.stdout.decode() == f"{expected}\n"


def test_it_runs_in_a_copy_of_the_folder_it_was_submitted_from(tow: Tow, weird_path: Path) -> None:
    (weird_path / "data.txt").write_text("as submitted")
    (weird_path / "sub").mkdir()
    (weird_path / "sub" / "run.sh").write_text("cat ../data.txt; echo new > made; basename $PWD")
    subprocess.run(["git", "init", "-q"], cwd=weird_path, check=True)
    done = tow("run", "sh", "run.sh", cwd=weird_path / "sub")
    assert done.stdout == "as submittedsub\n"
    assert not (weird_path / "sub" / "made").exists()


def test_ignored_files_are_not_sent(tow: Tow) -> None:
    for name in ("kept", "by-git.log", "by-tow.ckpt"):
        (tow.folder / name).write_text(name)
    (tow.folder / ".gitignore").write_text("*.log\n")
    (tow.folder / ".towignore").write_text("*.ckpt\n")
    subprocess.run(["git", "init", "-q"], cwd=tow.folder, check=True)
    done = tow("run", "ls", "-A")
    assert done.stdout.split() == [".gitignore", ".towignore", "kept"]


def test_edits_after_submission_do_not_reach_the_job(tow: Tow) -> None:
    script = tow.folder / "main.sh"
    script.write_text("echo before")
    blocker = submit(tow, "--exclusive", "sleep", "60")
    wait_for(tow, blocker, "running")
    job = submit(tow, "sh", "main.sh")
    assert show(tow, job)["state"] == "queued"
    script.write_text("echo after")
    assert tow("stop", str(blocker)).returncode == 0
    assert tow("attach", str(job)).stdout == "before\n"


def test_detached_job_prints_its_number_and_can_be_attached_to(tow: Tow) -> None:
    done = tow("run", "-d", "-t", "quiet one", "sh", "-c", "echo a; echo b >&2; exit 4")
    assert done.stdout == "job 1\n"
    for command in (["attach"], ["log", "-f"]):
        followed = tow(*command, "quiet one")
        assert (followed.returncode, followed.stdout) == (4, "a\n")
        assert followed.stderr.startswith("b\n")
    plain = tow("log", "last")
    assert (plain.returncode, plain.stdout, plain.stderr) == (0, "a\n", "b\n")


def test_log_follows_output_as_it_comes(tow: Tow) -> None:
    script = "echo first; while [ ! -e go ]; do sleep 0.05; done; echo last"
    job = submit(tow, "sh", "-c", script)
    following = tow.popen("log", "-f", str(job))
    assert read_line_with(following, "first") == "first\n"
    assert tow("exec", str(job), "touch", "go").returncode == 0
    assert following.communicate(timeout=20)[0] == "last\n"


def test_ctrl_c_in_a_pipe_detaches_and_the_job_goes_on(tow: Tow) -> None:
    script = "echo first; while [ ! -e go ]; do sleep 0.05; done; echo last; exit 5"
    following = tow.popen("run", "sh", "-c", script)
    assert read_line_with(following, "first")
    following.send_signal(signal.SIGINT)
    _, said = following.communicate(timeout=20)
    assert following.returncode == 130
    assert "tow attach 1" in said
    assert show(tow, 1)["state"] == "running"
    tow("exec", "1", "touch", "go")
    attached = tow("attach", "1")
    assert (attached.stdout, attached.returncode) == ("first\nlast\n", 5)


def test_ctrl_c_on_a_terminal_stops_the_job_when_told_so(tow: Tow) -> None:
    with Person(tow, "run", "sh", "-c", "echo here; sleep 60") as person:
        person.sees("here")
        person.types(CTRL_C)
        person.sees("[s]top it, [k]eep following, [d]etach?")
        person.types("s")
        assert person.leaves() != 0
    assert show(tow, 1)["state"] == "stopped"


def test_ctrl_c_on_a_terminal_keeps_following_or_detaches(tow: Tow) -> None:
    script = "echo one; while [ ! -e go ]; do sleep 0.05; done; echo two; sleep 60"
    with Person(tow, "run", "sh", "-c", script) as person:
        person.sees("one")
        person.types(CTRL_C)
        person.sees("[d]etach?")
        person.types("k")
        assert tow("exec", "1", "touch", "go").returncode == 0
        person.sees("two")
        assert "one" not in person.shown
        person.types(CTRL_C)
        person.sees("[d]etach?")
        person.types("d")
        assert person.leaves() == 0
        assert "tow attach 1" in person.shown
    assert show(tow, 1)["state"] == "running"


def test_a_job_that_waits_says_what_for_and_ctrl_c_stops_it_before_it_started(tow: Tow) -> None:
    blocker = submit(tow, "--exclusive", "sleep", "60")
    wait_for(tow, blocker, "running")
    with Person(tow, "run", "echo", "never") as person:
        person.sees("waiting: number 1 of 1 that wait in local")
        person.sees("(this: job 1 has the whole machine)")
        person.types(CTRL_C)
        person.sees("[d]etach?")
        person.types("s")
        assert person.leaves() == 130
    assert show(tow, 2)["reason"] == "stopped before it started"


def test_closed_terminal_ends_no_job(tow: Tow) -> None:
    script = "echo here; while [ ! -e go ]; do sleep 0.05; done; echo on"
    with Person(tow, "run", "sh", "-c", script) as person:
        person.sees("here")
        person.closes_the_terminal()
    assert show(tow, 1)["state"] == "running"
    assert tow("exec", "1", "touch", "go").returncode == 0
    attached = tow("attach", "1")
    assert (attached.returncode, attached.stdout) == (0, "here\non\n")


def test_dry_run_shows_what_would_be_sent_and_does_nothing(tow: Tow) -> None:
    (tow.folder / "big.bin").write_bytes(bytes(5000))
    plan = tow.json("run", "--dry-run", "-e", "SEED=7", "python", "train.py")
    assert (plan["files"], plan["bytes"], plan["env"]) == (1, 5000, ["SEED"])
    assert plan["placement"] == [{"machine": "this", "gpus": []}]
    shown = tow("run", "--dry-run", "python", "train.py")
    assert "big.bin" in shown.stdout
    assert "at once on this" in shown.stdout
    assert tow.json("status")["jobs"] == []


def test_variables_come_from_here_and_from_the_options(tow: Tow) -> None:
    words = ["-e", "SEED=7 8", "-e", "FROM_HERE", "sh", "-c", 'echo "$SEED $FROM_HERE $ALSO"']
    done = tow("run", *words, env={"FROM_HERE": "x=y", "ALSO": "inherited"})
    assert done.stdout == "7 8 x=y inherited\n"


def test_setup_runs_first_in_the_same_shell(tow: Tow) -> None:
    done = tow(
        "run", "--setup", "export WHO=setup; cd /", "sh", "-c", "echo $WHO in $PWD: $1", "sh", "a b"
    )
    assert done.stdout == "setup in /: a b\n"


def test_failed_setup_is_said_to_be_the_setup(tow: Tow) -> None:
    done = tow("run", "--setup", "echo preparing; false", "echo", "never")
    assert done.returncode == 1
    assert done.stdout == "preparing\n"
    assert "set-up failed" in done.stderr


def test_time_limit_stops_the_job_and_says_so(tow: Tow) -> None:
    configure(tow)
    done = tow("run", "--time", "1s", "sh", "-c", "echo begun; sleep 60")
    assert done.returncode not in (0, 2)
    assert done.stdout == "begun\n"
    assert "time limit" in done.stderr
    assert "time limit" in show(tow, 1)["reason"]


def test_failed_job_is_tried_again_as_often_as_asked(tow: Tow, tmp_path: Path) -> None:
    count = tmp_path / "count"
    script = f'echo x >> "{count}"; [ $(wc -l < "{count}") = 3 ]'
    done = tow("run", "--retries", "2", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    assert count.read_text() == "x\n" * 3
    count.unlink()
    done = tow("run", "--retries", "1", "sh", "-c", script)
    assert done.returncode == 1
    assert count.read_text() == "x\n" * 2


def test_retry_runs_an_ended_job_again_under_its_number(tow: Tow) -> None:
    (tow.folder / "code").write_text("exit 1")
    assert tow("run", "sh", "code").returncode == 1
    done = tow("retry", "-f", "last")
    assert done.returncode == 1
    assert [job["id"] for job in tow.json("status")["jobs"]] == [1]


def test_higher_priority_goes_first(tow: Tow, tmp_path: Path) -> None:
    order = tmp_path / "order"
    blocker = submit(tow, "--exclusive", "sleep", "60")
    wait_for(tow, blocker, "running")
    jobs = [
        submit(tow, "--exclusive", "--priority", level, "sh", "-c", f"echo {level} >> '{order}'")
        for level in ("-5", "0", "5")
    ]
    tow("stop", str(blocker))
    for job in jobs:
        ended(tow, job)
    assert order.read_text().split() == ["5", "0", "-5"]


def test_every_child_of_a_stopped_job_is_stopped_with_it(tow: Tow, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    child = f"echo $$ >> '{pids}'; exec sleep 300"
    script = f'setsid sh -c "{child}" & (setsid sh -c "{child}" &) ; sh -c "{child}" & wait'
    job = submit(tow, "sh", "-c", script.replace("$$", "\\$\\$"))
    wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 3)
    assert tow("stop", str(job)).returncode == 0
    assert ended(tow, job)["state"] == "stopped"
    running = [pid for pid in pids.read_text().split() if Path(f"/proc/{pid}").exists()]
    assert running == []


def test_job_that_ignores_term_is_killed_after_the_grace_time(tow: Tow) -> None:
    (tow.home / "config.toml").write_text("[engine]\ngrace_s = 1\n")
    script = "trap '' TERM; echo ready; while :; do sleep 0.1; done"
    following = tow.popen("run", "sh", "-c", script)
    read_line_with(following, "ready")
    tow("stop", "1")
    following.communicate(timeout=20)
    assert show(tow, 1)["state"] == "stopped"


def test_stop_now_kills_a_job_that_is_stopping_already(tow: Tow) -> None:
    (tow.home / "config.toml").write_text("[engine]\ngrace_s = 3600\n")
    script = "trap '' TERM; echo ready; while :; do sleep 0.1; done"
    following = tow.popen("run", "sh", "-c", script)
    read_line_with(following, "ready")
    tow("stop", "1")
    wait_for(tow, 1, "stopping")
    assert tow("stop", "--now", "1").returncode == 0
    following.communicate(timeout=20)
    assert show(tow, 1)["state"] == "stopped"


def test_binary_output_arrives_byte_by_byte(tow: Tow) -> None:
    program = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 3)"
    assert raw(tow, "run", "python3", "-c", program).stdout == bytes(range(256)) * 3


@pytest.mark.slow
def test_huge_output_needs_little_memory_in_the_engine(tow: Tow) -> None:
    assert tow("run", "true").returncode == 0
    engine = engine_pid(tow)
    command = "yes 0123456789abcdef0123456789abcdef | head -c 300000000"
    following = tow.popen("run", "sh", "-c", command, encoding="latin-1")
    assert following.stdout is not None
    size, most = 0, 0.0
    while piece := following.stdout.read(1 << 20):
        size += len(piece)
        most = max(most, resident_mb(engine))
    assert following.wait(timeout=30) == 0
    assert size == 300_000_000
    assert most < 250


def test_unknown_command_is_said_and_a_shell_line_is_run_by_a_shell(tow: Tow) -> None:
    done = tow("run", "no-such-command")
    assert done.returncode == 127
    assert "command not found: no-such-command" in done.stderr
    done = tow("run", "echo a | wc -l")
    assert (done.returncode, done.stdout.strip()) == (0, "1")
    done = tow("run", "echo a", "b")
    assert done.returncode == 127 and "\n  to run a shell line: tow run -- sh" in done.stderr


def test_file_that_is_not_executable_is_said_with_a_hint(tow: Tow) -> None:
    (tow.folder / "job.sh").write_text("#!/bin/sh\n")
    done = tow("run", "./job.sh")
    assert done.returncode == 126
    assert "not executable: ./job.sh" in done.stderr
    assert "chmod +x ./job.sh" in done.stderr


def test_folder_that_is_gone_is_a_clear_error(tow: Tow, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f'rmdir "{gone}"; exec "$@"'
    done = subprocess.run(
        ["sh", "-c", script, "sh", *tow.program, "run", "true"],
        cwd=gone,
        env=tow.env,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert "does not exist" in complaint(done, 2)
