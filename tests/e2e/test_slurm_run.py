"""Jobs on a real Slurm, from here, through its access node."""

import json
import os
from pathlib import Path

import pytest

from e2e.api import ask
from e2e.jobs import complaint, ended, raw, read_line_with, show, submit, wait_for
from e2e.slurm_jobs import configure, queue_lines, slurm_number
from e2e.test_local_run import ODD_WORDS, SHOW_WORDS
from testbed.slurm import Slurm
from testbed.tow import Tow
from testbed.waiting import wait_until

pytestmark = pytest.mark.real


def test_slurm_shows_three_nodes_with_gpus(slurm: Slurm) -> None:
    lines = slurm.worker("sinfo", "-h", "-N", "-p", "main", "-o", "%N %T %G").splitlines()
    assert lines == ["h2 idle gpu:gtx1070:2", "h3 idle gpu:gtx1070:2", "h4 idle gpu:gtx1060:2"]


def test_command_runs_on_a_node_and_its_results_come_home(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    (tow.folder / "main.py").write_text(
        "import os, socket\n"
        "print(socket.gethostname(), os.environ['SLURM_JOB_PARTITION'])\n"
        "open('made.txt', 'w').write('made here')\n"
    )
    words = ["-c", "cedar", "--time", "3:00:00", "-o", "partition=gpu"]
    done = tow("run", *words, "python3", "main.py")
    assert done.returncode == 0, done.stderr
    node, partition = done.stdout.split()
    assert node in ("h2", "h3", "h4")
    assert partition == "gpu"
    assert (tow.folder / "job_results/1/made.txt").read_text() == "made here"
    shown = show(tow, 1)
    assert (shown["state"], shown["machines"], shown["cluster"]) == ("done", [node], "cedar")
    assert tow("log", "1").stdout == done.stdout
    assert "made.txt" in tow("ls", "1").stdout
    assert tow("cat", "1", "made.txt").stdout == "made here"


def test_exit_code_and_errors_of_the_command_are_its_own(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    done = tow("run", "-c", "cedar", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout) == (7, "out\n")
    assert "err" in done.stderr
    assert show(tow, 1)["reason"] == "exit code 7"
    assert tow("run", "-c", "cedar", "no-such-command").returncode == 127
    assert "command not found" in show(tow, 2)["reason"]
    assert show(tow, 2)["machines"][0] in ("h2", "h3", "h4")
    assert tow("retry", "1").returncode == 0
    assert ended(tow, 1)["attempt"] == 2


def test_arguments_and_variables_arrive_as_typed(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    variable = 'A=it\'s "odd" $HOME `id`; * %j\n雪'
    done = raw(tow, "run", "-c", "cedar", "python3", "-c", SHOW_WORDS, *ODD_WORDS, b"\xff raw")
    expected = [os.fsencode(word) for word in ODD_WORDS] + [b"\xff raw"]
    assert done.stdout.decode() == f"{expected}\n"
    script = "import os; print(repr(os.environ['A']))"
    title = 'tïtle "$(id)" --wrap=x'
    done2 = tow("run", "-c", "cedar", "-t", title, "-e", variable, "python3", "-c", script)
    assert done2.stdout == f"{variable[2:]!r}\n"


def test_failing_setup_is_told_as_setup(tow: Tow, slurm: Slurm) -> None:
    configure(tow, 'setup = "export FROM=cluster"')
    done = tow("run", "-c", "cedar", "--setup", "export FROM=$FROM+job", "sh", "-c", "echo $FROM")
    assert done.stdout == "cluster+job\n"
    done = tow("run", "-c", "cedar", "--setup", "source /no/such/env", "echo", "never")
    assert done.returncode != 0
    assert done.stdout == ""
    assert "set-up failed" in show(tow, 2)["reason"]


def test_options_come_from_the_cluster_and_from_the_command_line(tow: Tow, slurm: Slurm) -> None:
    configure(tow, 'options = { "--partition" = "gpu", mem = "300M", exclusive = false }')
    script = "echo $SLURM_JOB_PARTITION $SLURM_MEM_PER_NODE $SLURM_CPUS_PER_TASK"
    assert tow("run", "-c", "cedar", "sh", "-c", script).stdout == "gpu 300 1\n"
    words = ["-o", "mem=200M", "-o", "p=main", "--cpus", "2"]
    assert tow("run", "-c", "cedar", *words, "sh", "-c", script).stdout == "main 200 2\n"


def test_what_slurm_cannot_do_is_refused_before_anything_is_sent(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    said = complaint(tow("run", "-c", "cedar", "-o", "partition=nope", "true"), 2)
    assert "Invalid partition name specified" in said
    said = complaint(tow("run", "-c", "cedar", "--gpus", "1:a100", "true"), 2)
    assert "2:gtx1060, 2:gtx1070" in said
    said = complaint(tow("run", "-c", "cedar", "-r", "[gpu,gpumem=4G]", "true"), 2)
    assert "whole GPUs" in said
    said = complaint(tow("run", "-c", "cedar", "-o", "output=x", "true"), 2)
    assert "tow log" in said
    said = complaint(tow("run", "-c", "cedar", "--in-place", "true"), 2)
    assert "in-place" in said
    assert "clusters with a queue" in complaint(tow("run", "-o", "mem=1G", "true"), 2)
    assert tow.json("status")["jobs"] == []
    assert queue_lines(slurm) == []


def test_what_a_job_uses_on_its_node_is_known_here(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    # Whatever number its processes get: on one of the GPUs.
    apps = [{"gpu_uuid": "GPU-1", "pid": pid, "used_memory": 100} for pid in range(2, 9000)]
    slurm.set_gpus("h4", [{}, {"utilization": 80}], apps)
    busy = "import time; sum(range(10**7)); time.sleep(7)"
    done = tow("run", "-c", "cedar", "--gpus", "1:gtx1060", "python3", "-c", busy)
    assert done.returncode == 0, done
    peaks = show(tow, 1)["peaks"]
    assert peaks["cpus"] > 0 and peaks["mem_mb"] > 0
    assert (peaks["gpu_util"], peaks["gpu_mem_mb"] % 100) == (0.8, 0) and peaks["gpu_mem_mb"]
    assert "80 % of its GPUs" in tow("show", "1").stdout
    status, told = ask(tow.home, "GET", "/v1/jobs/1/samples")
    assert status == 200 and told["peaks"] == peaks
    (minute, *_) = told["samples"]
    assert minute["processes"][0]["most_gpu_util"] == 0.8


def test_waiting_job_is_queued_and_says_why(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    first = submit(tow, "-c", "cedar", "--gpus", "2:gtx1060", "sleep", "300")
    wait_for(tow, first, "running")
    second = submit(tow, "-c", "cedar", "--gpus", "2:gtx1060", "sleep", "300")
    wait_until(lambda: "(Slurm: Resources)" in tow("why", str(second)).stdout, every=0.2)
    assert show(tow, second)["state"] == "queued"
    assert tow("stop", str(second), str(first)).returncode == 0
    assert ended(tow, second)["state"] == "stopped"
    assert ended(tow, first)["state"] == "stopped"
    wait_until(lambda: queue_lines(slurm) == [])


def test_running_job_is_followed_looked_into_and_stopped(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    script = "echo hi; echo data > file; trap 'echo bye; exit 3' TERM; while :; do sleep 0.1; done"
    job = submit(tow, "-c", "cedar", "sh", "-c", script)
    following = tow.popen("log", "-f", str(job))
    assert read_line_with(following, "hi") == "hi\n"
    node = show(tow, job)["machines"][0]
    assert tow("exec", str(job), "hostname").stdout == f"{node}\n"
    assert tow("exec", str(job), "cat", "file").stdout == "data\n"
    assert tow("pull", str(job), "file", "here").returncode == 0
    assert tow("stop", str(job)).returncode == 0
    assert read_line_with(following, "bye") == "bye\n"
    assert ended(tow, job)["state"] == "stopped"


def test_job_cancelled_in_slurm_says_so(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    job = submit(tow, "-c", "cedar", "sleep", "300")
    wait_for(tow, job, "running")
    slurm.worker("scancel", slurm_number(slurm))
    found = ended(tow, job)
    assert (found["state"], found["reason"]) == ("failed", "cancelled in Slurm")


def test_dry_run_asks_slurm_and_sends_nothing(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    plan = tow.json("run", "--dry-run", "-c", "cedar", "true")
    assert plan["cluster"] == "cedar"
    assert "it would start on h" in plan["why"]
    assert queue_lines(slurm) == []


def test_kept_folder_of_an_earlier_job_travels_to_the_next(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    assert tow("run", "-c", "cedar", "sh", "-c", "echo 41 > $KEEP_DIR/n").returncode == 0
    done = tow("run", "-c", "cedar", "--continue", "1", "sh", "-c", "cat $KEEP_DIR/n")
    assert done.stdout == "41\n"


def test_one_connection_carries_everything(tow: Tow, slurm: Slurm) -> None:
    slurm.sshd_options("h1", {"MaxSessions": 1})
    configure(tow)
    before = slurm.log("h1").count("Accepted")
    jobs = [submit(tow, "-c", "cedar", "sh", "-c", f"exit {code}") for code in range(4)]
    assert [ended(tow, job)["exit_code"] for job in jobs] == [0, 1, 2, 3]
    assert slurm.log("h1").count("Accepted") == before + 1


def test_commands_that_only_a_login_shell_finds_are_found(tow: Tow, slurm: Slurm) -> None:
    away = Path("/opt/slurm/bin")
    moved = ("sbatch", "squeue", "scancel", "scontrol", "sinfo", "sacct")
    script = f"mkdir -p {away}; " + "; ".join(f"mv /usr/bin/{name} {away}" for name in moved)
    slurm.control("sh", "-c", script)
    try:
        profile = f"echo welcome to cedar\nexport PATH=$PATH:{away}\n"
        (slurm.home("h1") / ".bash_profile").write_text(profile)
        configure(tow)
        assert tow("run", "-c", "cedar", "echo", "found").stdout == "found\n"
    finally:
        slurm.control("sh", "-c", "; ".join(f"mv {away}/{name} /usr/bin" for name in moved))


def test_machine_without_slurm_is_told(tow: Tow, slurm: Slurm) -> None:
    tools = "mv /usr/bin/sbatch /usr/bin/sbatch.away"
    slurm.control("sh", "-c", tools)
    try:
        configure(tow)
        said = complaint(tow("run", "-c", "cedar", "true"), 2)
        assert "sbatch" in said
    finally:
        slurm.control("mv", "/usr/bin/sbatch.away", "/usr/bin/sbatch")


def test_json_of_a_job_has_what_programs_need(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    done = tow("run", "--json", "-c", "cedar", "echo", "x")
    assert done.returncode == 0
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert any(line.get("job", {}).get("cluster") == "cedar" for line in lines)


def test_the_doctor_says_which_slurm_it_is_and_what_is_wrong_with_it(
    tow: Tow, slurm: Slurm
) -> None:
    configure(tow)
    well = tow("doctor", "-c", "cedar")
    assert well.returncode == 0, well.stdout
    assert "Slurm: slurm" in well.stdout
    assert "3 nodes, with at most 4 CPUs, 4000 MB, GPUs 2:gtx1060, 2:gtx1070" in well.stdout
    assert "nvidia-smi" not in well.stdout
    slurm.stop_controller()
    ill = tow("doctor", "-c", "cedar")
    assert ill.returncode == 1
    assert "\u2717 Slurm: " in ill.stdout and "does `sinfo` answer there?" in ill.stdout
