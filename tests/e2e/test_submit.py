"""`submit` as the users of cluster_tools type it, on a real Slurm behind its access node."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e.boards import TRAIN, page, python_for_hosts, shows
from e2e.jobs import ENGINE, ended, show, told, wait_for
from e2e.person import CTRL_C, Person
from e2e.slurm_jobs import queue_lines
from e2e.test_cuts import COUNTING, counted
from testbed.slurm import Slurm
from testbed.tow import Tow
from testbed.waiting import wait_until

pytestmark = pytest.mark.real

CEDAR = {"host": "worker@cedar", "sbatch": {"--mem": "300M", "--time": "0:20:00"}, "setup": []}
MAIN = """\
import os, socket
print(socket.gethostname(), os.environ["SLURM_MEM_PER_NODE"], os.environ.get("FROM"))
print(open("data.txt").read().strip(), os.path.basename(os.getcwd()))
open("made.txt", "w").write("made here")
"""


#: Writes five scalars for TensorBoard, then counts until the file `end` is in its home.
TRAIN_AND_COUNT = (
    TRAIN.partition("print(")[0]
    + """\
number = 0
while not os.path.exists(os.path.expanduser("~/end")):
    number += 1
    print("line", number, flush=True)
    time.sleep(0.1)
raise SystemExit(9)
"""
)
SCALARS = "data/plugin/scalars/scalars?run=runs&tag=loss"


@contextmanager
def no_network(slurm: Slurm) -> Iterator[None]:
    """The access node hears us, but we do not hear it; it and its nodes go on as ever."""
    here = slurm.address("h1").rpartition(".")[0] + ".1/32"
    slurm.control("ip", "route", "add", "blackhole", here)
    try:
        yield
    finally:
        slurm.control("ip", "route", "del", "blackhole", here)


@pytest.fixture
def submit(tow: Tow, slurm: Slurm) -> Iterator[Tow]:
    """`submit` in a git repository with uncommitted changes and a `cedar.json`."""
    (tow.home / "config.toml").write_text(ENGINE)
    folder = tow.folder / "code"
    folder.mkdir()
    (folder / "main.py").write_text(MAIN)
    (folder / "data.txt").write_text("committed\n")
    (tow.folder / "cedar.json").write_text(json.dumps(CEDAR))
    git(tow, "init", "-q", "-b", "main")
    git(tow, "add", ".")
    git(tow, "commit", "-q", "-m", "first")
    (folder / "data.txt").write_text("not committed\n")
    submit = Tow(tow.home, slurm.ssh_config, folder)
    submit.program = [sys.executable, "-m", "towline.cli.compat.submit"]
    yield submit
    submit.close()


@contextmanager
def training(submit: Tow) -> Iterator[None]:
    """A `main.py` that writes for TensorBoard, and a set-up with which nodes have one."""
    (submit.folder / "main.py").write_text(TRAIN_AND_COUNT)
    with python_for_hosts() as setup:
        (submit.folder / "cedar.json").write_text(json.dumps({**CEDAR, "setup": [setup]}))
        yield


def git(tow: Tow, *words: str) -> str:
    person = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
    done = subprocess.run(
        ["git", *person, *words], cwd=tow.folder, check=True, capture_output=True, text=True
    )
    return done.stdout


def numbers_in_queue(slurm: Slurm) -> list[str]:
    return [line.split()[0] for line in queue_lines(slurm)]


def test_the_walk_through_as_it_is_typed(tow: Tow, submit: Tow, slurm: Slurm) -> None:
    words = ["-c=cedar.json", "--no-tensorboard", "python3", "main.py"]
    done = submit(*words)
    assert done.returncode == 0, done.stderr
    (node, mem, setup), seen = done.stdout.splitlines()[0].split(), done.stdout.splitlines()[1]
    assert node in ("h2", "h3", "h4")
    assert (mem, setup) == ("300", "None")
    assert seen == "not committed code"
    assert "✓ job 1 done" in done.stderr
    assert (submit.folder / "job_results/1/made.txt").read_text() == "made here"
    # The submitted version stays to be found, and the working copy is as it was.
    branch = show(tow, 1)["branch"]
    assert branch in git(tow, "branch", "--list", "towline/*")
    assert "not committed" in git(tow, "show", f"{branch}:code/data.txt")
    assert git(tow, "status", "--porcelain").splitlines() == [" M code/data.txt"]
    assert [cluster["name"] for cluster in tow.json("clusters")["clusters"]] == ["local"]


def test_options_of_the_command_line_win_over_those_of_the_file(submit: Tow, slurm: Slurm) -> None:
    more = {**CEDAR, "setup": ["export FROM=setup", "true"]}
    (submit.folder / "cedar.json").write_text(json.dumps(more))
    mem = '--sbatch_json={"--mem": "200M", "-p": "gpu"}'
    done = submit("-c", "cedar.json", "--no-tensorboard", mem, "python3", "main.py")
    assert done.stdout.split()[1:3] == ["200", "setup"], done.stderr


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("cedar.json", '{"--mem": "300M"}'),
        ("cedar.yaml", "host: worker@cedar\nsbatch:\n  mem: 300M\n  time: 0:20:00\n"),
        ("cedar.toml", 'host = "cedar"\n[sbatch]\n"--mem" = "300M"\n'),
    ],
)
def test_other_files_do_as_well(submit: Tow, slurm: Slurm, file: str, text: str) -> None:
    (submit.folder / file).write_text(text)
    done = submit("-c", file, "--no-tensorboard", "python3", "main.py")
    assert (done.returncode, done.stdout.split()[1]) == (0, "300"), done.stderr


def test_a_host_that_is_configured_is_that_cluster(tow: Tow, submit: Tow, slurm: Slurm) -> None:
    cluster = '[clusters.big]\nkind = "slurm"\nhost = "cedar"\noptions = { partition = "gpu" }\n'
    (tow.home / "config.toml").write_text(f"{ENGINE}{cluster}")
    for config in ("cedar.json", "big"):
        done = submit("-c", config, "--no-tensorboard", "sh", "-c", "echo $SLURM_JOB_PARTITION")
        assert done.stdout == "gpu\n", done.stderr
    assert [show(tow, job)["cluster"] for job in (1, 2)] == ["big", "big"]


def test_a_command_that_fails_is_told_by_its_own_code(submit: Tow, slurm: Slurm) -> None:
    done = submit("-c=cedar.json", "--no-tensorboard", "sh", "-c", "exit 7")
    assert done.returncode == 7, done.stderr
    failing = {**CEDAR, "setup": ["source /no/such/env", "true"]}
    (submit.folder / "cedar.json").write_text(json.dumps(failing))
    done = submit("-c=cedar.json", "--no-tensorboard", "echo", "never")
    assert done.stdout == ""
    assert "set-up failed" in done.stderr


def test_what_slurm_refuses_is_told_and_nothing_is_sent(submit: Tow, slurm: Slurm) -> None:
    done = submit("-c=cedar.json", '--sbatch_json={"--mem": "900G"}', "true")
    assert done.returncode == 2
    assert done.stderr.startswith("submit: ") and "Slurm would refuse it" in done.stderr
    assert "Traceback" not in done.stderr
    assert queue_lines(slurm) == []


def test_ctrl_c_and_yes_cancels_the_job_in_slurm(tow: Tow, submit: Tow, slurm: Slurm) -> None:
    with Person(submit, "-c=cedar.json", "--no-tensorboard", "sleep", "300") as person:
        person.sees("runs on h", timeout=60)
        (number,) = numbers_in_queue(slurm)
        person.types(CTRL_C)
        person.sees("Cancel job 1? [y]es")
        person.types("yes\n")
        person.sees("job 1 stopped", timeout=60)
        assert person.leaves() == 130
    told = slurm.worker("scontrol", "show", "job", number)
    assert "JobState=CANCELLED" in told
    assert numbers_in_queue(slurm) == []
    assert show(tow, 1)["state"] == "stopped"


def test_ctrl_c_and_no_keeps_it_and_goes_on(tow: Tow, submit: Tow, slurm: Slurm) -> None:
    with Person(submit, "-c=cedar.json", "--no-tensorboard", "sh", "-c", COUNTING) as person:
        person.sees("line 3\n", timeout=60)
        person.types(CTRL_C)
        person.sees("Cancel job 1? [y]es")
        person.types("what?\n")
        person.sees("Cancel job 1? [y]es")
        person.types("no\n")
        person.sees("line 1")
        (slurm.home("h1") / "end").touch()
        assert person.leaves() == 9
    assert counted(tow("log", "1").stdout)
    assert show(tow, 1)["exit_code"] == 9


def test_second_ctrl_c_leaves_and_says_how_to_come_back(
    tow: Tow, submit: Tow, slurm: Slurm
) -> None:
    with Person(submit, "-c=cedar.json", "--no-tensorboard", "sh", "-c", COUNTING) as person:
        person.sees("line 3\n", timeout=60)
        person.types(CTRL_C)
        person.sees("Cancel job 1? [y]es")
        person.types(CTRL_C)
        person.sees("job 1 goes on: tow attach 1")
        assert person.leaves() == 130
    assert show(tow, 1)["state"] == "running"


def test_killed_terminal_loses_nothing_and_attach_brings_all_back(
    tow: Tow, submit: Tow, slurm: Slurm
) -> None:
    with Person(submit, "-c=cedar.json", "--no-tensorboard", "sh", "-c", COUNTING) as person:
        person.sees("line 3\n", timeout=60)
        person.closes_the_terminal()
    wait_for(tow, 1, "running")
    (slurm.home("h1") / "end").touch()
    done = tow("attach", "1")
    assert done.returncode == 9, done.stderr
    assert counted(done.stdout)


def test_without_a_terminal_ctrl_c_leaves_the_job_and_says_so(
    tow: Tow, submit: Tow, slurm: Slurm
) -> None:
    process = submit.popen("-c=cedar.json", "--no-tensorboard", "sh", "-c", COUNTING)
    assert process.stdout is not None and process.stdout.readline() == "line 1\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "job 1 goes on: tow attach 1" in said
    assert show(tow, 1)["state"] == "running"


def test_new_engine_knows_the_cluster_of_a_file_again(tow: Tow, submit: Tow, slurm: Slurm) -> None:
    process = submit.popen("-c=cedar.json", "--no-tensorboard", "sh", "-c", COUNTING)
    assert process.stdout is not None and process.stdout.readline() == "line 1\n"
    assert tow("engine", "stop").returncode == 0
    (slurm.home("h1") / "end").touch()
    # Not `communicate`: it does not see what `readline` has read ahead.
    rest = process.stdout.read()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 9, said
    assert counted("line 1\n" + rest)
    assert show(tow, 1)["cluster"] == "slurm:worker@cedar"
    assert tow("retry", "1").returncode == 0
    assert ended(tow, 1)["attempt"] == 2


@pytest.mark.timeout(300)
def test_tensorboard_and_output_go_on_over_a_broken_network(
    tow: Tow, submit: Tow, slurm: Slurm
) -> None:
    with training(submit):
        process = submit.popen("-c=cedar.json", "python3", "main.py")
        url = told(process, "TensorBoard: http://localhost:").split()[-1]
        shows(f"{url}/{SCALARS}", ", 0.25]")
        with no_network(slurm):
            told(process, "the job goes on, trying again")
        told(process, "connected again")
        assert told(process, "TensorBoard: ").split()[-1] == url
        shows(f"{url}/{SCALARS}", ", 0.25]")
        (slurm.home("h1") / "end").touch()
        out, said = process.communicate(timeout=60)
    assert process.returncode == 9, said
    assert counted(out), out
    assert page(url) == ""


def test_it_stays_until_ctrl_c_and_shows_what_the_job_wrote_at_the_same_address(
    tow: Tow, submit: Tow, slurm: Slurm
) -> None:
    with training(submit):
        submit.env["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        with Person(submit, "-c=cedar.json", "python3", "main.py") as person:
            person.sees("TensorBoard: ", timeout=60)
            wait_until(lambda: "\n" in person.shown)
            url = person.shown.split()[0]
            shows(f"{url}/{SCALARS}", ", 0.25]")
            runs = page(f"{url}/data/runs")
            assert "runs" in runs
            (slurm.home("h1") / "end").touch()
            person.sees("job 1 failed", timeout=60)
            person.sees(f"TensorBoard: {url}\n", timeout=60)
            person.sees("Ctrl-C leaves")
            wait_until(lambda: page(f"{url}/data/runs") == runs, timeout=60)
            person.types(CTRL_C)
            assert person.leaves() == 9
    assert page(url) == ""


@pytest.mark.timeout(300)
def test_network_that_stays_away_asks_and_no_goes_on_when_it_is_back(
    tow: Tow, submit: Tow, slurm: Slurm
) -> None:
    words = ["-c=cedar.json", "--no-tensorboard", "--patience=3", "sh", "-c", COUNTING]
    with Person(submit, *words) as person:
        person.sees("line 3\n", timeout=60)
        with no_network(slurm):
            person.sees("the job goes on, trying again", timeout=90)
            person.sees("could not be reached for 3.0 s.\nCancel job 1? [y]es")
        person.types("no\n")
        person.sees("line", timeout=90)
        (slurm.home("h1") / "end").touch()
        assert person.leaves() == 9
    assert counted(tow("log", "1").stdout)
