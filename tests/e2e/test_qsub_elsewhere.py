"""Grid Engine's commands, typed here: jobs run on a real Grid Engine, or on a Slurm."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e import grid_jobs, slurm_jobs
from e2e.boards import python_for_hosts
from e2e.grid_jobs import GATE, close_all, gated, shell
from e2e.jobs import ended, show
from testbed.gridengine import GridEngine
from testbed.slurm import Slurm
from testbed.tow import Tow
from testbed.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "gridengine" / "train.py"
VARIABLES = "MLP_DATA_DIR=$HOME/data,OUTPUT_DIR=$HOME/experiments"


@contextmanager
def at_home(tow: Tow, home: Path) -> Iterator[None]:
    """With a home of one's own here, where output is looked for."""
    home.mkdir()
    before, tow.env = tow.env, tow.env | {"HOME": str(home)}
    try:
        yield
    finally:
        tow.env = before


def walk_through(tow: Tow, home: Path, *queue: str) -> None:
    """As the guide types it: submit, look, read the output, delete; what was made is home."""
    (tow.folder / "train.py").write_text(EXAMPLE.read_text())
    with at_home(tow, home):
        told = tow("qsub", *queue, "-v", VARIABLES, "train.py", "600", "0.2")
        assert told.stdout == 'Your job 1 ("train.py") has been submitted\n', told.stderr
        out = home / "train.py.o1"
        wait_until(lambda: "epoch 2: loss" in out.read_text(), timeout=90)
        (line,) = tow("qstat").stdout.splitlines()[2:]
        assert line.split()[0] == "1" and line.split()[4] == "r" and "@" in line
        assert tow("qdel", "1").stdout.endswith(" has registered the job 1 for deletion\n")
        assert ended(tow, 1, timeout=60)["state"] == "stopped"
        assert tow("qstat").stdout == ""
        made = tow.folder / "job_results/1/OUTPUT_DIR"
        wait_until(lambda: list(made.glob("*/checkpoint.npz")), timeout=60)
        assert list(made.glob("*/*tfevents*"))
        words = ("-sync", "y", "-cwd", "-N", "short", "-j", "y", "-v", VARIABLES)
        done = tow("qsub", *queue, *words, "train.py", "2", "0")
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith("Job 2 exited with exit code 0.\n")
        made = tow.folder / "job_results/short"
        made = made if made.exists() else tow.folder / "job_results/2"
        wait_until(lambda: list(made.glob("OUTPUT_DIR/*/statistics.npz")), timeout=60)
        joined = tow.folder / "short.o2"
        wait_until(lambda: "epoch 2: loss" in joined.read_text(), timeout=60)


DATA = "mkdir data experiments; seq 9 | sed 's/.*/&,&/' >data/points.csv"


def test_the_walk_through_by_qsub_on_a_grid_engine(
    tow: Tow, gridengine: GridEngine, tmp_path: Path
) -> None:
    """On a site as it is installed: it heeds no first lines, and collects no reasons."""
    gridengine.start_mode("posix_compliant")
    gridengine.tell_why(False)
    with python_for_hosts() as setup:
        grid_jobs.configure(tow, f'setup = "{setup}"')
        tow("clusters", "default", "msc")
        shell(gridengine, DATA)
        walk_through(tow, tmp_path / "home", "-q", "cpu")
    assert "$HOME" not in shell(gridengine, "ls").split()


def test_the_walk_through_by_qsub_on_a_slurm(tow: Tow, slurm: Slurm, tmp_path: Path) -> None:
    with python_for_hosts() as setup:
        slurm_jobs.configure(tow, f'setup = "{setup}"')
        slurm.worker("bash", "-lc", DATA)
        walk_through(tow, tmp_path / "home", "-q", "cedar")


def states(tow: Tow) -> dict[str, str]:
    return {line.split()[0]: line[40:45].strip() for line in tow("qstat").stdout.splitlines()[2:]}


def test_states_of_a_grid_engine_are_shown_as_its_own(tow: Tow, gridengine: GridEngine) -> None:
    grid_jobs.configure(tow)
    words = ("-q", "msc", "-terse", "-cwd", "-b", "y", "-N")
    assert tow("qsub", *words, "long", "sleep 300").stdout == "1\n"
    held = ("-hold_jid", "long", *words, "next", "true")
    assert tow("qsub", *held).stdout == "2\n"
    assert tow("qsub", "-h", *words, "held", "true").stdout == "3\n"
    wait_until(lambda: states(tow) == {"1": "r", "2": "hqw", "3": "hqw"}, timeout=60)
    number = show(tow, 1)["queue"]["number"]
    shell(gridengine, f"qmod -sj {number}")
    wait_until(lambda: states(tow)["1"] == "s", timeout=60)
    assert len(tow("qstat", "-s", "s").stdout.splitlines()) == 3
    shell(gridengine, f"qmod -usj {number}")
    wait_until(lambda: states(tow)["1"] == "r", timeout=60)
    assert {line.split()[0] for line in tow("qhost").stdout.splitlines()} >= {"h2", "h3"}
    queues = tow("qstat", "-f").stdout
    assert "cpu@h2  " in queues and " - PENDING JOBS" in queues
    # Taken back while no host takes it, and asked to end, which takes its time.
    script = "echo run $RESTARTED >> ~/runs; sleep 300 & wait"
    script = f"trap 'until [ -e ~/bye ]; do sleep 0.1; done' TERM; {script}"
    assert tow("qsub", "-r", "y", *words, "again", script).stdout == "4\n"
    wait_until(lambda: states(tow)["4"] == "r", timeout=60)
    close_all(gridengine)
    shell(gridengine, f"qmod -rj {show(tow, 4)['queue']['number']} || :")
    wait_until(lambda: states(tow)["4"] == "Rq", timeout=60)
    gridengine.control("qmod", "-e", "*")
    runs = gridengine.home("h1") / "runs"
    wait_until(lambda: runs.read_text() == "run 0\nrun 1\n", timeout=60)
    wait_until(lambda: states(tow)["4"] == "r", timeout=60)
    tow("qdel", "again")
    assert states(tow)["4"] == "dr"
    shell(gridengine, "touch bye")
    tow("qdel", "long")
    assert ended(tow, 2, timeout=60)["state"] == "done", "whatever became of the one before it"
    assert ended(tow, 4, timeout=60)["state"] == "stopped"
    assert states(tow) == {"3": "hqw"}
    tow("qrls", "held")
    assert ended(tow, 3, timeout=60)["state"] == "done"


def test_a_job_that_was_set_aside_is_on_its_way_once_it_is_retried(
    tow: Tow, gridengine: GridEngine
) -> None:
    grid_jobs.configure(tow)
    words = ("-q", "msc", "-terse", "-cwd", "-b", "y", "-N")
    with gated(gridengine) as opened:
        assert tow("qsub", *words, "gated", "true").stdout == "1\n"
        wait_until(lambda: states(tow) == {"1": "Eqw"}, timeout=60)
        assert "error reason          1:      " in tow("qstat", "-j", "1").stdout
        gate = gridengine.root("h1") / GATE[1:]
        gate.write_text(f"#!/bin/sh\nuntil [ -e {opened} ]; do sleep 0.2; done\n")
        tow("retry", "1")
        # It has a host, whose prolog takes its time.
        wait_until(lambda: states(tow) == {"1": "t"}, timeout=60)
        shell(gridengine, f"touch {opened}")
        assert ended(tow, 1, timeout=60)["state"] == "done"


def test_what_a_grid_engine_does_not_have_is_refused_before_anything_is_queued(
    tow: Tow, gridengine: GridEngine
) -> None:
    grid_jobs.configure(tow)
    tow("clusters", "default", "msc")
    (tow.folder / "job.sh").write_text("true\n")
    refused = tow("qsub", "-q", "nosuch", "-cwd", "job.sh")
    assert (refused.returncode, refused.stdout) == (1, "")
    said = 'Unable to run job: Job was rejected because job requests unknown queue "nosuch"\n'
    assert refused.stderr.startswith(said), refused.stderr
    for words in (("-pe", "nosuch", "2"), ("-l", "nosuchres=1")):
        other = tow("qsub", *words, "-cwd", "job.sh")
        assert (other.returncode, other.stdout) == (1, "")
        assert "nosuch" in other.stderr and other.stderr.endswith("Exiting.\n")
    assert "smp" in tow("qsub", "-pe", "nosuch", "2", "-cwd", "job.sh").stderr
    assert tow("qstat").stdout == "" and shell(gridengine, "qstat").strip() == ""
