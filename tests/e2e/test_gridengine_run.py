"""Jobs on a real Grid Engine, from here, through its head node, as an ordinary user."""

import os
import signal

import pytest

from e2e.grid_jobs import become, close_all, configure, gated, on_every_site, processes, shell
from e2e.jobs import complaint, ended, raw, show, submit, wait_for
from e2e.test_local_run import ODD_WORDS, SHOW_WORDS
from testbed.gridengine import NODES, GridEngine
from testbed.tow import Tow
from testbed.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

#: The queue is asked seldom while nothing happens, and the machine may be busy.
SLOW_S = 120

MAIN = """\
import os, time
told = {name: os.environ.get(name) for name in ("JOB_ID", "QUEUE", "SGE_TASK_ID", "HOSTNAME")}
assert os.path.isdir(os.environ["TMPDIR"]) and os.environ["JOB_ID"] in os.environ["TMPDIR"]
assert os.environ["FROM_LOGIN"] == "a login shell", dict(os.environ)
print(told["HOSTNAME"], told["QUEUE"], told["SGE_TASK_ID"])
open("made.txt", "w").write("made here")
until = time.time() + 1.5
while time.time() < until:
    pass
"""


def test_command_runs_on_a_host_and_its_results_come_home(tow: Tow, gridengine: GridEngine) -> None:
    configure(tow)
    shell(gridengine, "echo 'export FROM_LOGIN=\"a login shell\"' >> ~/.bash_profile")
    (tow.folder / "main.py").write_text(MAIN)
    done = tow("run", "-c", "msc", "-o", "q=cpu", "--time", "1h", "python3", "main.py")
    assert done.returncode == 0, done.stderr
    host, queue, task = done.stdout.split()
    assert (host in NODES, queue, task) == (True, "cpu", "undefined")
    assert (tow.folder / "job_results/1/made.txt").read_text() == "made here"
    shown = show(tow, 1)
    assert (shown["state"], shown["machines"], shown["cluster"]) == ("done", [host], "msc")
    assert shown["peaks"]["cpus"] > 0 and shown["peaks"]["mem_mb"] > 0
    assert tow("log", "1").stdout == done.stdout
    assert tow("cat", "1", "made.txt").stdout == "made here"
    number = shown["queue"]["number"]
    accounts = shell(gridengine, f"until qacct -j {number} 2>/dev/null; do sleep 0.2; done")
    assert "account      tow." in accounts and "python3_main.py.tow." in accounts


@pytest.mark.parametrize("code", [7, 99, 100])
def test_exit_codes_are_just_that(tow: Tow, gridengine: GridEngine, code: int) -> None:
    """Grid Engine itself would run 99 again, and set 100 aside."""
    configure(tow)
    done = tow("run", "-c", "msc", "sh", "-c", f"echo out; echo err >&2; exit {code}")
    assert (done.returncode, done.stdout) == (code, "out\n")
    assert show(tow, 1)["reason"] == f"exit code {code}"
    wait_until(lambda: not shell(gridengine, "qstat"), timeout=SLOW_S)


def test_arguments_and_variables_arrive_as_typed_also_where_first_lines_are_not_heeded(
    tow: Tow, gridengine: GridEngine
) -> None:
    gridengine.start_mode("posix_compliant")
    configure(tow)
    done = raw(tow, "run", "-c", "msc", "python3", "-c", SHOW_WORDS, *ODD_WORDS, b"\xff raw")
    expected = [os.fsencode(word) for word in ODD_WORDS] + [b"\xff raw"]
    assert done.stdout.decode() == f"{expected}\n"
    variable = 'A=it\'s, "odd" $HOME `id`; * %j\n雪'
    script = "import os; print(repr(os.environ['A']))"
    words = ("-t", '1 tïtle "$(id)"/x:@', "-e", variable, "python3", "-c", script)
    assert tow("run", "-c", "msc", *words).stdout == f"{variable[2:]!r}\n"


@on_every_site
def test_a_waiting_job_and_a_running_one_are_stopped(
    tow: Tow, gridengine: GridEngine, site: tuple[str, bool]
) -> None:
    become(gridengine, site)
    configure(tow)
    trap = "trap 'echo asked; echo saved > saved; exit 0' TERM; echo ready; sleep 100 & wait"
    job = submit(tow, "-c", "msc", "sh", "-c", trap)
    wait_until(lambda: "ready" in tow("log", str(job)).stdout, timeout=SLOW_S)
    close_all(gridengine)
    waiting = submit(tow, "-c", "msc", "touch", "never")
    wait_until(lambda: (show(tow, waiting).get("queue") or {}).get("number"), timeout=SLOW_S)
    assert tow("stop", str(job), str(waiting)).returncode == 0
    assert ended(tow, job, timeout=SLOW_S)["state"] == "stopped"
    assert ended(tow, waiting, timeout=SLOW_S)["state"] == "stopped"
    assert "asked" in tow("log", str(job)).stdout
    wait_until(lambda: (tow.folder / f"job_results/{job}/saved").exists(), timeout=SLOW_S)
    wait_until(lambda: not shell(gridengine, "qstat"), timeout=SLOW_S)


@on_every_site
def test_a_job_that_is_set_aside_says_why_and_retry_starts_it(
    tow: Tow, gridengine: GridEngine, site: tuple[str, bool]
) -> None:
    become(gridengine, site)
    configure(tow)
    with gated(gridengine) as opened:
        job = submit(tow, "-c", "msc", "echo", "ran")
        wait_until(
            lambda: "error state: exit_status of prolog = 100" in show(tow, job)["reason"], SLOW_S
        )
        assert show(tow, job)["state"] == "queued"
        assert f"tow retry {job}" in tow("why", str(job)).stdout
        number = show(tow, job)["queue"]["number"]
        gridengine.worker("touch", opened)
        assert tow("retry", str(job)).returncode == 0
        assert ended(tow, job, timeout=SLOW_S)["state"] == "done"
    shown = show(tow, job)
    assert (shown["attempt"], shown["queue"]["number"]) == (1, number)
    assert "has ended" in complaint(tow("retry", str(submit_waiting(tow, gridengine))), 2)


def submit_waiting(tow: Tow, grid: GridEngine) -> int:
    close_all(grid)
    return submit(tow, "-c", "msc", "true")


@pytest.mark.parametrize("tells", [True, False])
def test_why_tells_the_reason_whether_the_scheduler_collects_it_or_not(
    tow: Tow, gridengine: GridEngine, tells: bool
) -> None:
    gridengine.tell_why(tells)
    configure(tow)
    taken = submit(tow, "-c", "msc", "--gpus", "2", "sleep", "100")
    wait_for(tow, taken, "running", timeout=SLOW_S)
    job = submit(tow, "-c", "msc", "--gpus", "1", "true")
    reason = 'cannot run at host "h2" because it offers only hc:gpu=0'
    wait_until(
        lambda: reason in show(tow, job)["reason"], SLOW_S, on_timeout=lambda: show(tow, job)
    )
    assert "Grid Engine calls it" in tow("why", str(job)).stdout
    tow("stop", str(taken))
    assert ended(tow, job, timeout=SLOW_S)["state"] == "done"


def test_commands_run_beside_a_job_and_end_with_who_asked_or_with_the_job(
    tow: Tow, gridengine: GridEngine
) -> None:
    """Grid Engine itself has no way into a running job, and this site no ssh to its hosts."""
    configure(tow)
    job = submit(
        tow, "-c", "msc", "sh", "-c", "echo data > file; until [ -e end ]; do sleep .2; done"
    )
    host = wait_for(tow, job, "running", timeout=SLOW_S)["machines"][0]
    number = show(tow, job)["queue"]["number"]
    done = tow("exec", str(job), "sh", "-c", "cat file; hostname; echo $JOB_ID; exit 4")
    assert (done.stdout, done.returncode) == (f"data\n{host}\n{number}\n", 4), done
    left = tow.popen("exec", str(job), "sh", "-c", "touch begun; exec sleep 1234")
    wait_until(lambda: tow("cat", str(job), "begun").returncode == 0, timeout=SLOW_S)
    left.send_signal(signal.SIGINT)
    wait_until(lambda: "sleep 1234" not in processes(gridengine, host), timeout=SLOW_S)
    with_it = tow.popen("exec", str(job), "sh", "-c", "echo in; exec sleep 1234")
    assert with_it.stdout is not None and with_it.stdout.readline() == "in\n"
    assert tow("exec", str(job), "touch", "end").returncode == 0
    assert ended(tow, job, timeout=SLOW_S)["state"] == "done"
    assert with_it.wait(timeout=SLOW_S) != 0
    assert "sleep 1234" not in processes(gridengine, host)
    assert "does not run now" in complaint(tow("exec", str(job), "true"), 2)


@on_every_site
def test_what_was_deleted_outside_is_told_as_that(
    tow: Tow, gridengine: GridEngine, site: tuple[str, bool]
) -> None:
    become(gridengine, site)
    configure(tow)
    job = submit(tow, "-c", "msc", "sleep", "100")
    running = wait_for(tow, job, "running", timeout=SLOW_S)
    close_all(gridengine)
    waiting = submit(tow, "-c", "msc", "true")
    wait_until(lambda: (show(tow, waiting).get("queue") or {}).get("number"), timeout=SLOW_S)
    numbers = running["queue"]["number"], show(tow, waiting)["queue"]["number"]
    shell(gridengine, f"qdel {' '.join(numbers)}")
    for one in (job, waiting):
        assert "deleted in Grid Engine" in ended(tow, one, timeout=SLOW_S)["reason"]


def test_needs_become_the_words_of_the_site_or_are_refused_before_anything_is_sent(
    tow: Tow, gridengine: GridEngine
) -> None:
    configure(tow)
    # As every Grid Engine is installed, memory is not counted, and is what a host has free.
    assert tow("run", "-c", "msc", "--mem", "1G", "echo", "ran").stdout == "ran\n"
    assert "hl:mem_total=" in complaint(tow("run", "-c", "msc", "--mem", "9T", "true"), 2)
    tow("engine", "stop")
    configure(tow, 'memory = "h_vmem"')
    words = ("sh", "-c", "echo $NSLOTS $PE $(ulimit -v)")
    done = tow("run", "-c", "msc", "--cpus", "3", "--mem", "3G", *words)
    assert done.stdout == f"3 smp {3 << 20}\n", done
    for asked, told in {
        ("--cpus", "9"): 'cannot run in PE "smp"',
        ("--gpus", "3"): "offers only hc:gpu=2",
        ("--gpus", "1", "--cpus", "2"): "counts GPUs (gpu) by slot",
        ("-o", "q=nosuch"): 'unknown queue "nosuch"',
        ("-o", "l=nosuch=1"): 'unknown resource "nosuch"',
        ("-o", "N=mine"): "the title is given with -t",
        ("-o", "q="): "-q needs a value",
        ("--gpus", "1:a100"): "-o l=NAME=VALUE",
    }.items():
        assert told in complaint(tow("run", "-c", "msc", *asked, "true"), 2)
    assert [job["id"] for job in tow.json("status", "-a")["jobs"]] == [1, 2]


def test_hosts_are_shown_and_missing_settings_are_named(tow: Tow, gridengine: GridEngine) -> None:
    configure(tow)
    rows = tow("machines", "-c", "msc").stdout
    assert all(name in rows for name in NODES) and "4 of 4" in rows
    gridengine.control("qmod", "-d", "cpu@h3")
    assert "h3 (its queue is disabled)" in tow("doctor", "-c", "msc").stdout
    gridengine.read_settings(False)
    tow("engine", "stop")
    told = tow("doctor", "-c", "msc").stdout
    assert "act_qmaster" in told and "setup_login" in told
    configure(tow, "setup_login = '. /opt/sge/default/common/settings.sh'")
    assert "Grid Engine: SGE 8" in tow("doctor", "-c", "msc").stdout
    done = tow("run", "-c", "msc", "echo", "ran")
    assert done.stdout == "ran\n", done
