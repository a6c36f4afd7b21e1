"""Whatever is killed and however often: every job runs exactly once, and is told as it was."""

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest

from e2e.checker import Task, differences, lines_on, tasks
from e2e.engines import engine_pid, serves
from e2e.jobs import configure
from testbed.far import far_config
from testbed.hosts import Hosts
from testbed.processes import name_of, parent_of, processes_on
from testbed.tow import Tow
from testbed.waiting import wait_until
from towline.client.session import Session

pytestmark = [pytest.mark.real, pytest.mark.slow]

LAB = ("h1", "h2", "h3")
#: How often the Engine is killed over how many jobs, next door and far away.
NEXT_DOOR, FAR_AWAY = (100, 300), (25, 75)
ROUND_TRIP_S = 0.05
#: Every so many jobs are followed by a `tow run` of their own.
FOLLOWED = 10
#: Of the kills, this share comes while the Engine still starts and connects.
EARLY = 0.5
LONGEST_LIFE_S = 0.6
#: Three at a time fit on a host of 32, so that all hosts are used and jobs also wait.
WIDE = ("--cpus", "10")


class EngineKiller:
    """Lets every Engine live for a random moment, until enough of them were killed."""

    def __init__(self, home: Path, random: Random, wanted: int) -> None:
        self.home = home
        self.random = random
        self.wanted = wanted
        self.killed: list[int] = []
        self.enough = threading.Event()

    def run(self) -> None:
        try:
            while len(self.killed) < self.wanted:
                pid = wait_until(self._fresh, timeout=60, every=0.005)
                if self.random.random() > EARLY:
                    wait_until(lambda pid=pid: self._is_at_work(pid), timeout=60)
                self.enough.wait(self.random.uniform(0, LONGEST_LIFE_S))
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    self.killed.append(pid)
        finally:
            self.enough.set()

    def _is_at_work(self, pid: int) -> bool:
        about = Session().running() if serves(self.home, pid) else None
        return about is not None and "online" in about["machines"].values()

    def _fresh(self) -> int:
        pid = engine_pid(self.home)
        return pid if pid not in self.killed[-1:] else 0


@contextlib.contextmanager
def in_background(pool: ThreadPoolExecutor, killer: EngineKiller) -> Iterator["Future[None]"]:
    """Kill, and keep looking, so that there is always another Engine to kill."""
    killing = pool.submit(killer.run)
    try:
        yield killing
    finally:
        killer.wanted = 0
        killing.exception(timeout=90)


def submit_one(tow: Tow, task: Task, followed: bool) -> int:
    """The number of the job; a followed one must print and exit exactly as its command does."""
    how = [] if followed else ["-d", "--json"]
    words = ("-c", "lab", *WIDE, "-t", task.name, *how)
    done = tow("run", *words, "--", *task.argv, timeout=170)
    if not followed:
        assert done.returncode == 0, done.stderr
        return int(json.loads(done.stdout)["id"])
    _check_followed(task, done)
    return int(done.stderr.rpartition("job ")[2].split()[0])


def _check_followed(task: Task, done: "subprocess.CompletedProcess[str]") -> None:
    assert (done.returncode, done.stdout) == (task.code, task.out), (task, done)
    assert done.stderr.count(task.err) == 1, (task, done)


def all_ended(tow: Tow) -> list[dict[str, Any]] | None:
    jobs = tow.json("status", "-a")["jobs"]
    return jobs if all(job["ended"] for job in jobs) else None


@pytest.fixture
def far(
    hosts: Hosts, tow: Tow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], None]:
    """Moves all hosts to the end of a long way."""

    def move() -> None:
        config = str(far_config(hosts.ssh_config, ROUND_TRIP_S, tmp_path))
        tow.env["TOWLINE_SSH_CONFIG"] = config
        monkeypatch.setenv("TOWLINE_SSH_CONFIG", config)

    return move


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("kills", "jobs"), [NEXT_DOOR, FAR_AWAY], ids=["next_door", "far_away"])
def test_kills_of_the_engine_lose_nothing_and_repeat_nothing(
    hosts: Hosts, tow: Tow, tow_home: Path, far: Callable[[], None], kills: int, jobs: int
) -> None:
    random = Random(20240607)
    if (kills, jobs) == FAR_AWAY:
        far()
    configure(tow, *LAB)
    wanted = tasks(jobs, random, longest=1.2)
    killer = EngineKiller(tow_home, random, kills)
    numbers: dict[int, Future[int]] = {}
    with ThreadPoolExecutor(12) as pool, in_background(pool, killer) as killing:
        for number, task in enumerate(wanted):
            # Spread over the kills: submitting is interrupted as often as running is.
            due = number * kills // jobs
            wait_until(lambda due=due: len(killer.killed) >= due or looked_at(tow), timeout=60)
            numbers[number] = pool.submit(submit_one, tow, task, number % FOLLOWED == 0)
        while not killer.enough.is_set():
            looked_at(tow)
        asked = {future.result(): wanted[number] for number, future in numbers.items()}
        killing.result()
    views = wait_until(lambda: all_ended(tow), timeout=60, every=0.2)
    ran = lines_on(hosts, LAB)
    assert differences(asked, views, ran, Session()) == []
    assert all(ran.values()), "not every host was used"
    assert len(killer.killed) == kills


def looked_at(tow: Tow) -> None:
    done = tow("status", "-n", "1")
    assert done.returncode == 0, done.stderr


def kill_one(hosts: Hosts, name: str, random: Random) -> None:
    """Kill -9 one process of this name, on any host."""

    def found() -> list[int]:
        return [pid for host in LAB for pid in processes_on(hosts, host, name)]

    pid = random.choice(wait_until(found, timeout=60))
    # A job's command carries its supervisor's name until it has become itself; it is no victim.
    if name_of(parent_of(pid)) != name:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("is_far", [False, True], ids=["next_door", "far_away"])
@pytest.mark.parametrize("victim", ["tow-agent", "tow-supervisor"])
def test_killed_agents_and_killed_supervisors_cost_no_job_and_no_exit_code(
    hosts: Hosts, tow: Tow, far: Callable[[], None], victim: str, is_far: bool
) -> None:
    random = Random(victim)
    if is_far:
        far()
    configure(tow, *LAB)
    wanted = tasks(60, random, longest=3.0)
    with ThreadPoolExecutor(4) as pool:
        submitted = [pool.submit(submit_one, tow, task, False) for task in wanted]
        for _ in range(15):
            kill_one(hosts, victim, random)
        asked = {future.result(): task for future, task in zip(submitted, wanted, strict=True)}
    views = wait_until(lambda: all_ended(tow), timeout=120, every=0.2)
    assert differences(asked, views, lines_on(hosts, LAB), Session()) == []
