"""`import towline`: jobs from Python, in front of a real Engine on this machine."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import towline
from e2e.engines import kill_engine
from testbed import disk
from testbed.hosts import Hosts
from testbed.leftovers import belonging_to
from testbed.tow import Tow
from testbed.waiting import wait_until
from towline import errors
from towline.client.session import Login
from towline.client.transport import Reply


@pytest.fixture(autouse=True)
def project(tow: Tow, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that a program stands in, which is the one that travels."""
    monkeypatch.chdir(tow.folder)
    for name, value in tow.env.items():
        if name.startswith("TOWLINE_"):
            monkeypatch.setenv(name, value)
    return tow.folder


def test_a_job_is_submitted_waited_for_read_and_brought_home(project: Path) -> None:
    (project / "data.txt").write_text("seven\n")
    job = towline.submit("cat data.txt; echo oops >&2; echo made > out.txt", title="first")
    outcome = job.wait(timeout=60)
    assert (outcome.ok, outcome.state, outcome.exit_code) == (True, "done", 0)
    assert str(outcome) == f"job {job.id} done"
    assert job.state == "done" and job.facts["title"] == "first"
    assert job.log("out") == "seven\n" and job.log("err") == "oops\n"
    results = job.results()
    assert results.folder is not None and results.files == 1 and not results.missing
    assert (results.folder / "out.txt").read_text() == "made\n"
    assert [entry["name"] for entry in job.files()] == ["data.txt", "out.txt"]
    assert job.read("out.txt") == b"made\n"


def test_a_list_is_a_command_and_no_word_of_it_is_read_by_a_shell(weird_path: Path) -> None:
    job = towline.submit(
        [
            sys.executable,
            "-c",
            "import sys, os; print(sys.argv[1:], os.environ['SEED'])",
            "$HOME *",
        ],
        folder=weird_path,
        env={"SEED": "7"},
        cpus=1,
        time=60,
        retries=0,
    )
    assert job.wait(timeout=60).ok
    assert job.log() == "['$HOME *'] 7\n"
    assert job.facts["folder"] == str(weird_path)


def test_output_comes_piece_by_piece_while_it_is_printed(project: Path) -> None:
    go_on = project / "go-on"
    job = towline.submit(f"echo one; while [ ! -e {go_on} ]; do sleep 0.05; done; echo two; exit 3")
    pieces = []
    for piece in job.follow():
        pieces.append((piece.stream, piece.text))
        go_on.touch()
    assert pieces == [("out", "one\n"), ("out", "two\n")]
    # The stream ends with the job, so how it ended is known by then.
    assert job.facts["exit_code"] == 3


def test_a_job_that_fails_says_so_and_raises_where_that_is_asked_for() -> None:
    job = towline.submit("echo no luck >&2; exit 3")
    outcome = job.wait(timeout=60)
    assert (outcome.ok, outcome.state, outcome.exit_code) == (False, "failed", 3)
    with pytest.raises(errors.JobFailed, match=f"job {job.id} failed: exit code 3") as raised:
        job.wait(check=True)
    assert raised.value.outcome == outcome
    assert f"tow log {job.id}" in raised.value.hint


def test_a_wait_that_takes_too_long_leaves_the_job_and_a_stop_ends_it() -> None:
    job = towline.submit(["sleep", "1000"])
    with pytest.raises(TimeoutError, match=f"job {job.id} has not ended after 0.2 s"):
        job.wait(timeout=0.2)
    assert job.state in ("starting", "running")
    job.stop()
    assert job.wait(timeout=60).state == "stopped"
    with pytest.raises(errors.JobFailed, match="stopped"):
        job.wait(check=True)


def test_what_cannot_be_is_an_error_of_its_own_class_with_what_to_do() -> None:
    with pytest.raises(errors.NotFound, match="there is no cluster 'nowhere'") as unknown:
        towline.submit("true", cluster="nowhere")
    assert "tow clusters add nowhere" in unknown.value.hint
    with pytest.raises(errors.NotFound, match="there is no job 999"):
        towline.Session().job(999)
    with pytest.raises(errors.UsageError, match="not an amount of memory"):
        towline.submit("true", mem="lots")
    with pytest.raises(errors.Impossible):
        towline.submit("true", cpus=100_000)
    with pytest.raises(errors.UsageError, match="no command"):
        towline.submit([])
    with pytest.raises(TypeError, match="'gpu'; did you mean 'gpus'"):
        towline.submit("true", gpu=1)  # type: ignore[call-arg]
    assert towline.Session().jobs(everything=True) == []


def test_a_wait_and_a_stream_outlive_the_engine(project: Path, tow_home: Path) -> None:
    go_on = project / "go-on"
    job = towline.submit(f"echo one; while [ ! -e {go_on} ]; do sleep 0.05; done; echo two")
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(job.wait, 120)
        printed = ""
        for piece in job.follow():
            if not printed:
                kill_engine(tow_home)
                go_on.touch()
            printed += piece.text
        assert printed == "one\ntwo\n"
        assert waiting.result().ok


def test_events_are_told_once_and_in_order_over_a_killed_engine(tow_home: Path) -> None:
    connected = threading.Event()

    class Connecting(towline.Session):
        def open(self, *request: Any, **options: Any) -> Reply:
            reply = super().open(*request, **options)
            if "/v1/events" in request[1]:
                connected.set()
            return reply

    session = Connecting()
    session.submit("true").wait(timeout=60)
    connected.clear()
    seen = []
    listening = session.events()
    with ThreadPoolExecutor() as pool:
        first = pool.submit(next, listening)
        assert connected.wait(60)
        kill_engine(tow_home)
        job = session.submit("true")
        seen.append(first.result(60))
    for event in listening:
        seen.append(event)
        if event.kind == "ended":
            break
    assert {event.job for event in seen} == {job.id}
    assert [event.kind for event in seen] == ["submitted", "placed", "running", "ended"]
    assert [event.seq for event in seen] == sorted({event.seq for event in seen})
    so_far = list(session.events(since=0, follow=False))
    assert so_far[0].seq == 1 and so_far[-1].seq >= seen[-1].seq
    assert [event.text for event in so_far if event.kind == "running"] == ["running on this"] * 2


def test_one_key_is_one_job_whoever_asks_and_whatever_happened(tow_home: Path) -> None:
    first = towline.submit("echo once", key="night-7")
    kill_engine(tow_home)
    with ThreadPoolExecutor(4) as pool:
        again = list(pool.map(lambda _: towline.submit("echo once", key="night-7"), range(4)))
    assert {job.id for job in again} == {first.id}


def test_threads_share_a_session() -> None:
    session = towline.Session()

    def answer(number: int) -> str:
        job = session.submit(["echo", str(number)], results=False)
        job.wait(timeout=60, check=True)
        return job.log("out")

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(answer, range(16))) == [f"{number}\n" for number in range(16)]
    assert len(session.jobs()) == 16


def test_jobs_are_found_by_the_names_that_people_use(tow: Tow) -> None:
    session = towline.Session()
    job = session.submit("sleep 1000", title="long one")
    assert session.job("long one").id == session.job("last").id == session.job(job.id).id == job.id
    assert [found.id for found in session.jobs(state="active")] == [job.id]
    assert (
        tow("batch", "-d", "--name", "many", "--matrix", "x=a,b", "--", "echo", "{x}").returncode
        == 0
    )
    assert [batch["name"] for batch in session.batches()] == ["many"]
    line = session.job("many.2")
    assert line.wait(timeout=60).ok and line.log() == "b\n"
    with pytest.raises(errors.UsageError, match="many is a batch of 2 jobs"):
        session.job("many")
    session.stop(job, now=True)
    assert job.wait(timeout=60).state == "stopped"


def test_what_holds_a_job_up_is_told_to_who_asks(project: Path) -> None:
    go_on = project / "go-on"
    cpus = os.cpu_count() or 1
    first = towline.submit(f"while [ ! -e {go_on} ]; do sleep 0.05; done", exclusive=True)
    wait_until(lambda: first.state == "running", 60)
    second = towline.submit("echo now", cpus=cpus)
    told: list[str] = []

    def note(text: str) -> None:
        told.append(text)
        go_on.touch()

    assert [piece.text for piece in second.follow(on_note=note)] == ["now\n"]
    assert told[0].startswith("waiting: ")


def test_a_program_that_starts_an_engine_is_not_warned_of_it_and_keeps_no_zombie(
    tow: Tow, tow_home: Path
) -> None:
    code = (
        "import os, signal, towline; towline.submit('true').wait();"
        "session = towline.Session(); os.kill(session.running()['pid'], signal.SIGKILL);"
        "towline.submit('true').wait(); session.retire(); towline.submit('true').wait();"
        "os.system('ps -o stat= --ppid %d' % os.getpid())"
    )
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", code],
        env=tow.env,
        cwd=tow.folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    # The last one that ended may be seen once; the others are gone.
    assert done.stdout.split().count("Z") <= 1
    assert belonging_to(tow_home)


@pytest.fixture
def guarded(tow: Tow, hosts: Hosts) -> Tow:
    """A cluster whose machine lets nobody in without a password."""
    hosts.sshd_options("h1", {"PubkeyAuthentication": "no", "PasswordAuthentication": "yes"})
    (tow.home / "config.toml").write_text('[clusters.lab]\nmachines = ["h1"]\n')
    return tow


@pytest.mark.real
def test_a_login_is_asked_for_through_the_callback_once(guarded: Tow, project: Path) -> None:
    asked: list[Login] = []
    answer = project / "answer"
    answer.write_text(f"#!/bin/sh\necho '{disk.PASSWORD}'\n")
    answer.chmod(0o700)

    def log_in(login: Login) -> bool:
        asked.append(login)
        # ssh asks this program where there is no terminal.
        by_program = {"SSH_ASKPASS": str(answer), "SSH_ASKPASS_REQUIRE": "force"}
        return subprocess.run(login.command, env={**os.environ, **by_program}).returncode == 0

    session = towline.Session(on_login=log_in)
    for _ in range(2):
        job = session.submit("hostname", cluster="lab", exclude=["answer"])
        job.wait(timeout=60, check=True)
        assert job.log() == "h1\n"
    assert [(login.machine, login.command[0]) for login in asked] == [("h1", "ssh")]


@pytest.mark.real
def test_without_a_callback_a_login_is_refused_with_what_to_type(guarded: Tow) -> None:
    with pytest.raises(errors.Refused, match="h1") as refused:
        towline.submit("hostname", cluster="lab")
    assert "tow login h1" in refused.value.hint
    declined = threading.Event()

    def decline(login: Login) -> bool:
        declined.set()
        return False

    with pytest.raises(errors.Refused):
        towline.Session(on_login=decline).submit("hostname", cluster="lab")
    assert declined.is_set()
