"""A team's server is killed at random moments while jobs of five members are in flight on three
real nodes: nothing is lost, nothing runs twice, and nobody's GPU, token or share is touched.

`TOWLINE_TEAM_KILLS=100 pytest -s tests/e2e/test_team_kills.py` is the long form.
"""

import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from testbed.hosts import Hosts
from testbed.team import TeamServer
from testbed.waiting import wait_until
from towline.client.remote import RemoteSession
from towline.errors import EngineError

KILLS = int(os.environ.get("TOWLINE_TEAM_KILLS", "3"))
SEED = int(os.environ.get("TOWLINE_TEAM_SEED", "1"))
USERS = ("ann", "ben", "cem", "dot", "eve")
#: Jobs that are accepted and not over, of all members together.
IN_FLIGHT = 200 if KILLS >= 20 else 60
NODES = {"n0": "h1", "n1": "h2", "n2": "h3"}
GPU = {"name": "NVIDIA GeForce GTX 1070", "memory_total": 8192}
GPUS_EACH = 4
#: Every second job wants a GPU; none waits for a core.
REQUESTS = ("[cpus=0.1]", "[gtx1070,cpus=0.1]")
#: What a job leaves behind: when it began and ended, and on which GPUs.
SCRIPT = (
    'echo "began $(date +%s.%N) $CUDA_VISIBLE_DEVICES" >> "$HOME/marks/$0"; sleep "$1"; '
    'echo "ended $(date +%s.%N)" >> "$HOME/marks/$0"'
)

pytestmark = [pytest.mark.real, pytest.mark.timeout(240 + 15 * KILLS)]


@pytest.fixture
def server(tmp_path: Path, hosts: Hosts) -> Iterator[TeamServer]:
    """Three nodes with four GPUs each, and a group of which two members are."""
    made = TeamServer(tmp_path / "server", "")
    made.env["TOWLINE_SSH_CONFIG"] = str(hosts.ssh_config)
    for host in NODES.values():
        hosts.set_gpus(host, [GPU] * GPUS_EACH)
        hosts.run(host, ["mkdir", "marks"])
    made.start()
    root = made.user("root")
    for node, host in NODES.items():
        new = {"endpoint": f"ssh://{host}", "isolation": "none"}
        root.call("PUT", f"/v1/nodes/{node}", new)
    root.call("PUT", "/v1/aliases/gtx1070", {"resource": GPU["name"]})
    root.call("PUT", "/v1/groups/friends")
    for user in USERS:
        made.user(user)
    for user in USERS[:2]:
        root.call("PUT", f"/v1/accounts/{user}/groups/friends")
    yield made
    made.stop()


class Member(threading.Thread):
    """Somebody who always has so many jobs in flight, whatever happens to the server."""

    def __init__(self, name: str, session: RemoteSession, chance: random.Random) -> None:
        super().__init__(name=name)
        self.session = session
        self.chance = chance
        self.enough = threading.Event()
        #: Number of a job -> what it leaves its mark under.
        self.accepted: dict[int, str] = {}
        self.shared: set[int] = set()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.enough.is_set():
                active = insisting(lambda: self.session.call("GET", "/v1/jobs?state=active"))
                for _ in range(IN_FLIGHT // len(USERS) - len(active["jobs"])):
                    self.submit(len(self.accepted))
                self.enough.wait(0.2)
        except BaseException as error:
            self.failure = error

    def submit(self, number: int) -> None:
        mark = f"{self.name}-{number}"
        sleep = f"{self.chance.uniform(0.1, 2):.2f}"
        ask = {
            "argv": ["sh", "-c", SCRIPT, mark, sleep],
            "cwd": "/",
            "request": REQUESTS[number % 2],
        }
        # The same key every time: it is the same submission.
        job = insisting(lambda: self.session.submit_ask(dict(ask), mark))["id"]
        self.accepted[job] = mark
        if self.name in USERS[:2] and number % 10 == 0:
            insisting(lambda: self.session.call("PUT", f"/v1/jobs/{job}/groups/friends"))
            self.shared.add(job)


def insisting(ask: Callable[[], Any]) -> Any:
    """The answer, however often the server goes away over the question."""
    while True:
        try:
            return ask()
        except EngineError:
            time.sleep(0.05)


def accepted_by(members: list[Member]) -> int:
    """How many jobs were accepted so far."""
    assert not (failed := [one.failure for one in members if one.failure]), failed
    return sum(len(one.accepted) for one in members)


def shares(server: TeamServer) -> dict[str, float]:
    """What everybody used, as it is written down; what is forgotten of it in a test is little."""
    with closing(sqlite3.connect(server.folder / "store.db")) as store:
        return dict(store.execute("SELECT owner, used FROM used_shares"))


def kill_again_and_again(server: TeamServer, members: list[Member], chance: random.Random) -> None:
    before: dict[str, float] = {}
    for number in range(KILLS):
        if chance.random() < 0.2:
            # Also while it starts.
            server.launch()
            time.sleep(chance.uniform(0, 2))
        else:
            server.start()
            time.sleep(chance.uniform(0, 3))
            assert accepted_by(members)
            for member in members:
                assert member.session.call("GET", "/v1/accounts/~")["name"] == member.name
        server.kill()
        now = shares(server)
        less = {
            who: (used, now.get(who))
            for who, used in before.items()
            if now.get(who, 0.0) < used * 0.98
        }
        assert not less, f"after kill {number + 1}"
        before = now
        print(f"kill {number + 1}: {accepted_by(members)} jobs accepted", flush=True)
    server.start()


def marks(hosts: Hosts) -> dict[str, list[tuple[str, list[str]]]]:
    """What every job left behind, and on which host."""
    found: dict[str, list[tuple[str, list[str]]]] = {}
    for host in NODES.values():
        for file in (hosts.home(host) / "marks").iterdir():
            found.setdefault(file.name, []).append((host, file.read_text().splitlines()))
    return found


def check_each_ran_once(left: dict[str, list[tuple[str, list[str]]]], names: set[str]) -> None:
    assert left.keys() == names, left.keys() ^ names
    wrong = {
        name: runs
        for name, runs in left.items()
        if len(runs) > 1 or [line.split()[0] for line in runs[0][1]] != ["began", "ended"]
    }
    assert not wrong, wrong


def check_gpus_were_one_jobs_at_a_time(left: dict[str, list[tuple[str, list[str]]]]) -> None:
    held: dict[tuple[str, str], list[tuple[float, float, str]]] = {}
    for name, [(host, [began, ended])] in left.items():
        _, since, *gpus = began.split()
        for gpu in gpus[0].split(",") if gpus else ():
            until = float(ended.split()[1])
            held.setdefault((host, gpu), []).append((float(since), until, name))
    assert len(held) == len(NODES) * GPUS_EACH
    for times in held.values():
        times.sort()
        for one, other in pairwise(times):
            assert one[1] <= other[0], (one, other)


def test_a_server_that_is_killed_at_any_moment_loses_nothing_and_runs_nothing_twice(
    server: TeamServer, hosts: Hosts
) -> None:
    chance = random.Random(SEED)
    members = [Member(user, server.user(user), random.Random(f"{SEED}{user}")) for user in USERS]
    for member in members:
        member.start()
    try:
        wait_until(lambda: accepted_by(members) >= IN_FLIGHT, 90)
        server.kill()
        kill_again_and_again(server, members, chance)
    finally:
        for member in members:
            member.enough.set()
        if server.process is not None and server.process.poll() is not None:
            server.start()
        for member in members:
            member.join(60)
    assert [member.failure for member in members] == [None] * len(USERS)
    for member in members:
        session = member.session
        wait_until(
            lambda asker=session: not asker.call("GET", "/v1/jobs?state=active")["jobs"], 120
        )
        listed = {job["id"]: job for job in session.call("GET", "/v1/jobs?all=1")["jobs"]}
        own = {number for number, job in listed.items() if job["owner"] == member.name}
        assert own == member.accepted.keys()
        assert {listed[number]["state"] for number in own} == {"done"}
        for number in {*member.shared, *sorted(own)[-20:]}:
            groups = session.call("GET", f"/v1/team/jobs/{number}")["groups"]
            assert groups == (["friends"] if number in member.shared else []), number
    left = marks(hosts)
    check_each_ran_once(left, {name for member in members for name in member.accepted.values()})
    check_gpus_were_one_jobs_at_a_time(left)
    check_every_gpu_is_free(server, hosts)


def check_every_gpu_is_free(server: TeamServer, hosts: Hosts) -> None:
    """Nothing runs, no claim is left on a node, and one job gets all GPUs of all nodes."""
    ann = server.user("ann")
    assert ann.call("GET", "/v1/team/status")["running"] == []
    for host in NODES.values():
        claims = list((hosts.root(host) / "tmp").glob(".towline-claims-*/*"))
        assert claims == [], host
    everything = f"{len(NODES)}:[{GPUS_EACH}:gtx1070,cpus=0.1]"
    job = ann.submit_ask({"argv": ["true"], "cwd": "/", "request": everything}, "all")["id"]
    wait_until(lambda: ann.call("GET", f"/v1/jobs/{job}")["state"] == "done", 60)
