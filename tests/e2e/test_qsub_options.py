"""Options of `qsub` that are done in another way on each kind of cluster, from end to end."""

import os
import time
from email import message_from_string
from pathlib import Path

import pytest

from e2e import grid_jobs, slurm_jobs
from e2e.grid_jobs import close_all, shell
from e2e.jobs import configure, ended, show, wait_for
from testbed.gridengine import GridEngine
from testbed.hosts import Hosts
from testbed.slurm import Slurm
from testbed.tow import Tow
from testbed.waiting import wait_until

#: What python reads as its script, with what it is given as its input.
READS = "import sys\nprint(sys.stdin.read().upper(), sys.argv[1:])\n"
SLOW_S = 90.0


def reads_its_input(tow: Tow, *queue: str) -> None:
    """`-S` is what runs the script, whatever its first line says, and `-i` is what it reads."""
    (tow.folder / "shout.py").write_text("#!/bin/false\n" + READS)
    (tow.folder / "in").mkdir(exist_ok=True)
    (tow.folder / "in/words.txt").write_text("some words")
    words = ("-cwd", "-j", "y", "-S", "/usr/bin/python3", "-i", "in/words.txt")
    done = tow("qsub", *queue, *words, "-sync", "y", "-N", "shout", "shout.py", "a  b", "$HOME")
    assert done.returncode == 0, done
    number = done.stdout.split()[2]
    out = tow.folder / f"shout.o{number}"
    wait_until(lambda: out.read_text() == "SOME WORDS ['a  b', '$HOME']\n", timeout=SLOW_S)


def test_shell_and_input_on_this_machine(tow: Tow) -> None:
    reads_its_input(tow)
    words = ("-sync", "y", "-cwd", "-j", "y", "-b", "y", "-N", "none_there", "-i", "nothing", "cat")
    assert tow("qsub", *words).returncode == 1
    assert "can't open input file" in (tow.folder / "none_there.o2").read_text()
    (tow.folder / "each.1").write_text("one\n")
    (tow.folder / "each.2").write_text("two\n")
    words = ("-cwd", "-j", "y", "-b", "y", "-N", "each", "-i", "each.$TASK_ID", "-t", "1-2", "cat")
    assert tow("qsub", "-sync", "y", *words).returncode == 0
    assert [(tow.folder / f"each.o3.{task}").read_text() for task in (1, 2)] == ["one\n", "two\n"]


@pytest.mark.real
def test_shell_and_input_on_a_machine_elsewhere(tow: Tow, hosts: Hosts) -> None:
    configure(tow, "h1")
    reads_its_input(tow, "-q", "lab")
    Path(hosts.home("h1"), "theirs").write_text("over there\n")
    words = ("-q", "lab", "-sync", "y", "-j", "y", "-b", "y", "-o", str(tow.folder), "-N", "far")
    assert tow("qsub", *words, "-i", "~/theirs", "cat").returncode == 0
    far = tow.folder / "far.o2"
    wait_until(lambda: far.read_text() == "over there\n", timeout=SLOW_S)
    for path, told in {"nothing": "can't open input file", "../x": "is not in the folder"}.items():
        refused = tow("qsub", *words, "-cwd", "-i", path, "cat")
        assert refused.returncode == 1 and told in refused.stderr, refused
    assert len(tow.json("status", "-a")["jobs"]) == 2


@pytest.mark.real
@pytest.mark.parametrize("mode", ["unix_behavior", "posix_compliant"])
def test_shell_and_input_on_a_grid_engine(tow: Tow, gridengine: GridEngine, mode: str) -> None:
    gridengine.start_mode(mode)
    grid_jobs.configure(tow)
    reads_its_input(tow, "-q", "msc")


def test_a_lower_priority_waits_on_this_machine(tow: Tow) -> None:
    gate = tow.folder / "gate"
    cpus = str(os.cpu_count())
    wait = ("-pe", "smp", cpus, "-cwd", "-b", "y", "-terse", "-N")
    tow("qsub", *wait, "first", f"until [ -e {gate} ]; do sleep .1; done")
    wait_for(tow, 1, "running")
    tow("qsub", "-p", "-500", *wait, "low", "true")
    tow("qsub", *wait, "high", "true")
    names = [line.split()[2] for line in tow("qstat", "-s", "p").stdout.splitlines()[2:]]
    assert names == ["high", "low"]
    gate.touch()
    low, high = ended(tow, 2), ended(tow, 3)
    assert high["started"] <= low["started"]


@pytest.mark.real
def test_priority_mail_and_time_are_the_grid_engines_own(tow: Tow, gridengine: GridEngine) -> None:
    grid_jobs.configure(tow)
    close_all(gridengine)
    begin = time.time() + 3600
    at = time.strftime("%Y%m%d%H%M.%S", time.localtime(begin))
    words = ("-q", "msc", "-cwd", "-b", "y", "-terse", "-p", "-100", "-m", "be", "-M", "me@x.org")
    assert tow("qsub", *words, "-a", at, "-N", "native", "true").stdout == "1\n"
    wait_until(lambda: show(tow, 1)["queue"]["number"], timeout=SLOW_S)
    number = show(tow, 1)["queue"]["number"]
    told = shell(gridengine, f"qstat -j {number}")
    assert "priority:                   -100\n" in told
    assert "mail_list:                  me@x.org\n" in told
    assert "mail_options:               be\n" in told
    local = time.strftime("%a %b %e %H:%M:%S %Y", time.localtime(int(begin)))
    assert f"execution_time:             {local}" in told
    assert "in msc's own queue until " in tow("why", "1").stdout
    assert tow("qstat").stdout.splitlines()[2].split()[1::3][:2] == ["0.00000", "qw"]


@pytest.mark.real
def test_a_later_job_and_an_array_begin_with_the_lid_closed(
    tow: Tow, gridengine: GridEngine
) -> None:
    """The head node's clock may be in another zone: the moment is the same."""
    shell(gridengine, "echo 'export TZ=Asia/Kathmandu' >> ~/.bash_profile")
    grid_jobs.configure(tow)
    begin = int(time.time()) + 12
    at = time.strftime("%Y%m%d%H%M.%S", time.localtime(begin))
    words = ("-q", "msc", "-terse", "-b", "y", "-a", at, "-N")
    assert tow("qsub", *words, "later", "date +%s >> ~/began").stdout == "1\n"
    assert tow("qsub", "-t", "1-2", *words, "arr", "date +%s >> ~/began").stdout == "2.1-2:1\n"
    wait_until(lambda: shell(gridengine, "qstat").count(" qw ") == 2, timeout=SLOW_S)
    tow("engine", "stop")
    began = gridengine.home("h1") / "began"
    wait_until(lambda: began.exists() and len(began.read_text().split()) == 3, timeout=SLOW_S)
    assert min(map(int, began.read_text().split())) >= begin
    assert {ended(tow, job, timeout=SLOW_S)["state"] for job in (1, 2, 3)} == {"done"}


@pytest.mark.real
def test_priority_mail_and_time_are_slurms_own(tow: Tow, slurm: Slurm) -> None:
    slurm_jobs.configure(tow)
    begin = int(time.time()) + 10
    at = time.strftime("%Y%m%d%H%M.%S", time.localtime(begin))
    words = ("-q", "cedar", "-b", "y", "-terse", "-p", "-100", "-m", "ea", "-M", "me@x.org")
    assert tow("qsub", *words, "-a", at, "date +%s > ~/began").stdout == "1\n"
    wait_until(lambda: show(tow, 1)["queue"]["number"], timeout=SLOW_S)
    number = show(tow, 1)["queue"]["number"]
    told = slurm.worker("scontrol", "show", "job", number)
    assert "MailUser=me@x.org" in told and "Nice=100" in told and "FAIL" in told
    assert "in cedar's own queue until " in tow("why", "1").stdout
    tow("engine", "stop")
    began = slurm.home("h1") / "began"
    wait_until(lambda: began.exists() and began.read_text().strip(), timeout=SLOW_S)
    assert int(began.read_text()) >= begin


def post_office(folder: Path) -> Path:
    """A sendmail that keeps what it is given, one file for each."""
    folder.mkdir()
    program = folder / "sendmail"
    kept = f"cat > {folder}/new.$$; mv {folder}/new.$$ {folder}/mail.$$"
    program.write_text(f'#!/bin/sh\necho "$*" > {folder}/argv\n{kept}\n')
    program.chmod(0o755)
    return folder


def test_mails_are_written_here_where_no_queue_does(tow: Tow, tmp_path: Path) -> None:
    office = post_office(tmp_path / "office")
    env = {"PATH": f"{office}:{os.environ['PATH']}"}
    words = ("-cwd", "-b", "y", "-terse", "-m", "bea", "-M", "me@x.org,you@x.org")
    tow("qsub", *words, "-N", "good", "exit 3", env=env)
    tow("qsub", *words, "-t", "1-2", "-N", "arr", "true", env=env)
    tow("qsub", *words, "-N", "long", "sleep 100", env=env)
    wait_for(tow, 4, "running")
    tow("qdel", "long")

    def subjects() -> list[str]:
        mails = [message_from_string(path.read_text()) for path in office.glob("mail.*")]
        assert {mail["To"] for mail in mails} <= {"me@x.org,you@x.org"}
        return sorted(str(mail["Subject"]) for mail in mails)

    expected = [
        *("Job 1 (good) Complete", "Job 1 (good) Started", "Job 4 (long) Aborted"),
        *("Job 4 (long) Started", "Job-array task 2.1 (arr) Complete"),
        *("Job-array task 2.1 (arr) Started", "Job-array task 2.2 (arr) Complete"),
        "Job-array task 2.2 (arr) Started",
    ]
    wait_until(lambda: subjects() == expected, timeout=60, on_timeout=subjects)
    assert (office / "argv").read_text() == "-t -oi\n"
    texts = [path.read_text() for path in office.glob("mail.*")]
    assert any(" Exit Status      = 3\n" in text for text in texts)


def test_what_could_not_run_is_refused_whatever_w_says(tow: Tow) -> None:
    (tow.folder / "job.sh").write_text("true\n")
    could = tow("qsub", "-w", "v", "job.sh")
    assert (could.returncode, could.stdout) == (0, "verification: found suitable queue(s)\n")
    for letter in "enwvp":
        refused = tow("qsub", "-w", letter, "-pe", "smp", "9999", "job.sh")
        assert refused.returncode == 1 and refused.stdout == "", refused
        assert refused.stderr.startswith("Unable to run job: ")
    assert not tow.json("status", "-a")["jobs"]
