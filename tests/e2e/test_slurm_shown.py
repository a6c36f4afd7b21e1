"""What a real Slurm calls a job, where that stands in its queue, and what it was told, is shown."""

import re
import socket

import pytest

from e2e.jobs import ended, show, submit, told, wait_for
from e2e.slurm_jobs import configure, slurm_number
from testbed.slurm import Slurm
from testbed.tow import Tow
from testbed.waiting import wait_until

pytestmark = pytest.mark.real


def test_slurms_number_partition_limit_and_options_are_shown(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    words = ["-o", "partition=gpu", "--time", "1:00:00", "--mem", "300M"]
    following = tow.popen("run", "-c", "cedar", *words, "sh", "-c", "sleep 300")
    line = told(following, "runs on")
    number = slurm_number(slurm)
    node = show(tow, 1)["machines"][0]
    assert line == f"job 1 · cedar · Slurm {number} · runs on {node}\n"
    wait_until(lambda: show(tow, 1)["queue"]["partition"])
    queue = show(tow, 1)["queue"]
    assert queue["number"] == number
    assert (queue["partition"], queue["time_limit"]) == ("gpu", "1:00:00")
    assert "--mem=300M" in queue["options"][0]
    shown = tow("show", "1").stdout
    assert f"{number} (partition gpu, limit 1:00:00)" in shown
    assert "--mem=300M" in shown
    assert f"cedar · {number}" in tow("status").stdout
    assert tow("stop", "1").returncode == 0
    assert ended(tow, 1)["queue"]["number"] == number


def test_a_line_of_a_batch_is_shown_with_its_number_in_the_array(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    (tow.folder / "lines").write_text("true\ntrue\n")
    assert tow("batch", "-c", "cedar", "lines").returncode == 0
    numbers = [show(tow, job)["queue"]["number"] for job in (1, 2)]
    array = numbers[0].partition("_")[0]
    assert numbers == [f"{array}_0", f"{array}_1"]


def test_a_dry_run_shows_what_sbatch_would_be_told(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    words = ["--dry-run", "-c", "cedar", "--mem", "300M", "-o", "partition=gpu", "true"]
    plan = tow.json("run", *words)
    assert plan["queue"][:2] == ["sbatch", "--job-name=true"]
    assert {"--mem=300M", "--partition=gpu"} < set(plan["queue"])
    text = tow("run", *words).stdout
    assert "--mem=300M --partition=gpu" in text
    assert "starts    it goes into Slurm's queue; it would start on h" in text


def test_the_script_of_a_job_can_be_submitted_by_hand(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    (tow.folder / "main.py").write_text("import os; print('by hand', os.environ['COLOUR'])\n")
    words = ["--setup", "export COLOUR=blue", "--mem", "300M"]
    assert tow("run", "-c", "cedar", *words, "python3", "main.py").returncode == 0
    text = tow("show", "1", "--script").stdout
    (slurm.home("h1") / "main.py").write_text((tow.folder / "main.py").read_text())
    text = re.sub(r"^cd .*$", "cd", text, flags=re.MULTILINE)
    (slurm.home("h1") / "job.sh").write_text(text)
    slurm.worker("sbatch", "--output=byhand.out", "job.sh")
    out = slurm.home("h1") / "byhand.out"
    wait_until(lambda: out.exists() and out.read_text() == "by hand blue\n")


def test_a_waiting_job_tells_its_place_and_its_expected_start(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    words = ("-c", "cedar", "--gpus", "2:gtx1060")
    first = submit(tow, *words, "--time", "10:00", "sleep", "300")
    wait_for(tow, first, "running")
    second = submit(tow, *words, "--time", "10:00", "sleep", "300")

    def known() -> bool:
        queue = show(tow, second)["queue"]
        return bool(queue.get("expected") and queue.get("place"))

    wait_until(known, timeout=60, on_timeout=lambda: show(tow, second))
    queue = show(tow, second)["queue"]
    assert (queue["place"], queue["waiting"], queue["reason"]) == (1, 1, "Resources")
    why = tow("why", str(second)).stdout
    assert f"Slurm calls it {queue['number']} (partition main, limit 10:00)" in why
    assert "it has waited for" in why
    assert "number 1 of 1 in main" in why
    assert re.search(r"expected to start at (\S+ )?\d\d:\d\d, in", why), why
    assert "number 1 of 1 in main" in tow("status").stdout


def test_a_job_that_begins_later_says_when(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    job = submit(tow, "-c", "cedar", "-o", "begin=now+1hour", "true")
    wait_until(lambda: "not before" in tow("why", str(job)).stdout, timeout=60)
    assert re.search(r"not before (\S+ )?\d\d:\d\d, in \d+", tow("why", str(job)).stdout)


def test_the_log_of_a_requeued_job_is_whole_while_it_waits_and_why_tells_of_it(
    tow: Tow, slurm: Slurm
) -> None:
    configure(tow)
    job = submit(tow, "-c", "cedar", "--requeue", "sh", "-c", "echo first; sleep 300")
    wait_until(lambda: tow("log", str(job)).stdout == "first\n")
    node = show(tow, job)["machines"][0]
    others = ",".join(sorted({"h2", "h3", "h4"} - {node}))
    slurm.control("scontrol", "update", f"nodename={others}", "state=drain", "reason=kept")
    slurm.poweroff(node)
    wait_for(tow, job, "queued", timeout=90)
    assert tow("log", str(job)).stdout == "first\n"
    wait_until(lambda: "its node failed" in tow("why", str(job)).stdout, timeout=30)
    assert "taken back into the queue at" in tow("why", str(job)).stdout
    following = tow.popen("log", "-f", str(job))
    assert following.stdout is not None
    assert following.stdout.readline() == "first\n"
    slurm.resume_nodes()
    assert following.stdout.readline() == "first\n"


def test_nodes_are_called_as_slurm_calls_them(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    for node in ("h2", "h3"):
        slurm.on_node(node, "hostname", "strange.example.org")
    try:
        words = ("-c", "cedar", "-r", "2:[]", "-o", "nodes=2")
        job = submit(tow, *words, "sh", "-c", "echo $LOCAL_RANK; sleep 300")
        wait_for(tow, job, "running")
        assert show(tow, job)["machines"] == ["h2", "h3"]
        name = ("sh", "-c", "echo $SLURMD_NODENAME")
        assert tow("exec", str(job), *name).stdout == "h2\n"
        assert tow("exec", "--process", "1", str(job), *name).stdout == "h3\n"
        wait_until(lambda: tow("log", str(job)).stdout.count("0\n") == 2)
        assert socket.gethostname() != "strange.example.org"
    finally:
        for node in ("h2", "h3"):
            slurm.on_node(node, "hostname", node)
