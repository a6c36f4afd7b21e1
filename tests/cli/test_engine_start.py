"""Reaching the Engine: started when absent, replaced when of another version."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.stub import Answer, Stub, answer, refusal
from testbed.tow import Tow
from towline.client import local
from towline.client.session import Session
from towline.config.paths import Paths
from towline.errors import EngineError

NO_JOBS = {"jobs": []}


class Starter:
    """Stands in for the real Engine's program; counts how often it was started."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = home
        self.code = "pass"
        self.listens = True
        self.started: list[subprocess.Popen[bytes]] = []
        self.on_launch: Callable[[tuple[str, ...]], None] = lambda job: None
        #: What each was started for.
        self.jobs: list[tuple[str, ...]] = []
        self.stub: Stub | None = None
        monkeypatch.setattr(local, "_launch", self.launch)
        monkeypatch.setattr(local, "GIVE_WAY_S", 0.05)

    def launch(self, paths: Paths, job: tuple[str, ...]) -> "subprocess.Popen[bytes]":
        self.jobs.append(job)
        if self.listens and self.stub is None:
            self.stub = Stub(self.home / "engine.sock")
            self.stub.on("GET /v1/jobs", answer(NO_JOBS))
        self.on_launch(job)
        with open(paths.log_file, "ab") as log:
            child = subprocess.Popen([sys.executable, "-c", self.code], stdout=log, stderr=log)
        self.started.append(child)
        return child

    def close(self) -> None:
        for child in self.started:
            child.kill()
            child.wait(10)
        if self.stub:
            self.stub.close()


@pytest.fixture
def starter(tow_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Starter]:
    starter = Starter(tow_home, monkeypatch)
    try:
        yield starter
    finally:
        starter.close()


def test_an_absent_engine_is_started_once(starter: Starter) -> None:
    session = Session()
    assert session.call("GET", "/v1/jobs") == NO_JOBS
    assert session.call("GET", "/v1/jobs") == NO_JOBS
    assert len(starter.started) == 1


def test_two_threads_that_bury_the_same_engine_are_not_in_each_others_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    with subprocess.Popen(["true"]) as ended:
        ended.wait(10)

    def waitpid(pid: int, how: int) -> tuple[int, int]:
        asked.append(pid)
        if len(asked) == 1:
            local._let_go(ended)  # as another thread does meanwhile
        raise ChildProcessError

    monkeypatch.setattr(local, "_children", type(local._children)([4711]))
    monkeypatch.setattr(os, "waitpid", waitpid)
    local._let_go(ended)
    assert asked == [4711, 4711]
    assert not local._children


def test_an_engine_that_is_started_for_a_job_is_told_its_folder_and_cluster(
    starter: Starter,
) -> None:
    starter.listens = False
    stub = starter.stub = Stub(starter.home / "elsewhere.sock")
    stub.on("POST /v1/jobs", answer({"jobs": [{"id": 1}]}))

    def listens(job: tuple[str, ...]) -> None:
        (starter.home / "elsewhere.sock").rename(starter.home / "engine.sock")

    starter.on_launch = listens
    ask = {"argv": ["true"], "cwd": "/work", "cluster": "lab"}
    assert Session().submit_ask(ask, "key") == {"id": 1}
    assert starter.jobs == [("/work", "lab")]


def test_a_socket_that_nobody_listens_on_counts_as_absent(starter: Starter) -> None:
    Stub(starter.home / "engine.sock").close()
    session = Session()
    first_look = session.running()
    (starter.home / "engine.sock").unlink()
    assert first_look is None
    assert session.call("GET", "/v1/jobs") == NO_JOBS


def test_an_engine_that_fails_to_start_shows_the_end_of_its_log(starter: Starter) -> None:
    starter.listens = False
    starter.code = "import sys; sys.exit('the store is from a newer version')"
    (starter.home / "engine.log").write_text("an old line\n")
    with pytest.raises(EngineError) as caught:
        Session().call("GET", "/v1/jobs")
    assert "does not start" in caught.value.text
    assert "the store is from a newer version" in caught.value.hint
    assert "an old line" not in caught.value.hint


def test_an_engine_that_gave_way_to_one_that_ended_is_started_again(
    starter: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    starter.listens = False
    first = starter.launch

    def second_time(paths: Paths, job: tuple[str, ...]) -> "subprocess.Popen[bytes]":
        starter.listens = bool(starter.started)
        return first(paths, job)

    monkeypatch.setattr(local, "_launch", second_time)
    assert Session().call("GET", "/v1/jobs") == NO_JOBS
    assert len(starter.started) == 2


def test_the_real_launch_gives_the_engine_a_private_log_and_a_session_of_its_own(
    tow_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda argv, **how: seen.append({"argv": argv, **how}))
    local._launch(Session().paths)
    (how,) = seen
    assert how["argv"] == [sys.executable, "-m", "towline.server.laptop"]
    assert (how["cwd"], how["start_new_session"]) == ("/", True)
    assert (tow_home / "engine.log").stat().st_mode & 0o777 == 0o600


def test_an_engine_of_another_version_is_retired_and_the_request_repeated(
    tow: Tow, stub: Stub
) -> None:
    stub.on("GET /v1/jobs", refusal("older", code="version"), answer(NO_JOBS))
    stub.on("GET /v1/engine", answer({"pid": 1}), answer({"pid": 1}), answer({"pid": 2}))
    stub.on("POST /v1/engine/retire", answer({}))
    done = tow("status")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(stub.asked_of("GET /v1/jobs")) == 2
    (retire,) = stub.asked_of("POST /v1/engine/retire")
    assert "towline-version" not in retire.headers


def test_a_version_that_still_differs_is_an_error_and_not_a_loop(tow: Tow, stub: Stub) -> None:
    stub.on("GET /v1/jobs", refusal("this Engine is older", code="version", exit=1))
    stub.on("GET /v1/engine", answer({"pid": 1}), answer({"pid": 2}))
    stub.on("POST /v1/engine/retire", answer({}))
    done = tow("status")
    assert done.returncode == 1
    assert "this Engine is older" in done.stderr


def test_an_answer_that_breaks_off_is_asked_for_again(tow: Tow, stub: Stub) -> None:
    stub.on("GET /v1/jobs", Answer(body=b'{"jo', broken=True), answer(NO_JOBS))
    assert tow("status").returncode == 0


def test_what_may_not_be_done_twice_is_not_asked_for_again(tow: Tow, stub: Stub) -> None:
    stub.on("POST /v1/jobs/retry", Answer(body=b'{"jo', broken=True))
    done = tow("retry", "12")
    assert done.returncode == 1
    assert "tow status" in done.stderr and "Traceback" not in done.stderr
    assert len(stub.asked_of("POST /v1/jobs/retry")) == 1


def test_an_answer_that_is_no_api_error_is_told_without_a_traceback(tow: Tow, stub: Stub) -> None:
    stub.on("GET /v1/jobs", Answer(status=500, body=b"<html>"))
    done = tow("status")
    assert done.returncode == 1
    assert "the Engine answered 500" in done.stderr


def test_engine_status_starts_nothing(tow: Tow) -> None:
    done = tow("engine")
    assert "there is no Engine running" in done.stdout
    assert not (tow.home / "engine.sock").exists()
    assert tow("engine", "stop").stdout == "there is no Engine running\n"


def test_engine_status_tells_what_it_is(tow: Tow, stub: Stub) -> None:
    stub.on("GET /v1/engine", answer({"pid": 7, "version": "1.2", "jobs_active": 1}))
    shown = tow("engine", "status").stdout
    assert "Engine 1.2, process 7" in shown and "1 active job " in shown
    assert tow.json("engine")["pid"] == 7


def test_engine_log_prints_its_last_lines(tow: Tow) -> None:
    assert tow("engine", "log").returncode == 2
    (tow.home / "engine.log").write_text("one\ntwo\nthree\n")
    assert tow("engine", "log", "-n", "2").stdout == "two\nthree\n"
