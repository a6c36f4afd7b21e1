"""A large batch on a real Slurm, whatever is killed meanwhile: no line is lost, none runs twice."""

import re
from collections import Counter

import pytest

from e2e.slurm_jobs import configure
from e2e.test_slurm_arrays import (
    await_end,
    configured,
    every_line,
    lines_run,
    noted,
    write_lines,
)
from e2e.test_slurm_faults import end_all_of_the_user
from testbed.slurm import Slurm
from testbed.tow import Tow
from testbed.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(600)]

#: Says when the real one has done its work, and then takes its time to answer.
SLOW = "touch /tmp/queued; [ -e /tmp/hurry ] || sleep 20; "


#: In the controller's log: a node cancels what has this number, a whole array with all its tasks.
CANCELLED_BY_A_NODE = re.compile(r"REQUEST_KILL_JOB JobId=([0-9]+) uid 0$", re.MULTILINE)


def test_no_line_of_2000_is_lost_or_runs_twice_whatever_is_killed(tow: Tow, slurm: Slurm) -> None:
    """Twenty times everything the user has on the access node, in the middle of sbatch: the
    connection, the agent, sbatch itself. And once, between two of these, the controller."""
    configure(tow)
    mark = slurm.root("h1") / "tmp/queued"
    name = write_lines(tow, 2000)
    log_before = len(slurm.controller_log())
    with configured(slurm, "MaxArraySize=1001", "MaxArraySize=26"), noted(slurm, then=SLOW):
        assert tow("batch", "-d", "-c", "cedar", name).returncode == 0
        for kill in range(20):
            # A killed controller does not know which numbers it gave out last, and nodes that know
            # them wait for somebody.
            wait_until(lambda: slurm.resume_nodes() or mark.exists(), timeout=120, every=0.2)
            end_all_of_the_user(slurm)
            mark.unlink()
            if kill == 10:
                slurm.stop_controller()
                slurm.start_controller()
        (slurm.root("h1") / "tmp/hurry").touch()
        ends = await_end(tow, timeout=400, meanwhile=slurm.resume_nodes)
        killed = killed_by_slurm(tow, slurm.controller_log()[log_before:])
        if killed:
            assert ends == {"done": 2000 - len(killed), "failed": len(killed)}
            assert max(Counter(lines_run(slurm)).values()) == 1
            tow("batch", "retry", "many")
            ends = await_end(tow, timeout=100, meanwhile=slurm.resume_nodes)
        assert ends == {"done": 2000}, tow("batch", "show", "--state", "failed", "many").stdout
    ran = Counter(lines_run(slurm))
    assert sorted(ran) == every_line(2000)
    assert {line for line, times in ran.items() if times > 1} <= killed


def killed_by_slurm(tow: Tow, log: str) -> set[int]:
    """The lines whose commands had begun when Slurm itself cancelled them, by its own log.

    This cannot be had stricter. A killed controller gives numbers out again. A node that still has
    one of them refuses the new job ("already running, do not launch second copy"), and cancels that
    number where it may not be requeued (`_launch_job_fail` in slurmd); it is often the one of an
    array, and then all its tasks are ended, those that run too. What has begun is nobody's to begin
    again unasked; what had not begun is begun anew, and never seen here.
    """
    arrays = set(CANCELLED_BY_A_NODE.findall(log))
    jobs = tow.json("batch", "show", "--state", "failed", "many")["jobs"]
    return {
        job["line"]
        for job in jobs
        if job["started"]
        and job["reason"] == "cancelled in Slurm"
        and job["queue"]["number"].partition("_")[0] in arrays
    }
