"""`pit` against a real server: from the first use to the data of jobs that ended."""

import os
import re
import socket
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.pit import PASSWORD, Pit
from testbed.team import TeamServer
from testbed.waiting import wait_until

pytestmark = pytest.mark.slow

HEAD = "   JOB   S SINCE        UC% UM% USER       TITLE                RESOURCE"
NEW = "abcdefghijkl"
STAMP = r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] "


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TeamServer]:
    """One for all of these tests."""
    made = TeamServer(tmp_path_factory.mktemp("team") / "server")
    made.start()
    yield made
    made.stop()


@pytest.fixture
def new(server: TeamServer, tmp_path: Path) -> Pit:
    """A machine on which nobody has used `pit` yet."""
    return Pit(tmp_path / "new", server)


@pytest.fixture
def anna(server: TeamServer, tmp_path: Path) -> Pit:
    return Pit(tmp_path / "anna", server).signed_in("anna")


@pytest.fixture
def bert(server: TeamServer, tmp_path: Path) -> Pit:
    return Pit(tmp_path / "bert", server).signed_in("bert")


@pytest.fixture
def root(server: TeamServer, tmp_path: Path) -> Pit:
    return Pit(tmp_path / "root", server).signed_in("root")


def git(folder: Path, *words: str) -> str:
    own = ["-c", "user.name=x", "-c", "user.email=x@lab.org"]
    done = subprocess.run(["git", *own, *words], cwd=folder, check=True, capture_output=True)
    return done.stdout.decode()


def unstamped(log: str) -> list[str]:
    """The lines of a log without their times, which all of them have."""
    lines = log.splitlines()
    assert all(re.match(STAMP, line) for line in lines), log
    return [re.sub(STAMP, "", line, count=1) for line in lines]


def state(pit: Pit, job: int) -> str:
    return pit.well("get", f"job:{job}", "state").strip()


def test_first_use_registers_and_then_the_command_itself_runs(new: Pit) -> None:
    typed = [
        "tilman",
        "yes",
        "Tilman Kamp",
        "nonsense",
        "t@lab.org",
        "short",
        NEW,
        "x",
        "",
        NEW,
        NEW,
    ]
    done = new("status", input="\n".join([*typed, ""]))
    assert done.returncode == 0 and done.stdout.rstrip().startswith(HEAD)
    asked = [
        "No user info found. Seems like a new user or first time login from this machine.",
        "Please enter an existing or new username: ",
        "Found no user of that name.",
        "Do you want to register this usename (yes|no)? ",
        "Full name: ",
        "E-Mail address: ",
        "Input valid e-mail address, please.",
        "E-Mail address: ",
        "New password: ",
        "And the length must be: 12...24",
        "New password: ",
        "Reinput a same one to confirm it: ",
        "It differs from first one.",
    ]
    told = done.stderr
    for text in asked:
        assert text in told, (text, done.stderr)
        told = told.partition(text)[2]
    kept = new.folder / ".pituser.txt"
    assert kept.stat().st_mode & 0o777 == 0o600
    name, token = kept.read_text().split("\n")
    assert name == "tilman" and token not in done.stdout + done.stderr
    assert new.well("show", "me").splitlines() == [
        "Username:         tilman",
        "Full name:        Tilman Kamp",
        "E-Mail address:   t@lab.org",
    ]


def test_whoever_does_not_want_to_register_leaves_nothing_behind(new: Pit) -> None:
    done = new("status", input="nobody\nno\n")
    assert (done.returncode, done.stdout) == (0, "")
    assert not (new.folder / ".pituser.txt").exists()
    again = new("status", input="nobody\nno\n")
    assert "Found no user of that name." in again.stderr
    assert new.refused("status")


def test_a_second_machine_asks_for_the_password_only(new: Pit, anna: Pit) -> None:
    wrong = new.refused("status", input="anna\nnot it at all\n")
    told = new("status", input="anna\nnot it at all\n").stderr
    assert 'Unable to authenticate. If user "anna" is not valid anymore' in told and wrong
    done = new("show", "me", input=f"anna\n{PASSWORD}\n")
    assert "The user already exists." in done.stderr
    assert "Please enter password (or Ctrl-C to abort): " in done.stderr
    assert done.stdout.startswith("Username:         anna\n")


def test_a_token_that_holds_no_more_asks_for_the_password_and_goes_on(anna: Pit) -> None:
    kept = anna.home / ".pituser.txt"
    kept.write_text("anna\ntow_ended")
    done = anna("show", "me", input=f"{PASSWORD}\n")
    assert done.stdout.startswith("Username:         anna\n")
    assert done.stderr.startswith("Please enter password: ")
    assert kept.read_text() != "anna\ntow_ended" and not (anna.folder / ".pituser.txt").exists()
    assert anna.well("show", "me")


def test_machines_are_listed_and_logged_out(anna: Pit, new: Pit) -> None:
    new.well("show", "me", input=f"anna\n{PASSWORD}\n")
    rows = anna.well("tokens").splitlines()
    assert rows[0].split()[0] == "MACHINE" and sum("(this one)" in row for row in rows) == 1
    anna.well("tokens", os.uname().nodename)
    assert "Please enter password: " in new("show", "me").stderr
    assert "not logged in" in anna.refused("tokens", "nowhere")


def test_what_only_administrators_may_is_refused_to_others(anna: Pit, root: Pit) -> None:
    assert anna.refused("show", "users") == "Command failed: Forbidden"
    assert anna.refused("add", "group:staff", "title=x") == "Command failed: Forbidden"
    assert "anna" in root.well("show", "users").split()
    assert "Is administrator: yes" in root.well("show", "me")
    assert root.well("get", "user:anna", "nothing") == "undefined\n"
    root.well("set", "user:anna", "email=anna@lab.org", "fullname=Anna = A")
    assert root.well("get", "user:anna", "email") == "anna@lab.org\n"
    assert root.well("get", "user:anna", "fullname") == "Anna = A\n"
    assert "has no property" in root.refused("set", "user:anna", "nose=red")


def test_a_new_password_ends_the_old_one(server: TeamServer, new: Pit) -> None:
    new.signed_in("paula")
    new.well("passwd", input=f"{PASSWORD}\n{NEW}\n{NEW}\n")
    assert new.well("show", "me").startswith("Username:         paula")
    (new.home / ".pituser.txt").unlink()
    assert new("show", "me", input=f"paula\n{PASSWORD}\n").returncode == 1
    assert new("show", "me", input=f"paula\n{NEW}\n").returncode == 0


def test_a_clean_clone_runs_and_its_log_has_the_seeds_shape(anna: Pit, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare", "far.git")
    git(anna.folder, "init", "-q")
    (anna.folder / ".compute").write_text('echo "$SRC_DIR"; pwd; cat data.txt; echo odd >&2\n')
    (anna.folder / "data.txt").write_text("as committed\n")
    git(anna.folder, "add", "-A")
    git(anna.folder, "commit", "-qm", "first")
    git(anna.folder, "remote", "add", "origin", f"file://user:pw@localhost{tmp_path}/far.git")
    git(anna.folder, "push", "-q", f"{tmp_path}/far.git", "HEAD:master")
    git(anna.folder, "fetch", "-q", f"{tmp_path}/far.git", "master:refs/remotes/origin/master")
    (anna.folder / ".pitrequest.txt").write_text("[]\n")
    git(anna.folder, "add", "-A")
    git(anna.folder, "commit", "-qm", "second")
    git(anna.folder, "update-ref", "refs/remotes/origin/master", "HEAD")
    said = anna.well("run", "First light", "-l")
    preamble, _, log = said.partition("\n\n")
    number, remote, commit, lines, resources = preamble.splitlines()
    assert remote == f"Remote:     origin <file://localhost{tmp_path}/far.git>"
    assert commit == f"Hash:       {git(anna.folder, 'rev-parse', 'HEAD').strip()}"
    assert (lines, resources) == ("Diff LoC:   0", 'Resources:  "[]"')
    told = unstamped(log)
    assert told[:2] == ["[daemon] Pit daemon started", "[worker 0] Worker 0 started"]
    assert told[2] == told[3] and told[4:] == [
        "[worker 0] as committed",
        "[worker 0] odd",
        "[worker 0] Worker 0 ended with exit code 0",
        "[daemon] Worker 0 requested stop. Stopping pit...",
    ]
    job = number.split()[2]
    assert anna.well("log", job) == log
    assert f"Provisioning:  Git commit {commit.split()[1]} from file://" in anna.well(
        "show", f"job:{job}"
    )


def test_the_whole_working_tree_travels_but_not_who_one_is(anna: Pit) -> None:
    git(anna.folder, "init", "-q")
    (anna.folder / "tracked.txt").write_text("old\n")
    git(anna.folder, "add", "-A")
    git(anna.folder, "commit", "-qm", "first")
    (anna.folder / "tracked.txt").write_text("new\nnewer\n")
    (anna.folder / "untracked.txt").write_text("one\ntwo\n")
    (anna.folder / "binary.bin").write_bytes(bytes(range(256)))
    (anna.folder / ".pituser.txt").write_text((anna.home / ".pituser.txt").read_text())
    script = "cat tracked.txt untracked.txt; wc -c < binary.bin; ls -a | grep -c pituser"
    said = anna.well("run", "dirty", "[]", "-d", script, "-l")
    assert "Diff LoC:   5\n" in said
    told = [line.rpartition("] ")[2] for line in said.splitlines()]
    assert told[8:14] == ["new", "newer", "one", "two", "256", "0"]
    [recorded] = git(anna.folder, "for-each-ref", "--format=%(refname)", "refs/towline").split()
    names = git(anna.folder, "ls-tree", "-r", "--name-only", recorded).split()
    assert "untracked.txt" in names and ".pituser.txt" not in names


def test_a_job_without_a_script_does_nothing_and_one_that_fails_is_over_too(anna: Pit) -> None:
    said = anna.well("put", "nothing", "[]", "-l")
    assert "Worker 0 ended with exit code 0" in said
    said = anna.well("run", "fails", "[]", "-d", "exit 3", "-l")
    assert "Worker 0 ended with exit code 3" in said
    job = int(said.split()[2])
    assert state(anna, job) == "FIN"
    assert 'Error:         "exit code 3"' in anna.well("show", f"job:{job}")


def test_what_is_typed_wrongly_uses_no_number(anna: Pit) -> None:
    before = anna.run("true")
    assert anna.refused("run", "x" * 21, "[]").endswith("Job title too long (20 characters max)")
    impossible = "Command failed: Cluster cannot fulfill resource request"
    assert anna.refused("run", "x", "[99:gtx1070]") == impossible
    assert anna.refused("run", "x", "[3:gtx1070]") == impossible
    assert anna.refused("run", "x").startswith("Command failed: No resources requested from")
    told = anna.refused("run", "x", "[]", "-c", "99999")
    assert told == "Command failed: The job to continue is not existing"
    assert anna.run("true", title="x" * 20) == before + 1


def test_the_job_ends_with_the_first_of_its_processes(anna: Pit) -> None:
    script = 'echo "$GROUP_INDEX $PROCESS_INDEX $NUM_GROUPS $NUM_PROCESSES_GROUP0"; '
    script += "test $PROCESS_INDEX = 0 && exec sleep 300; sleep 1"
    said = anna.well("run", "two", "2:[]", "-d", script, "-l")
    assert "[worker 0] 0 0 1 2" in said and "[worker 1] 0 1 1 2" in said
    assert "[worker 1] Worker 1 ended with exit code 0" in said
    assert said.endswith("[daemon] Worker 1 requested stop. Stopping pit...\n")
    assert "Worker 0 ended" not in said
    job = int(said.split()[2])
    assert state(anna, job) == "FIN"
    assert unstamped(anna.well("log", str(job)))[0] == "[daemon] Pit daemon started"


def test_status_and_what_can_be_stopped(anna: Pit, bert: Pit) -> None:
    job = anna.begin("sleep 300", title="long")
    wait_until(lambda: state(anna, job) == "RUN", every=0.2)
    for pit in (anna, bert):
        rows = pit.well("status").splitlines()
        assert rows[0].startswith(HEAD) and rows[1] == "Running:"
        row = f"{job:>6} RUN 00d 00:00:\\d\\d   0   0 anna       long                 this\\[\\] *"
        assert any(re.fullmatch(row, line) for line in rows), rows
    assert bert.refused("stop", str(job)) == "Command failed: Forbidden"
    assert anna.refused("rm", f"job:{job}") == "Command failed: Only stopped jobs can be deleted"
    assert anna.well("stop", str(job)) == ""
    wait_until(lambda: state(anna, job) == "FIN", every=0.2)
    over = "Command failed: Only jobs before or in running state can be stopped"
    assert anna.refused("stop", str(job)) == over
    assert anna.well("rm", f"job:{job}") == ""
    assert anna.refused("show", f"job:{job}") == "Command failed: Not Found"


def test_strangers_know_of_a_job_and_read_it_only_where_it_is_shared(
    anna: Pit, bert: Pit, root: Pit
) -> None:
    root.well("add", "group:students", "title=Students")
    job = str(anna.run("echo secret"))
    for words in (["log", job], ["ls", job], ["cp", job, "pit.log", "x"], ["download", job]):
        assert bert.refused(*words) == "Command failed: Forbidden"
    assert "Provisioning" not in bert.well("show", f"job:{job}")
    assert "secret" in root.well("log", job)
    root.well("add-group", "user:bert", "students")
    anna.well("add-group", f"job:{job}", "students")
    assert "secret" in bert.well("log", job)
    assert "Groups:        students" in bert.well("show", f"job:{job}")
    anna.well("remove-group", f"job:{job}", "students")
    assert bert.refused("log", job) == "Command failed: Forbidden"
    root.well("add-group", "user:anna", "students")
    anna.well("set", "user:anna", "autoshare=students")
    shared, private = anna.run("true"), anna.run("true", "-p")
    assert "Groups:        students" in anna.well("show", f"job:{shared}")
    assert "Groups" not in anna.well("show", f"job:{private}")
    anna.well("set", "user:anna", "autoshare=")
    assert root.well("show", "groups") == "students\n"
    assert root.well("show", "group:students").startswith("Name:    students\n")


def test_the_data_of_a_job_is_listed_copied_and_packed(anna: Pit, tmp_path: Path) -> None:
    raw = bytes(range(256)) * 5000
    (anna.folder / "x.bin").write_bytes(raw)
    script = "mkdir $KEEP_DIR/deep; cp x.bin $KEEP_DIR; echo 1 > $KEEP_DIR/deep/one"
    job = str(anna.run(script))
    assert anna.well("ls", job).splitlines() == ["D keep", "D workers", "F pit.log"]
    assert anna.well("ls", job, "keep").splitlines() == ["D deep", "F x.bin"]
    assert anna.well("ls", job, "/keep/x.bin") == "F /keep/x.bin\n"
    assert anna.refused("ls", job, "nowhere") == "Command failed: Not Found"
    assert anna.refused("ls", job, "../..") == "Command failed: Not Found"
    anna.well("cp", job, "/keep/x.bin", str(tmp_path / "y.bin"))
    anna.well("cp", job, "keep/x.bin", str(tmp_path))
    assert (tmp_path / "x.bin").read_bytes() == (tmp_path / "y.bin").read_bytes() == raw
    only = "Command failed: At the moment only file copying is supported."
    assert anna.refused("cp", job, "keep/deep", "y") == only
    away = anna.refused("cp", job, "keep/x.bin", "no/where")
    assert away == "Command failed: Target directory not existing."
    anna.well("download", job)
    with tarfile.open(anna.folder / f"job{job}.tar.gz") as packed:
        assert {"keep/x.bin", "keep/deep/one", "workers/0/worker.log", "pit.log"} <= set(
            packed.getnames()
        )
        member = packed.extractfile("keep/x.bin")
        assert member is not None and member.read() == raw
    again = f'Unable to download: File "job{job}.tar.gz" already exists'
    assert anna.refused("download", job) == again
    assert anna.well("cat", f"job:{job}", "keep/deep/one") == "1\n"
    anna.well("pull", job, "keep/x.bin", "z.bin")
    (anna.folder / "z.bin").write_bytes(raw[:1000])
    anna.well("pull", "-c", job, "keep/x.bin", "z.bin")
    assert (anna.folder / "z.bin").read_bytes() == raw
    assert "Only the running job" in anna.refused("push", job, "keep/x.bin", "x.bin")
    assert anna.well("log", job) == anna.well("cat", job, "pit.log")
    on = anna.well("run", "next", "[]", "-c", job, "-d", "cat $KEEP_DIR/deep/one", "-l")
    assert "[worker 0] 1\n" in on


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    made = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [one.getsockname()[1] for one in made]
    for one in made:
        one.close()
    return found


def test_commands_and_ports_beside_a_running_job(anna: Pit) -> None:
    (anna.folder / "page.txt").write_text("served\n")
    there, here = free_ports(2)
    job = str(anna.begin(f"python3 -m http.server --bind 127.0.0.1 {there}"))
    wait_until(lambda: state(anna, int(job)) == "RUN", every=0.2)
    assert anna.well("exec", job, "--", "cat", "page.txt") == "served\n"
    assert anna("exec", job, "--", "sh", "-c", "exit 7").returncode == 0
    assert anna.refused("exec", "-w", "5", job, "ls") == "Command failed: Worker not active"
    assert anna.refused("forward", job, "x:y") == "Command failed: Wrong port pair format"
    forwarding = anna.popen("forward", job, f"{here}:{there}")
    try:
        assert forwarding.stdout is not None
        first = forwarding.stdout.readline()
        assert first == f"Forwarding port {there} of worker 0 to port {here} on localhost...\n"

        def body() -> str:
            url = f"http://127.0.0.1:{here}/page.txt"
            done = subprocess.run(["curl", "-s", url], capture_output=True, text=True)
            return done.stdout

        assert wait_until(body, every=0.2) == "served\n"
    finally:
        forwarding.terminate()
        forwarding.communicate(timeout=20)
    anna.well("stop", job)


def test_jobs_are_listed_by_wish(anna: Pit) -> None:
    one, two = anna.run("true", title="wish one"), anna.run("true", title="wish two")
    rows = anna.well("show", "jobs", "title=wish%").splitlines()
    assert [int(row.split()[0]) for row in rows[1:]] == [two, one]
    rows = anna.well("show", "jobs", "title=wish%", "asc=date", "limit=1").splitlines()
    assert [int(row.split()[0]) for row in rows[1:]] == [one]
    assert len(anna.well("show", "jobs", "user=nobody").splitlines()) == 1
    unknown = anna.refused("show", "jobs", "colour=red")
    assert unknown == "Command failed: Unknown query parameter colour"
    wrong = anna.refused("show", "jobs", "since=yesterday")
    assert wrong == "Command failed: Cannot parse query parameter since"


def test_the_log_of_a_waiting_job_waits_for_it(anna: Pit) -> None:
    held = anna.begin("while test ! -e $KEEP_DIR/go; do sleep 0.1; done; echo went")
    wait_until(lambda: state(anna, held) == "RUN", every=0.2)
    reading = anna.popen("log", str(held))
    anna.well("exec", str(held), "--", "sh", "-c", "touch $KEEP_DIR/go")
    said, _ = reading.communicate(timeout=30)
    assert "[worker 0] went" in said and reading.returncode == 0
