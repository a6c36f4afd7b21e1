"""What Grid Engine's users know to go wrong, or are used to, on a real one."""

import getpass
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from e2e.grid_jobs import close_all, configure, gated, shell
from e2e.jobs import ended, show, submit, wait_for
from testbed import disk
from testbed.gridengine import QUEUE, GridEngine
from testbed.tow import Tow
from testbed.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

SLOW_S = 120

#: Shows its arguments, what lies beside it, and some variables.
SHOWS = """#!/usr/bin/env python3
import os, sys
import beside
print(sys.argv[1:], beside.__name__, *(repr(os.environ.get(name)) for name in "ABC"))
"""
#: As the guide's own wrapper and script: the variable is not exported.
WRAPPER = "#!/bin/sh\n\nMLP_DATA_DIR='/disk/scratch/mlp/data'\npython3 train.py\n"
TRAIN = "import os\nassert 'MLP_DATA_DIR' in os.environ, 'MLP_DATA_DIR must be set'\n"


def printed(tow: Tow, name: str, count: int = 1) -> list[str]:
    """The lines of a file that grows here, once it has so many."""
    path = tow.folder / name
    wait_until(lambda: len(path.read_text().splitlines()) >= count, timeout=SLOW_S)
    return path.read_text().splitlines()


def test_tasks_run_so_many_at_a_time_and_know_their_steps(tow: Tow, gridengine: GridEngine) -> None:
    configure(tow)
    script = "mkdir -p ~/now; touch ~/now/$SGE_TASK_ID; ls ~/now | wc -l >> ~/most; sleep 0.5\n"
    script += "rm ~/now/$SGE_TASK_ID; echo $SGE_TASK_ID $SGE_TASK_FIRST $SGE_TASK_LAST"
    (tow.folder / "task.sh").write_text(f"{script} $SGE_TASK_STEPSIZE\n#$ -j y\n")
    words = ("-q", "msc", "-cwd", "-t", "1-10:3", "-tc", "2")
    told = tow("qsub", *words, "-N", "arr", "task.sh")
    assert told.stdout == 'Your job-array 1.1-10:3 ("arr") has been submitted\n', told
    for task in (1, 4, 7, 10):
        assert printed(tow, f"arr.o1.{task}") == [f"{task} 1 10 3"]
    most = (gridengine.home("h1") / "most").read_text().split()
    assert len(most) == 4 and max(map(int, most)) <= 2
    alone = tow("qsub", "-q", "msc", "-cwd", "-sync", "y", "-N", "alone", "task.sh")
    # What it printed is here once `qsub -sync y` is over.
    assert (alone.returncode, (tow.folder / "alone.o5").read_text()) == (
        0,
        "undefined " * 3 + "undefined\n",
    )


def test_sync_does_not_wait_for_what_never_ends(tow: Tow, gridengine: GridEngine) -> None:
    """A real qsub waits for ever for a job in error state."""
    configure(tow)
    words = ("-q", "msc", "-sync", "y", "-b", "y", "-N")
    missing = tow("qsub", "-wd", "/no/such", *words, "lost", "true")
    assert missing.returncode == 1 and "/no/such" in missing.stderr, missing
    with gated(gridengine) as opened:
        aside = tow("qsub", *words, "gated", "true", timeout=SLOW_S)
        assert aside.returncode == 1, aside
        assert "Unable to run job 1: " in aside.stderr and "prolog = 100" in aside.stderr
        assert "tow retry 1" in aside.stderr
        assert "Eqw" in tow("qstat").stdout
        assert "prolog = 100" in tow("why", "1").stdout
        shell(gridengine, f"touch {opened}")
        tow("retry", "1")
        assert ended(tow, 1, timeout=SLOW_S)["state"] == "done"
    failed = tow("qsub", *words, "three", "exit 3")
    assert (failed.returncode, failed.stderr) == (3, "Job 2 exited with exit code 3.\n")


def test_a_script_runs_by_its_first_line_with_its_words_and_what_is_beside_it(
    tow: Tow, gridengine: GridEngine
) -> None:
    """On a queue that heeds no first lines, and without the permission to run it."""
    gridengine.start_mode("posix_compliant")
    configure(tow)
    (tow.folder / "py.py").write_text(SHOWS)
    (tow.folder / "py.py").chmod(0o644)
    (tow.folder / "beside.py").touch()
    words = ("-q", "msc", "-cwd", "-j", "y", "-v", "A=1,B=a b,C", "-N", "py")
    tow("qsub", *words, "py.py", "x  y", "$HOME", "*", env={"C": "mine"})
    (line,) = printed(tow, "py.o1")
    assert line == "['x  y', '$HOME', '*'] beside '1' 'a b' 'mine'"
    tow("qsub", "-V", *words[:-4], "-v", "A=2", "-N", "whole", "py.py", env={"A": "1", "B": "b"})
    assert printed(tow, "whole.o2")[0].endswith("beside '1' 'b' None"), "-V wins over -v"
    home = ("-V", "-q", "msc", "-cwd", "-sync", "y", "-b", "y", "-v", "B=$HOME/b", "-N", "home")
    tow("qsub", *home, "echo $HOME $USER $B $A", env={"A": "mine", "USER": "me"})
    own = f"/home/{disk.USER}"
    assert (tow.folder / "home.o3").read_text() == f"{own} {disk.USER} {own}/b mine\n"


def test_a_job_is_on_the_host_that_was_named_and_knows_what_it_was_given(
    tow: Tow, gridengine: GridEngine
) -> None:
    configure(tow)
    script = "hostname; echo $QUEUE $NSLOTS $NHOSTS $PE $RESTARTED; "
    script += "until [ -e ~/go ]; do sleep 0.1; done"
    words = ("-cwd", "-j", "y", "-b", "y", "-terse", "-N")
    tow(
        "qsub",
        "-q",
        "msc@h3",
        "-pe",
        "smp",
        "2-3",
        "-l",
        "h_rt=99,h_vmem=1G",
        *words,
        "one",
        script,
    )
    tow("clusters", "default", "msc")
    tow("qsub", "-q", "cpu@h2", "-l", "gpu=1", *words, "two", script)
    after = ("-hold_jid", "one", "-t", "1-2", *words, "end", "true")
    tow("qsub", *after)
    assert printed(tow, "one.o1", 2) == ["h3", "cpu 3 1 smp 0"]
    assert printed(tow, "two.o2", 2) == ["h2", "cpu 1 1 0"]
    table = tow("qstat", "-r").stdout
    lines = [line.split() for line in table.splitlines() if line[:7].strip().isdigit()]
    assert [(line[4], line[-2:]) for line in lines[:2]] == [
        ("r", ["cpu@h3", "2"]),
        ("r", ["cpu@h2", "1"]),
    ]
    assert "Requested PE:     smp 2\n" in table and "Predecessor Jobs: 1\n" in table
    assert "hard resource_list:         h_vmem=1G,h_rt=99\n" in tow("qstat", "-j", "one").stdout
    (taken,) = (one for one in tow.json("machines", "-c", "msc")["machines"] if one["gpus"])
    assert [(gpu["count"], gpu["free"]) for gpu in taken["gpus"]] == [(2, 1)]
    assert [line.split()[1] for line in tow("qhost", "-h", "h*").stdout.splitlines()[3:]] == [
        "lx-amd64"
    ] * 2
    shell(gridengine, "touch go")
    assert ended(tow, 4, timeout=SLOW_S)["state"] == "done"
    accounts = tow("qacct", "-j", "o*").stdout
    assert "granted_pe   smp                 \n" in accounts and "\nmaxvmem      " in accounts


def test_the_guides_wrapper_fails_with_its_own_words(tow: Tow, gridengine: GridEngine) -> None:
    configure(tow)
    (tow.folder / "mlp-job.sh").write_text(WRAPPER)
    (tow.folder / "train.py").write_text(TRAIN)
    done = tow("qsub", "-q", "msc", "-cwd", "-sync", "y", "mlp-job.sh")
    assert (done.returncode, done.stderr) == (1, "Job 1 exited with exit code 1.\n")
    assert printed(tow, "mlp-job.sh.e1", 3)[-1] == "AssertionError: MLP_DATA_DIR must be set"
    assert tow("log", "1").stderr.endswith("AssertionError: MLP_DATA_DIR must be set\n")
    (tow.folder / "mlp-job.sh").write_text(WRAPPER.replace("MLP_DATA_DIR=", "export MLP_DATA_DIR="))
    assert tow("qsub", "-q", "msc", "-cwd", "-sync", "y", "mlp-job.sh").returncode == 0


def test_options_in_the_middle_of_a_script_count_and_typed_ones_win(
    tow: Tow, gridengine: GridEngine
) -> None:
    configure(tow)
    script = 'echo first\n#$ -N middle -t 1-2 -cwd -j y\necho "$JOB_NAME $SGE_TASK_ID"\n'
    (tow.folder / "job.sh").write_text(script)
    told = tow("qsub", "-q", "msc", "job.sh").stdout
    assert told == 'Your job-array 1.1-2:1 ("middle") has been submitted\n'
    assert printed(tow, "middle.o1.2", 2) == ["first", "middle 2"]
    assert '("mine")' in tow("qsub", "-q", "msc", "-N", "mine", "job.sh").stdout
    assert printed(tow, "mine.o3.1", 2)[1] == "mine 1"


def test_a_job_behind_one_that_failed_begins(tow: Tow, gridengine: GridEngine) -> None:
    configure(tow)
    words = ("-q", "msc", "-cwd", "-terse", "-b", "y", "-N")
    tow("qsub", *words, "first", "until [ -e ~/go ]; do sleep 0.1; done; exit 7")
    tow("qsub", "-hold_jid", "1", *words, "second", "true")
    wait_for(tow, 1, "running", timeout=SLOW_S)
    states = [line.split()[4] for line in tow("qstat").stdout.splitlines()[2:]]
    assert states == ["r", "hqw"]
    shell(gridengine, "touch go")
    assert ended(tow, 2, timeout=SLOW_S)["state"] == "done"
    assert show(tow, 1)["exit_code"] == 7


def test_output_goes_where_it_is_looked_for(tow: Tow, gridengine: GridEngine) -> None:
    configure(tow)
    (tow.folder / "logs").mkdir()
    words = ("-q", "msc", "-cwd", "-sync", "y", "-b", "y", "-N", "o")
    for place in (("-o", "logs/", "-j", "y"), ("-o", "l.$JOB_ID.$TASK_ID", "-t", "1-2")):
        assert tow("qsub", *words, *place, "echo out; echo err >&2").returncode == 0
    made = {"logs/o.o1": "out\nerr\n", "l.2.1": "out\n", "l.2.2": "out\n"}
    made |= {"o.e2.1": "err\n", "o.e2.2": "err\n"}
    for name, text in made.items():
        wait_until(lambda name=name, text=text: (tow.folder / name).read_text() == text, 60)  # type: ignore[misc]
    found = {str(path.relative_to(tow.folder)) for path in tow.folder.rglob("*.*")}
    assert {name for name in found if not name.startswith("job_results")} == set(made)


def test_jobs_are_deleted_by_number_task_name_and_pattern(tow: Tow, gridengine: GridEngine) -> None:
    configure(tow)
    words = ("-q", "msc", "-cwd", "-b", "y", "-terse", "-N")
    assert tow("qsub", *words, "long", "sleep 300").stdout == "1\n"
    wait_for(tow, 1, "running", timeout=SLOW_S)
    close_all(gridengine)
    for number, name in ((2, "arr"), (8, "art")):
        assert tow("qsub", "-t", "1-6", *words, name, "true").stdout == f"{number}.1-6:1\n"
    assert tow("qsub", *words, "other", "true").stdout == "14\n"
    me = getpass.getuser()
    assert tow("qdel", "2.2").stdout == f"{me} has deleted job-array task 2.2\n"
    assert (
        tow("qdel", "2", "-t", "3-5").stdout == f"{me} has deleted job-array tasks 3-5:1 of job 2\n"
    )
    wait_until(lambda: listed(tow) == {"1": "", "2": "1,6", "8": "1-6:1", "14": ""}, SLOW_S)
    several = tow("qdel", "99999", "nosuch", "ar*", "other", "1")
    assert several.returncode == 1 and several.stdout.splitlines() == [
        'denied: job "99999" does not exist',
        f"The job nosuch of user(s) {me} does not exist",
        f"{me} has deleted job 2",
        f"{me} has deleted job 8",
        f"{me} has deleted job 14",
        f"{me} has registered the job 1 for deletion",
    ]
    wait_until(lambda: not listed(tow) and not shell(gridengine, "qstat"), timeout=SLOW_S)
    states = {job["state"] for job in tow.json("status", "-a")["jobs"]}
    assert states == {"stopped"}


def listed(tow: Tow) -> dict[str, str]:
    """The jobs that `qstat` lists, with their tasks."""
    rows = (line.split() for line in tow("qstat").stdout.splitlines()[2:])
    return {row[0]: row[-1] if "-" in row[-1] or "," in row[-1] else "" for row in rows}


def test_limits_are_told_as_what_they_are(tow: Tow, gridengine: GridEngine) -> None:
    """By Grid Engine's own, which kill without a word, and by ours, which asks first."""
    configure(tow)
    own = submit(tow, "-c", "msc", "-o", "l=h_rt=3", "sleep", "100")
    tow("qsub", "-q", "msc", "-terse", "-b", "y", "-l", "h_rt=2", "sleep 100")
    # Several processes, none of which alone is over the limit.
    hog = "a = bytearray(90 << 20); import time; time.sleep(60)"
    script = f"for i in 1 2 3 4; do python3 -c '{hog}' & done; wait"
    over = submit(tow, "-c", "msc", "-o", "l=h_vmem=200M", "sh", "-c", script)
    for job in (own, own + 1):
        assert ended(tow, job, timeout=SLOW_S)["reason"] == "stopped at its time limit"
    reason = ended(tow, over, timeout=SLOW_S)["reason"]
    assert reason == "went over its memory (h_vmem=200M)"
    accounts = tow("qacct", "-j", str(over)).stdout
    assert "37  : qmaster enforced h_rt, h_cpu, or h_vmem limit" in accounts


@contextmanager
def without_rights(grid: GridEngine) -> Iterator[None]:
    """The user may use no queue."""
    grid.control("qconf", "-au", disk.USER, "denied")
    grid.control("qconf", "-rattr", "queue", "xuser_lists", "denied", QUEUE)
    try:
        yield
    finally:
        grid.control("qconf", "-rattr", "queue", "xuser_lists", "NONE", QUEUE)
        grid.control("qconf", "-dul", "denied")


def test_a_job_that_was_taken_with_an_error_is_one_job_that_waits(
    tow: Tow, gridengine: GridEngine
) -> None:
    """Grid Engine says "Unable to run job", exits with 1, and has it all the same."""
    configure(tow)
    assert tow("run", "-c", "msc", "echo", "first").returncode == 0
    with without_rights(gridengine):
        # It was asked just now whether it would take such a job, and is not asked again.
        job = submit(tow, "-c", "msc", "echo", "ran")
        reason = 'has no permission for cluster queue "cpu"'
        wait_until(
            lambda: reason in show(tow, job)["reason"],
            timeout=SLOW_S,
            on_timeout=lambda: show(tow, job),
        )
        assert len(shell(gridengine, "qstat").splitlines()) == 3
        assert show(tow, job)["state"] == "queued"
        # What is asked for anew is refused before anything is sent.
        refused = tow("run", "-c", "msc", "-o", "l=h_rt=99", "true")
        assert refused.returncode == 2 and "not allowed to run in any queue" in refused.stderr
    assert ended(tow, job, timeout=SLOW_S)["state"] == "done"
    assert tow("log", str(job)).stdout == "ran\n"
