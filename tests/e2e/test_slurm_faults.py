"""What goes wrong around a Slurm: no job is lost, none runs twice, and every end is told."""

import os
import signal
from pathlib import Path

import pytest

from e2e.jobs import ended, engine_pid, show, submit, wait_for
from e2e.slurm_jobs import configure, queue_lines, slurm_number, submitted
from testbed import disk
from testbed.daemons import QueueHosts
from testbed.slurm import Slurm
from testbed.tow import Tow
from testbed.waiting import wait_until

pytestmark = pytest.mark.real

WRITE_DOWN = ["sh", "-c", "echo $TOWLINE_JOB >> ~/runs"]


def runs(slurm: Slurm) -> list[int]:
    """The jobs that ran, once for each time."""
    file = slurm.home("h1") / "runs"
    return sorted(map(int, file.read_text().split())) if file.exists() else []


def end_all_of_the_user(slurm: QueueHosts) -> None:
    """Kill everything that the user has on the access node: connection, agent, sbatch."""
    network = os.stat(f"/proc/{slurm.pid('h1')}/ns/net").st_ino
    for entry in os.listdir("/proc"):
        try:
            mine = entry.isdigit() and os.stat(f"/proc/{entry}").st_uid == disk.UID
            if mine and os.stat(f"/proc/{entry}/ns/net").st_ino == network:
                os.kill(int(entry), signal.SIGKILL)
        except (OSError, ProcessLookupError):
            pass


@pytest.mark.timeout(300)
def test_connection_lost_during_sbatch_never_submits_twice(tow: Tow, slurm: Slurm) -> None:
    # sbatch does its work and then takes long to say so: that is when everything is killed.
    slow = (
        '#!/bin/sh\ncase "$*" in *--parsable*) ;; *) exec /usr/bin/sbatch.real "$@"; esac\n'
        '/usr/bin/sbatch.real "$@" > /tmp/said.$$ || exit\n'
        "touch /tmp/queued; sleep 20; cat /tmp/said.$$\n"
    )
    slurm.control("mv", "/usr/bin/sbatch", "/usr/bin/sbatch.real")
    tool = slurm.root("h1") / "usr/bin/sbatch"
    mark = slurm.root("h1") / "tmp/queued"
    of_others = submitted(slurm).keys()
    try:
        tool.write_text(slow)
        tool.chmod(0o755)
        configure(tow)
        jobs = []
        for _ in range(20):
            mark.unlink(missing_ok=True)
            jobs.append(submit(tow, "-c", "cedar", *WRITE_DOWN))
            wait_until(mark.exists, timeout=60)
            end_all_of_the_user(slurm)
        tool.unlink()
        slurm.control("mv", "/usr/bin/sbatch.real", "/usr/bin/sbatch")
        assert [ended(tow, job, timeout=90)["state"] for job in jobs] == ["done"] * 20
    finally:
        if (slurm.root("h1") / "usr/bin/sbatch.real").exists():
            slurm.control("mv", "/usr/bin/sbatch.real", "/usr/bin/sbatch")
    assert runs(slurm) == jobs
    # What other tests left in Slurm's memory may have been handed over again, for good reasons.
    ours = [comment for number, comment in submitted(slurm).items() if number not in of_others]
    assert len(ours) == len(set(ours)) >= len(jobs)


def test_second_entry_of_an_attempt_does_not_run(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    job = submit(tow, "-c", "cedar", *WRITE_DOWN)
    assert ended(tow, job)["state"] == "done"
    (key,) = os.listdir(slurm.home("h1") / ".towline/handed")
    root = "/home/worker/.towline"
    words = ["sbatch", "--wait", "--output=/dev/null", f"{root}/handed/{key}/script", root, key]
    slurm.worker(*words)
    assert runs(slurm) == [job]


def test_controller_that_is_down_delays_jobs_and_loses_none(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    first = submit(tow, "-c", "cedar", "sh", "-c", "while [ ! -e ~/go ]; do sleep 0.1; done")
    wait_for(tow, first, "running")
    slurm.stop_controller()
    second = submit(tow, "-c", "cedar", *WRITE_DOWN)
    (slurm.home("h1") / "go").touch()
    # Its own files tell of its end: Slurm is not needed for that.
    assert ended(tow, first)["state"] == "done"
    wait_until(lambda: "Slurm" in show(tow, second)["reason"], timeout=60, every=0.2)
    assert show(tow, second)["state"] == "queued"
    slurm.start_controller()
    assert ended(tow, second, timeout=90)["state"] == "done"
    assert runs(slurm) == [second]


def test_job_that_the_controller_lost_is_handed_over_again(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    job = submit(tow, "-c", "cedar", "-o", "begin=now+1hour", *WRITE_DOWN)
    wait_until(lambda: "(Slurm: BeginTime)" in show(tow, job)["reason"], every=0.2)
    (before,) = queue_lines(slurm)
    slurm.stop_controller()
    # As when it is killed before it has written down what it had accepted.
    for file in (slurm.root("h1") / "var/spool/testbed-slurmctld").glob("job_state*"):
        file.unlink()
    slurm.start_controller()
    assert queue_lines(slurm) == []
    wait_until(lambda: queue_lines(slurm), timeout=60, every=0.2)
    (after,) = queue_lines(slurm)
    assert after.split()[2] == before.split()[2]
    slurm.worker("scontrol", "update", f"JobId={after.split()[0]}", "StartTime=now")
    assert ended(tow, job, timeout=60)["state"] == "done"
    assert runs(slurm) == [job]


def test_new_engine_finds_waiting_running_and_ended_jobs_again(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    gpus = ["--gpus", "2:gtx1060"]
    wait = "while [ ! -e ~/go ]; do sleep 0.1; done; echo $TOWLINE_JOB >> ~/runs; exit 5"
    running = submit(tow, "-c", "cedar", *gpus, "sh", "-c", wait)
    wait_for(tow, running, "running")
    waiting = submit(tow, "-c", "cedar", *gpus, *WRITE_DOWN)
    wait_until(lambda: len(queue_lines(slurm)) == 2)
    os.kill(engine_pid(tow), signal.SIGKILL)
    (slurm.home("h1") / "go").touch()
    wait_until(lambda: len(runs(slurm)) == 2, timeout=30)
    found = ended(tow, running)
    assert (found["state"], found["exit_code"]) == ("failed", 5)
    assert ended(tow, waiting)["state"] == "done"
    assert runs(slurm) == [running, waiting]


@pytest.mark.timeout(240)
def test_job_stopped_while_the_access_node_is_away_stops_when_it_is_back(
    tow: Tow, slurm: Slurm
) -> None:
    configure(tow)
    job = submit(tow, "-c", "cedar", "sleep", "300")
    wait_for(tow, job, "running")
    slurm.kill("h1")
    assert tow("stop", str(job)).returncode == 0
    slurm.boot("h1")
    # A controller that was killed may not even know it: then its files have the time to speak.
    assert ended(tow, job, timeout=150)["state"] == "stopped"
    wait_until(lambda: queue_lines(slurm) == [], timeout=30)


def test_failed_node_loses_the_job_and_says_so(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    job = submit(tow, "-c", "cedar", "-o", "nodelist=h3", "sleep", "300")
    wait_for(tow, job, "running")
    slurm.poweroff("h3")
    slurm.control("scontrol", "update", "nodename=h3", "state=down", "reason=test")
    found = ended(tow, job, timeout=60)
    assert found["state"] == "lost"
    assert "its node failed" in found["reason"]


def test_requeued_job_runs_again_with_what_it_kept(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    script = (
        "echo run >> $KEEP_DIR/runs; echo run $(wc -l < $KEEP_DIR/runs); "
        "[ $(wc -l < $KEEP_DIR/runs) = 2 ] || sleep 300"
    )
    job = submit(tow, "-c", "cedar", "--requeue", "sh", "-c", script)
    wait_for(tow, job, "running")
    slurm.worker("scontrol", "requeue", slurm_number(slurm))
    wait_for(tow, job, "queued")
    assert ended(tow, job, timeout=60)["state"] == "done"
    assert tow("log", str(job)).stdout == "run 1\nrun 2\n"


def test_requeueable_job_that_is_cancelled_in_slurm_ends(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    job = submit(tow, "-c", "cedar", "--requeue", "sleep", "300")
    wait_for(tow, job, "running")
    slurm.worker("scancel", slurm_number(slurm))
    found = ended(tow, job, timeout=60)
    assert (found["state"], found["reason"]) == ("failed", "cancelled in Slurm")


def test_whoever_follows_a_job_that_is_cancelled_before_it_began_hears_of_it(
    tow: Tow, slurm: Slurm
) -> None:
    configure(tow)
    following = tow.popen("run", "-c", "cedar", "-o", "begin=now+1hour", "true")
    wait_until(lambda: len(queue_lines(slurm)) == 1, timeout=30)
    slurm.worker("scancel", slurm_number(slurm))
    assert following.wait(timeout=60) == 1
    assert following.stderr is not None
    assert "cancelled in Slurm" in following.stderr.read()


def test_folder_that_the_nodes_do_not_share_is_named(tow: Tow, slurm: Slurm) -> None:
    configure(tow, 'folder = "/var/tmp/towline"')
    job = submit(tow, "-c", "cedar", "true")
    found = ended(tow, job, timeout=60)
    assert found["state"] == "failed"
    assert "set `folder`" in found["reason"]


def test_job_whose_runner_is_killed_is_lost_not_failed_and_what_it_made_comes_home(
    tow: Tow, slurm: Slurm
) -> None:
    configure(tow)
    script = "echo said; echo made > made.txt; sleep 300"
    job = submit(tow, "-c", "cedar", "-o", "nodelist=h2", "sh", "-c", script)
    wait_for(tow, job, "running")
    wait_until(lambda: tow("log", str(job)).stdout == "said\n")
    pids = slurm.run("h2", ["pgrep", "-u", "worker", "-f", "towline_agent"]).stdout.split()
    slurm.run("h2", ["kill", "-KILL", *pids])
    found = ended(tow, job, timeout=90)
    assert found["state"] == "lost", found
    assert "no record of how it ended" in found["reason"]
    # It is written down now: it does not begin after all, and its folder can go.
    (folder,) = slurm.home("h1").glob(f".towline/records/*-{job}-1-*0")
    wait_until((folder / "exit").exists)
    home = tow.folder / "job_results"
    wait_until(lambda: (home / f"{job}.out").exists() and (home / str(job) / "made.txt").exists())
    assert (home / f"{job}.out").read_text() == "said\n"


def test_tmpdir_of_the_access_node_is_not_taken_to_nodes_without_it(tow: Tow, slurm: Slurm) -> None:
    (slurm.home("h1") / ".bashrc").write_text("export TMPDIR=/run/user/here\n")
    configure(tow)
    done = tow("run", "-c", "cedar", "python3", "-c", "import tempfile; print(tempfile.mkdtemp())")
    assert Path(done.stdout.strip()).parent == Path("/tmp"), done.stderr
