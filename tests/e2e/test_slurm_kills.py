"""A large batch on a real Slurm, whatever is killed meanwhile: no line is lost, none runs twice."""

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


def test_no_line_of_2000_is_lost_or_runs_twice_whatever_is_killed(tow: Tow, slurm: Slurm) -> None:
    """Twenty times everything the user has on the access node, in the middle of sbatch: the
    connection, the agent, sbatch itself. And once, between two of these, the controller."""
    configure(tow)
    mark = slurm.root("h1") / "tmp/queued"
    name = write_lines(tow, 2000)
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
        cancelled = cancelled_by_slurm(tow)
        if cancelled and ends == {"done": 2000 - len(cancelled), "failed": len(cancelled)}:
            tow("batch", "retry", "many")
            ends = await_end(tow, timeout=100, meanwhile=slurm.resume_nodes)
        assert ends == {"done": 2000}, tow("batch", "show", "--state", "failed", "many").stdout
    ran = Counter(lines_run(slurm))
    assert sorted(ran) == every_line(2000)
    assert {line for line, times in ran.items() if times > 1} <= cancelled


def cancelled_by_slurm(tow: Tow) -> set[int]:
    """The lines that the restarted controller cancelled while their commands ran: it gives out
    numbers again that nodes still know. What has begun is nobody's to begin again unasked."""
    jobs = tow.json("batch", "show", "--state", "failed", "many")["jobs"]
    return {job["line"] for job in jobs if job["started"] and job["reason"] == "cancelled in Slurm"}
