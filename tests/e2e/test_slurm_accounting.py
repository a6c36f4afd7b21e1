"""How jobs ended whose own files are silent and whom the controller forgot: the accounts say it."""

import itertools
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e.jobs import ended, engine_pid, show, submit, wait_for
from e2e.slurm_jobs import configure
from testbed.bringing_up import brought_up
from testbed.slurm_accounting import AccountedSlurm
from testbed.tow import Tow
from testbed.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

RUNS = "echo $TOWLINE_JOB >> ~/runs; while [ ! -e ~/go ]; do sleep 0.1; done; exit"
NO_RECORD = "but there is no record of how it ended"


@pytest.fixture(scope="module")
def slurm() -> Iterator[AccountedSlurm]:
    """In place of the usual one: with accounts, and a controller that soon forgets."""
    yield from brought_up(AccountedSlurm())


@contextmanager
def noted(slurm: AccountedSlurm, *programs: str) -> Iterator[Path]:
    """Write down every call of these programs, one line each."""
    calls = slurm.root("h1") / "tmp/calls"
    for program in programs:
        slurm.control("mv", f"/usr/bin/{program}", f"/usr/bin/{program}.real")
        tool = slurm.root("h1") / "usr/bin" / program
        tool.write_text('#!/bin/sh\necho "${0##*/} $*" >> /tmp/calls\nexec $0.real "$@"\n')
        tool.chmod(0o755)
    try:
        yield calls
    finally:
        for program in programs:
            slurm.control("mv", f"/usr/bin/{program}.real", f"/usr/bin/{program}")


def known(slurm: AccountedSlurm) -> dict[str, list[str]]:
    """Slurm's numbers by name, of all that the controller knows, ended ones too."""
    found: dict[str, list[str]] = {}
    for line in slurm.worker("squeue", "-h", "-r", "-t", "all", "-o", "%j %i").splitlines():
        name, number = line.split()
        found.setdefault(name, []).append(number)
    return found


def start_jobs(tow: Tow) -> dict[str, int]:
    """A job, or line of a batch, for each way to end; they run, but for the one that waits."""

    def start(title: str, code: int, *words: str) -> int:
        return submit(tow, "-c", "cedar", "--title", title, *words, "sh", "-c", f"{RUNS} {code}")

    jobs = {name: start(name, code) for name, code in (("done", 0), ("failed", 7), ("gone", 0))}
    jobs["cancelled"] = start("cancelled", 0)
    jobs["node"] = start("node", 0, "-o", "nodelist=h4", "--exclusive")
    (tow.folder / "lines").write_text("".join(f"{RUNS} {code}\n" for code in (0, 3, 0)))
    first = tow.json("batch", "-d", "-c", "cedar", "lines")["first"]
    jobs |= {f"line {index}": first + index for index in range(3)}
    for job in jobs.values():
        wait_for(tow, job, "running")
    jobs["waits"] = start("waits", 0, "-o", "begin=now+1hour")
    wait_until(lambda: "(Slurm: BeginTime)" in show(tow, jobs["waits"])["reason"], every=0.2)
    return jobs


def start_stuck_job(tow: Tow, slurm: AccountedSlurm) -> int:
    """One that cannot even say that it began, until Slurm ends it at its time limit."""
    job = submit(tow, "-c", "cedar", "--title", "stuck", "-o", "begin=now+1hour", "true")
    wait_until(lambda: "stuck" in known(slurm), timeout=30)
    order = attempt_folder(slurm, job) / "order"
    order.unlink()
    os.mkfifo(order, 0o644)
    (number,) = known(slurm)["stuck"]
    slurm.control("scontrol", "update", f"JobId={number}", "StartTime=now")
    wait_until(lambda: "RUNNING" in slurm.worker("squeue", "-h", "-j", number, "-o", "%T"))
    slurm.control("scontrol", "update", f"JobId={number}", "EndTime=now+1")
    return job


def attempt_folder(slurm: AccountedSlurm, job: int) -> Path:
    """What the only attempt of a job was handed over with."""
    (folder,) = (slurm.home("h1") / ".towline/handed").glob(f"*-{job}-1-*")
    return folder


def end_and_forget(slurm: AccountedSlurm, jobs: dict[str, int]) -> list[str]:
    """Let all end, each in its way; the numbers of whom only the accounts know how they did."""
    numbers = known(slurm)
    slurm.worker("scancel", *numbers["waits"], *numbers["cancelled"], numbers["lines"][2])
    slurm.poweroff("h4")
    slurm.control("scontrol", "update", "nodename=h4", "state=down", "reason=test")
    (slurm.home("h1") / "go").touch()
    wait_until(lambda: not known(slurm).keys() - {"stuck"}, timeout=60, every=0.2)
    for place in ("jobs", "records"):
        for folder in (slurm.home("h1") / ".towline" / place).iterdir():
            shutil.rmtree(folder)
    shutil.rmtree(attempt_folder(slurm, jobs["gone"]))
    left = [number for name in numbers.keys() - {"stuck", "gone"} for number in numbers[name]]
    return sorted({number.partition("_")[0] for number in left}, key=int)


def test_ends_that_only_the_accounts_know(tow: Tow, slurm: AccountedSlurm) -> None:
    configure(tow)
    stuck = start_stuck_job(tow, slurm)
    jobs = start_jobs(tow)
    os.kill(engine_pid(tow), signal.SIGKILL)
    forgotten = end_and_forget(slurm, jobs)
    slurm.stop_accounts()
    with noted(slurm, "squeue", "sacct") as calls:
        silent = "Slurm's accounts do not answer"
        wait_until(lambda: silent in show(tow, jobs["waits"])["reason"], timeout=30, every=0.2)
        slurm.start_accounts()
        gone = jobs.pop("gone")
        found = {name: ended(tow, job, 60) for name, job in (jobs | {"stuck": stuck}).items()}
        asked = calls.read_text().splitlines()
    assert {name: (job["state"], job["reason"]) for name, job in found.items()} == {
        "done": ("lost", f"Slurm says COMPLETED, {NO_RECORD}"),
        "failed": ("lost", f"Slurm says FAILED with exit code 7, {NO_RECORD}"),
        "cancelled": ("failed", "cancelled in Slurm"),
        "node": ("lost", "its node failed"),
        "line 0": ("lost", f"Slurm says COMPLETED, {NO_RECORD}"),
        "line 1": ("lost", f"Slurm says FAILED with exit code 3, {NO_RECORD}"),
        "line 2": ("failed", "cancelled in Slurm"),
        "waits": ("failed", "cancelled in Slurm"),
        "stuck": ("failed", "stopped at its time limit"),
    }
    why = tow("why", str(stuck)).stdout
    assert why == f"job {stuck} failed: stopped at its time limit\n"
    # Once for all of them together, and not again before the next look into the queue.
    first = next(line for line in asked if line.startswith("sacct"))
    # The one that is stuck may have been forgotten by then, too.
    named = first.partition("--jobs=")[2].split()[0].split(",")
    assert set(forgotten) <= set(named)
    programs = [line.split()[0] for line in asked]
    assert ("sacct", "sacct") not in itertools.pairwise(programs)
    # Where nobody knows anything, it is certain only that it ran: not again, then.
    assert show(tow, gone)["state"] in ("running", "lost")
    ran = (slurm.home("h1") / "runs").read_text().split()
    assert sorted(map(int, ran)) == sorted({gone, *jobs.values()} - {jobs["waits"]})


EATS = "import time; eaten = b'x' * 400_000_000; time.sleep(60)"


@pytest.mark.parametrize(
    "words",
    [("--mem", "100M"), ("-r", "2:[mem=100M]", "-o", "nodes=2")],
    ids=["alone", "several"],
)
def test_job_that_takes_more_memory_than_it_asked_for_is_told_so(
    tow: Tow, slurm: AccountedSlurm, words: tuple[str, ...]
) -> None:
    configure(tow)
    job = submit(tow, "-c", "cedar", *words, "python3", "-c", EATS)
    found = ended(tow, job, timeout=90)
    assert found["state"] == "failed", found
    assert "killed because it used more memory than it asked for" in found["reason"]
