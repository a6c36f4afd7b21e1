"""The test Grid Engine itself: what the tests of that backend rely on."""

import pytest

from testbed import gridengine as testbed
from testbed.gridengine import GridEngine
from testbed.slot import TestbedError
from testbed.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]


def shell(grid: GridEngine, text: str) -> str:
    """Typed by the ordinary user, in a shell that logs in."""
    return grid.worker("bash", "-lc", text).strip()


def test_a_script_of_an_ordinary_user_runs_on_a_host_without_our_environment(
    gridengine: GridEngine,
) -> None:
    shell(gridengine, "printf '#!/usr/bin/python3\nimport os; print(sorted(os.environ))' >job.py")
    said = shell(gridengine, "qsub -q cpu -sync y -j y -o out -N first job.py; cat out")
    assert "exited with exit code 0" in said
    assert "JOB_ID" in said and "SGE_TASK_ID" in said
    assert "PYTHONUNBUFFERED" not in said and "TOWLINE" not in said


def test_a_posix_compliant_queue_does_not_heed_the_first_line_of_a_script(
    gridengine: GridEngine,
) -> None:
    gridengine.start_mode("posix_compliant")
    shell(gridengine, "printf '#!/usr/bin/python3\nprint(6 * 7)' >job.py")
    shell(gridengine, "qsub -q cpu -sync y -j y -o posix job.py || :")
    assert "42" not in shell(gridengine, "cat posix")
    gridengine.restore()
    assert "unix_behavior" in gridengine.control("qconf", "-sq", "cpu")


def test_the_scheduler_says_why_a_job_waits_or_does_not(gridengine: GridEngine) -> None:
    number = shell(gridengine, "qsub -terse -q cpu -l arch=odd -b y -N odd true")
    asked = f"qstat -j {number}"
    wait_until(lambda: "because it offers only" in shell(gridengine, asked), timeout=60)
    gridengine.tell_why(False)
    wait_until(lambda: "is turned off" in shell(gridengine, asked), timeout=60)
    assert "cannot run" in shell(gridengine, f"qalter -w p {number} || :")
    shell(gridengine, f"qdel {number}")


def test_a_job_goes_on_while_the_qmaster_is_dead(gridengine: GridEngine) -> None:
    wait = "while [ ! -e go ]; do sleep 0.1; done; echo on >went"
    shell(gridengine, f"rm -f go went; echo '{wait}' >job.sh")
    number = shell(gridengine, "qsub -terse -q cpu -cwd -o /dev/null -j y job.sh")
    running = f"qstat -s r | grep -w {number} || :"
    wait_until(lambda: " r " in shell(gridengine, running), timeout=90)
    gridengine.stop_master()
    assert gridengine.run("h1", ["bash", "-lc", "qstat"]).returncode == 1
    shell(gridengine, "touch go")
    wait_until(lambda: (gridengine.home("h1") / "went").exists(), timeout=60)
    gridengine.start_master()
    wait_until(
        lambda: gridengine.run("h1", ["bash", "-lc", f"qacct -j {number}"]).returncode == 0,
        timeout=150,
    )


def test_a_missing_part_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testbed, "BINARIES", "/nowhere")
    with pytest.raises(TestbedError, match=r"needs sge_qmaster, .* run: bash .ci/parts"):
        GridEngine().up()
