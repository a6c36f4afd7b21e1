"""Time limits on a real Slurm: stopped, warned, or into the queue again."""

import pytest

from e2e.jobs import ended, show, submit
from e2e.slurm_jobs import configure
from testbed.slurm import Slurm
from testbed.tow import Tow

pytestmark = pytest.mark.real

#: Counts to 100 in its kept folder, across as many runs as it takes.
COUNT = """\
import os, time
file = os.path.join(os.environ["KEEP_DIR"], "count")
count = int(open(file).read()) if os.path.exists(file) else 0
print("from", count, flush=True)
while count < 100:
    count += 1
    with open(file + ".new", "w") as new:
        new.write(str(count))
    os.rename(file + ".new", file)
    time.sleep(0.05)
print("arrived at", count)
"""


def test_job_is_stopped_at_its_time_limit(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    done = tow("run", "-c", "cedar", "--time", "1s", "sh", "-c", "echo begins; exec sleep 300")
    assert done.returncode != 0
    assert done.stdout == "begins\n"
    assert show(tow, 1)["reason"] == "stopped at its time limit"


def test_job_counts_to_100_across_time_limits(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    (tow.folder / "count.py").write_text(COUNT)
    words = ["-c", "cedar", "--time", "2s", "--on-timeout", "resubmit"]
    done = tow("run", *words, "python3", "count.py", timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "from 0"
    assert lines[-1] == "arrived at 100"
    begins = [int(line.split()[1]) for line in lines[:-1]]
    assert len(begins) >= 3
    assert begins == sorted(set(begins))
    shown = show(tow, 1)
    assert shown["attempt"] == 1
    told = [event["text"] for event in shown["history"]]
    assert "in Slurm's queue again: its time limit came" in told


def test_job_across_time_limits_can_be_stopped(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    words = ["-c", "cedar", "--time", "2s", "--on-timeout", "resubmit"]
    job = submit(tow, *words, "sleep", "300")
    assert tow("stop", str(job)).returncode == 0
    assert ended(tow, job)["state"] == "stopped"


def test_signal_comes_before_the_limit(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    script = "trap 'echo warned; exit 0' USR1; echo begins; while :; do sleep 0.1; done"
    words = ["-c", "cedar", "--time", "1m", "--signal", "USR1@55"]
    done = tow("run", *words, "bash", "-c", script, timeout=100)
    assert (done.returncode, done.stdout) == (0, "begins\nwarned\n"), done.stderr
