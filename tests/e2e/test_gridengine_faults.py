"""Batches on a real Grid Engine, whatever is killed meanwhile: none is lost, none runs twice."""

import time

import pytest

from e2e.grid_jobs import configure, longest_array, shell, slots, slow_qsub
from e2e.jobs import ended, show, submit, wait_for
from e2e.test_slurm_arrays import await_end, batch, every_line, lines_run, write_lines
from e2e.test_slurm_faults import end_all_of_the_user
from testbed.gridengine import NODES, GridEngine
from testbed.tow import Tow
from testbed.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(900)]

#: Four are submitted at a time, each with so many lines.
KILLS, AT_ONCE, TASKS = 20, 4, 2
#: Tasks of the long array, and for how long nobody answers for the queue meanwhile.
MANY, DOWN_S = 500, 20.0
#: So many of them run on each host at a time.
WIDE = 30
TOGETHER = "mkdir -p ~/now; touch ~/now/{}; ls ~/now | wc -l >> ~/most; sleep 0.3; rm ~/now/{}; "


def test_a_batch_is_one_array_of_which_so_many_run_at_a_time(
    tow: Tow, gridengine: GridEngine
) -> None:
    configure(tow)
    name = write_lines(tow, 30, TOGETHER + "echo {} >> ~/lines; [ {} != 7 ]")
    done = tow("batch", "-c", "msc", "--max-parallel", "3", name, timeout=200)
    assert done.returncode == 1, done.stderr
    assert await_end(tow) == {"done": 29, "failed": 1}
    assert lines_run(gridengine) == every_line(30)
    most = (gridengine.home("h1") / "most").read_text().split()
    assert max(map(int, most)) <= 3
    numbers = {tow.json("show", str(job))["queue"]["number"] for job in (1, 15, 30)}
    assert len({number.partition("_")[0] for number in numbers}) == 1, numbers


def test_no_line_is_lost_or_runs_twice_whatever_is_killed(tow: Tow, gridengine: GridEngine) -> None:
    """Twenty times everything the user has on the head node, in the middle of qsub: the connection,
    the agent, qsub itself. And once the qmaster, until the Engine has noticed."""
    configure(tow)
    count = KILLS * AT_ONCE * TASKS
    with longest_array(gridengine, TASKS), slow_qsub(gridengine) as queued:
        name = write_lines(tow, count)
        assert tow("batch", "-d", "-c", "msc", name).returncode == 0
        for kill in range(KILLS):
            wait_until(queued.exists, timeout=120, on_timeout=lambda: batch(tow))
            end_all_of_the_user(gridengine)
            queued.unlink()
            if kill == KILLS // 2:
                gridengine.stop_master()
                wait_until(lambda: is_silent(tow), timeout=180, every=0.5)
                gridengine.start_master()
        (gridengine.root("h1") / "tmp/hurry").touch()
        ends = await_end(tow, timeout=500)
        assert ends == {"done": count}, tow("batch", "show", "--state", "failed", "many").stdout
    assert lines_run(gridengine) == every_line(count)


def test_five_hundred_tasks_each_run_once_though_the_qmaster_is_killed_among_them(
    tow: Tow, gridengine: GridEngine
) -> None:
    """For twenty seconds, on a site that heeds no first lines and collects no reasons."""
    gridengine.start_mode("posix_compliant")
    gridengine.tell_why(False)
    configure(tow)
    gate = f"[ {{}} -le {MANY // 5} ] || until [ -e ~/go ]; do sleep 0.2; done"
    name = write_lines(tow, MANY, f"echo {{}} >> ~/lines; {gate}")
    with slots(gridengine, WIDE):
        assert tow("batch", "-d", "-c", "msc", "--no-results", name).returncode == 0
        wait_until(lambda: is_in_the_middle(gridengine), timeout=200, every=0.2)
        gridengine.stop_master()
        down = time.monotonic()
        (gridengine.home("h1") / "go").touch()
        wait_until(lambda: is_calm(tow) and time.monotonic() > down + DOWN_S, timeout=90, every=1.0)
        gridengine.start_master()
        assert await_end(tow, timeout=400) == {"done": MANY}
    assert lines_run(gridengine) == every_line(MANY)


def is_in_the_middle(grid: GridEngine) -> bool:
    """Some have ended, and all others that were begun run. What is on its way to a host when the
    qmaster is killed comes there five minutes later, which is long to wait."""
    states = [line.split()[4] for line in shell(grid, "qstat -s r").splitlines()[2:]]
    return len(lines_run(grid)) > MANY // 5 and states == ["r"] * 2 * WIDE


def is_calm(tow: Tow) -> bool:
    """Nothing is called failed or lost."""
    counts = batch(tow)["counts"]
    assert not counts.get("failed") and not counts.get("lost"), counts
    return True


def is_silent(tow: Tow) -> bool:
    """The Engine has heard that nobody answers, and calls nothing failed or lost for that."""
    is_calm(tow)
    told = tow("status", "--json").stdout
    return "does not answer" in told or "does not take it now" in told


def test_a_job_of_a_host_that_was_cut_off_runs_again_and_only_the_new_run_counts(
    tow: Tow, gridengine: GridEngine
) -> None:
    configure(tow)
    script = "echo start $HOSTNAME >> ~/runs; until [ -e ~/go ]; do sleep 0.2; done; "
    script += "echo end $HOSTNAME | tee -a ~/runs > made"
    job = submit(tow, "-c", "msc", "--requeue", "sh", "-c", script)
    first = wait_for(tow, job, "running", timeout=90)["machines"][0]
    runs = gridengine.home("h1") / "runs"
    gridengine.cut(first)
    (second,) = set(NODES) - {first}
    wait_until(lambda: f"start {second}" in runs.read_text(), timeout=180)
    gridengine.heal(first)
    # The run that was cut off hears that it does not count, and leaves.
    wait_until(
        lambda: "until" not in gridengine.run(first, ["ps", "-eo", "args"]).stdout, timeout=60
    )
    shell(gridengine, "touch go")
    assert ended(tow, job, timeout=120)["state"] == "done"
    assert runs.read_text().splitlines() == [f"start {first}", f"start {second}", f"end {second}"]
    made = tow.folder / f"job_results/{job}/made"
    wait_until(made.exists, timeout=60)
    assert made.read_text() == f"end {second}\n"


def test_a_job_of_a_host_that_died_is_lost_although_grid_engine_says_exit_code_0(
    tow: Tow, gridengine: GridEngine
) -> None:
    configure(tow)
    job = submit(tow, "-c", "msc", "-o", "q=cpu@h3", "sh", "-c", "echo began; exec sleep 600")
    wait_for(tow, job, "running", timeout=90)
    wait_until(lambda: tow("log", str(job)).stdout == "began\n", timeout=60)
    number = show(tow, job)["queue"]["number"]
    gridengine.poweroff("h3")
    gridengine.boot("h3")
    told = ended(tow, job, timeout=180)
    assert told["state"] == "lost" and "h3" in told["reason"], told
    accounts = shell(gridengine, f"qacct -j {number}")
    assert "failed       19  : before writing exit_status" in accounts
    assert "exit_status  0 " in accounts and tow("log", str(job)).stdout == "began\n"
