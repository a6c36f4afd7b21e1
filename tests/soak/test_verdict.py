"""The soak's own checker finds what it is there to find."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from soak import verdict
from soak.__main__ import summed_up
from soak.verdict import Verdict, judge
from soak.victims import Killer, Orphaning
from soak.work import MADE, Work
from testbed.hosts import Hosts
from towline.client.session import Session

WORK = Work("soak1", "lab", "ran.txt", printed=3, made=2, pause=0.0, code=7)
ENDED = {"id": 1, "state": "failed", "exit_code": 7, "reason": "", "ended": 100.0, "results": ""}
LOST = {**ENDED, "state": "lost", "exit_code": None, "reason": "gone"}


class Case:
    """A job that went well; a test changes one thing and looks at what is found wrong."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = WORK
        self.views: list[dict[str, Any]] = [dict(ENDED)]
        self.ran = ["soak1"]
        self.log = {"out": WORK.out, "err": WORK.err}
        self.killer = Killer(folder, Hosts(), ("h1",), Random(0))
        self.home = folder / "job_results"
        (self.home / "1").mkdir(parents=True)
        (self.home / "1.out").write_text(WORK.out)
        (self.home / "1.err").write_text(WORK.err)
        (self.home / "1" / MADE).write_text(WORK.file)

    def wrong(self) -> list[str]:
        return judge(
            {1: self.work}, self.views, self.ran, self.folder, self.killer, Session.__new__(Session)
        ).wrong


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    case = Case(tmp_path)
    monkeypatch.setattr(verdict, "output", lambda session, job: case.log)
    return case


def test_whatever_is_wrong_fails_the_soak_and_so_does_a_soak_without_jobs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert summed_up(Verdict(5, 2, [])) == 0
    assert "2 jobs lost, their supervisor and their agent" in capsys.readouterr().out
    assert summed_up(Verdict(5, 2, ["job 1: soak1 ran 2 times"])) == 1
    assert "WRONG: job 1: soak1 ran 2 times" in capsys.readouterr().out
    assert summed_up(Verdict(0, 0, [])) == 1


def test_a_job_that_went_well_is_right(case: Case) -> None:
    assert case.wrong() == []


@pytest.mark.parametrize("times", [0, 2])
def test_a_job_that_did_not_run_once_is_wrong(case: Case, times: int) -> None:
    case.ran = ["soak1"] * times
    assert case.wrong() == [f"job 1: soak1 ran {times} times"]


def test_another_exit_code_and_an_unknown_job_are_wrong(case: Case) -> None:
    case.views = [{**ENDED, "exit_code": 8}, {**ENDED, "id": 2}]
    assert len(case.wrong()) == 2


def test_a_job_that_is_forgotten_is_wrong(case: Case) -> None:
    case.views = []
    assert case.wrong() == ["job 1 is not known any more"]


def test_a_missing_byte_of_log_or_results_is_wrong(case: Case) -> None:
    case.log["out"] = WORK.out[:-1]
    (case.home / "1.err").write_text("")
    (case.home / "1" / MADE).write_text(WORK.file + "3\n")
    (case.home / "1" / "other").touch()
    assert len(case.wrong()) == 4


def test_a_lost_job_is_wrong_unless_its_supervisor_and_its_agent_were_killed(case: Case) -> None:
    case.views = [LOST]
    assert len(case.wrong()) == 1
    agent = (10, 1234)
    case.killer.orphanings = [Orphaning(2, agent), Orphaning(1, agent)]
    assert len(case.wrong()) == 1, "its agent was there to learn how it ended"
    case.killer.killed = {agent: 101.0}
    assert len(case.wrong()) == 1, "and was killed only after it had"
    case.killer.killed = {agent: 60.0}
    assert case.wrong() == []
    case.ran = ["soak1", "soak1"]
    assert case.wrong() == ["job 1: soak1 ran 2 times"]


def test_an_agent_that_goes_without_being_killed_is_no_excuse(case: Case) -> None:
    case.views = [LOST]
    case.killer.killed = {(10, 1234): 60.0}
    case.killer.orphanings = [Orphaning(1, None), Orphaning(1, None, at_start=True)]
    assert len(case.wrong()) == 1


def test_of_a_lost_job_whose_command_ran_to_its_end_all_must_be_home(case: Case) -> None:
    case.views = [LOST]
    case.killer.killed = {(10, 1234): 60.0}
    case.killer.orphanings = [Orphaning(1, (10, 1234))]
    (case.home / "1.out").unlink()
    case.log["err"] = ""
    assert len(case.wrong()) == 2
    case.killer.orphanings = [Orphaning(1, (10, 1234), at_start=True)]
    assert case.wrong() == [], "it may never have run"


def test_a_file_that_nobody_made_is_wrong(case: Case) -> None:
    case.work = WORK._replace(made=0)
    assert case.wrong() == [f"job 1: {MADE} came home too (results: '')"]
    (case.home / "1" / MADE).unlink()
    assert case.wrong() == []


@pytest.mark.parametrize(
    ("life", "at_start"),
    [
        ("", None),
        ('{"supervisor": 1}', None),
        ('{"spawning": 5.0}', True),
        ('{"spawning": 5.0, "pid": 7, "started": 5.0}', False),
        ('{"spawning": 5.0, "pid": 7, "started": 5.0, "status": 256}', None),
        ('{"code": 1, "started": 5.0, "ended": 6.0}', None),
    ],
)
def test_only_a_supervisor_that_was_killed_while_its_command_ran_may_lose_a_job(
    case: Case, tmp_path: Path, life: str, at_start: bool | None
) -> None:
    record = tmp_path / "records" / "engine-1-1-token-0"
    record.mkdir(parents=True)
    (record / "life").write_text(life)
    hold = "import sys, time; file = open(sys.argv[1]); print(flush=True); time.sleep(300)"
    words = [sys.executable, "-c", hold, str(record / "life")]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as supervisor:
        assert supervisor.stdout is not None and supervisor.stdout.readline()
        case.killer.kill_supervisors([supervisor.pid])
        assert supervisor.wait(10) == -signal.SIGKILL
    expected = [] if at_start is None else [Orphaning(1, None, at_start)]
    found = [one._replace(agent=None, at=0.0) for one in case.killer.orphanings]
    assert found == expected


def test_supervisors_of_an_agent_that_was_killed_are_remembered(case: Case) -> None:
    become = "import time; open('/proc/self/comm', 'w').write('tow-agent'); "
    start = "import subprocess; p = subprocess.Popen(['sleep', '300']); print(p.pid, flush=True); "
    words = [sys.executable, "-c", become + start + "time.sleep(300)"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        supervisor = int(agent.stdout.readline())
        try:
            case.killer.kill(agent.pid)
            assert [pid for pid, _ in case.killer.killed] == [agent.pid]
            assert [pid for pid, _ in case.killer.bereaved] == [supervisor]
        finally:
            os.kill(supervisor, signal.SIGKILL)
