"""A Grid Engine's commands where there is none: on this machine, and on one that ssh reaches."""

import os
import signal
import time
from pathlib import Path

import pytest

from e2e.jobs import configure, ended, show, wait_for
from testbed.hosts import Hosts
from testbed.tow import Tow
from testbed.waiting import wait_until

SCRIPT = """#!/usr/bin/env python3
#$ -j n
import os, sys, time
import beside
print(os.environ["MLP_DATA_DIR"], os.environ["OUTPUT_DIR"], os.environ["JOB_ID"], *sys.argv[1:])
print(os.environ["SGE_TASK_ID"], file=sys.stderr)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
print("the end")
"""


def lines_of(table: str) -> list[str]:
    return table.splitlines()[2:]


def test_the_walk_through_on_this_machine(tow: Tow, tmp_path: Path) -> None:
    home, gate = tmp_path / "home", tmp_path / "gate"
    home.mkdir()
    (tow.folder / "train.py").write_text(SCRIPT)
    (tow.folder / "beside.py").touch()
    words = ("-q", "cpu", "-v", "MLP_DATA_DIR=/disk/data,OUTPUT_DIR=$HOME/experiments")
    env = {"HOME": str(home)}
    told = tow("qsub", *words, "train.py", str(gate), "a  b", env=env)
    assert told.stdout == 'Your job 1 ("train.py") has been submitted\n', told.stderr
    out = home / "train.py.o1"
    first = f"/disk/data {home}/experiments 1 {gate} a  b\n"
    wait_until(lambda: out.exists() and out.read_text() == first, timeout=60)
    assert " train.py   " in tow("qstat").stdout and " r     " in tow("qstat").stdout
    gate.touch()
    assert ended(tow, 1)["state"] == "done"
    assert out.read_text() == first + "the end\n"
    assert (home / "train.py.e1").read_text() == "undefined\n"
    assert tow("qstat").stdout == ""


def test_an_array_a_hold_and_sync_on_this_machine(tow: Tow) -> None:
    script = '#!/bin/sh\n#$ -N arr -cwd -j y\necho "$SGE_TASK_ID of $JOB_ID"; exit "$1"\n'
    (tow.folder / "task.sh").write_text(script)
    told = tow("qsub", "-t", "2-6:2", "task.sh", "0")
    assert told.stdout == 'Your job-array 1.2-6:2 ("arr") has been submitted\n', told.stderr
    held = tow("qsub", "-terse", "-cwd", "-hold_jid", "arr", "-b", "y", "-N", "next", "cat", "arr*")
    assert held.stdout == "4\n"
    assert ended(tow, 4)["state"] == "done"
    assert (tow.folder / "next.o4").read_text() == "2 of 1\n4 of 1\n6 of 1\n"
    failed = tow("qsub", "-sync", "y", "-cwd", "task.sh", "3")
    assert (failed.returncode, failed.stderr) == (3, "Job 5 exited with exit code 3.\n")
    words = ("-sync", "y", "-t", "1-3", "-cwd", "-b", "y", "-N", "each")
    each = tow("qsub", *words, "exit $SGE_TASK_ID")
    ends = [f"Job 6.{task} exited with exit code {task}." for task in (1, 2, 3)]
    assert each.returncode in (1, 2, 3) and sorted(each.stderr.splitlines()) == ends
    done = tow("qsub", "-sync", "y", "-cwd", "-b", "y", "true").stdout
    assert done.endswith("Job 9 exited with exit code 0.\n")
    record = dict(line.split()[:2] for line in tow("qacct", "-j", "5").stdout.splitlines()[1:])
    assert (record["jobname"], record["failed"], record["exit_status"]) == ("arr", "0", "3")
    assert tow("qacct", "-j", "99").stderr == "error: job id 99 not found\n"
    assert tow("qacct", "-j", "1", "-t", "4").stdout.count("taskid") == 1
    missing = tow("qsub", "nofile.sh")
    assert missing.returncode == 14 and "error opening nofile.sh" in missing.stderr


def test_what_has_no_place_to_write_to_or_to_run_is_refused_at_once(tow: Tow) -> None:
    """A Grid Engine takes it, and sets it aside or never starts it."""
    for words, told in {
        ("-o", "/no/such/x"): 'can\'t open output file "/no/such/x": No such file or directory',
        ("-e", "logs/"): "can't open output file \"/",
        ("-q", "any@here", "-l", "h=nosuch"): 'can\'t resolve hostname "nosuch"',
        ("-l", "hostname=no*such"): 'can\'t resolve hostname "no*such"',
    }.items():
        refused = tow("qsub", *words, "-cwd", "-b", "y", "true")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr.startswith(f"Unable to run job: {told}"), refused.stderr
    assert not tow.json("status", "-a")["jobs"]
    words = ("-cwd", "-b", "y", "-N", "here", "-l", "h=*", "env | grep QSUB_; mkdir logs; exit 0")
    assert tow("qsub", *words).returncode == 0
    # What it waits for may make the folder.
    after = ("-hold_jid", "here", "-o", "logs/", "-sync", "y", "-N", "next", "echo there")
    assert tow("qsub", *words[:3], *after).returncode == 0
    assert (tow.folder / "logs/next.o2").read_text() == "there\n"
    assert (tow.folder / "here.o1").read_text() == ""
    assert show(tow, 2)["command"] == ["/bin/sh", "-c", 'eval "$QSUB_JOB"', "next", "echo there"]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_who_waits_no_longer_wants_the_job_no_longer(tow: Tow, how: signal.Signals) -> None:
    waiting = tow.popen(
        "qsub", "-sync", "y", "-t", "1-2", "-tc", "1", "-cwd", "-b", "y", "sleep 300"
    )
    assert waiting.stdout is not None and waiting.stdout.readline().startswith(
        "Your job-array 1.1-2"
    )
    wait_for(tow, 1, "running")
    waiting.send_signal(how)
    _, told = waiting.communicate(timeout=60)
    assert (waiting.returncode, told) == (1, "\nInterrupted!\nPlease wait while qsub shuts down.\n")
    assert {ended(tow, job)["state"] for job in (1, 2)} == {"stopped"}


@pytest.mark.real
def test_output_of_a_machine_elsewhere_grows_here(tow: Tow, hosts: Hosts) -> None:
    configure(tow, "h1")
    script = (
        'echo "$OUTPUT_DIR"; echo oops >&2; while [ ! -e ~/gate ]; do sleep 0.1; done; echo end'
    )
    (tow.folder / "job.sh").write_text(script)
    told = tow("qsub", "-q", "lab", "-cwd", "-v", "OUTPUT_DIR=~/experiments", "job.sh")
    assert told.stdout == 'Your job 1 ("job.sh") has been submitted\n', told.stderr
    out, err = tow.folder / "job.sh.o1", tow.folder / "job.sh.e1"
    wait_until(lambda: out.read_text().endswith("/experiments\n"), timeout=60)
    assert out.read_text().startswith("/")
    wait_for(tow, 1, "running")
    Path(hosts.home("h1"), "gate").touch()
    wait_until(lambda: out.read_text().endswith("/experiments\nend\n"), timeout=60)
    wait_until(lambda: err.read_text() == "oops\n", timeout=60)
    notes = tow.home / "qsub"
    wait_until(lambda: not [name for name in os.listdir(notes) if name.endswith(".json")])


def test_a_held_job_waits_for_qrls_over_a_restart_and_a_later_one_for_its_time(tow: Tow) -> None:
    begin = time.time() + 6
    at = time.strftime("%Y%m%d%H%M.%S", time.localtime(begin))
    words = ("-terse", "-cwd", "-b", "y", "-N")
    assert tow("qsub", "-h", *words, "held", "true").stdout == "1\n"
    assert tow("qsub", "-h", "-t", "1-3", *words, "arr", "true").stdout == "2.1-3:1\n"
    assert tow("qsub", "-a", at, *words, "later", "true").stdout == "5\n"
    shown = {(line[:7].strip(), line[40:46].strip()) for line in lines_of(tow("qstat").stdout)}
    assert shown >= {("1", "hqw"), ("2", "hqw")}
    assert "is held: `tow qrls 1` lets it go" in tow("why", "1").stdout
    assert "is held: `tow qrls 2` lets it go" in tow("why", "arr").stdout
    assert show(tow, 5)["begin"] == pytest.approx(begin, abs=1.5)
    tow("engine", "stop")
    assert [show(tow, job)["state"] for job in (1, 2)] == ["waiting", "queued"]
    freed = tow("qrls", "1", "arr", "99")
    told = 'modified hold of job 1\nmodified hold of job 2\ndenied: job "99" does not exist\n'
    assert (freed.returncode, freed.stdout) == (3, told)
    for job in (1, 2, 3, 4, 5):
        assert ended(tow, job)["state"] == "done"
    assert show(tow, 5)["started"] >= int(begin)


def test_qhold_keeps_back_what_waits_and_now_takes_no_place_later(tow: Tow) -> None:
    gate = tow.folder / "gate"
    wait = ("-b", "y", "-terse", "-cwd", "-N", "first", f"until [ -e {gate} ]; do sleep .1; done")
    assert tow("qsub", "-pe", "smp", "1", *wait).stdout == "1\n"
    after = ("-hold_jid", "first", "-b", "y", "-terse", "-cwd", "true")
    assert tow("qsub", *after).stdout == "2\n"
    assert tow("qhold", "2").stdout == "modified hold of job 2\n"
    wait_for(tow, 1, "running")
    late = tow("qhold", "1")
    assert late.returncode == 1 and 'denied: job "1" has begun' in late.stdout
    at_once = tow("qsub", "-now", "y", "-cwd", "-b", "y", "true")
    assert at_once.returncode == 0, at_once.stderr
    assert "Your immediate job 3 has been successfully scheduled." in at_once.stderr
    never = tow("qsub", "-now", "y", "-h", "-cwd", "-b", "y", "true")
    assert (never.returncode, never.stdout) == (1, 'Your job 4 ("true") has been submitted\n')
    assert never.stderr.splitlines() == [
        "Waiting for immediate job to be scheduled.",
        "",
        "Your qsub request could not be scheduled; try again later.",
    ]
    gate.touch()
    assert ended(tow, 1)["state"] == "done"
    assert (show(tow, 2)["state"], show(tow, 4)["state"]) == ("waiting", "stopped")
    tow("qrls", "2")
    assert ended(tow, 2)["state"] == "done"
