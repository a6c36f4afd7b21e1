"""What jobs made on a team's server comes home in one stream, over broken connections too."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.team import TeamServer
from testbed.waiting import wait_until
from towline.client.remote import RemoteSession
from towline.config.paths import Paths
from towline.workspace.sending import bring_home

FILES = 1200
LONG = random.Random(3).randbytes(5_000_000)
MAKE = f"""
import os, random
for number in range({FILES}):
    os.makedirs(f"out/{{number % 7}}", exist_ok=True)
    open(f"out/{{number % 7}}/{{number}}", "w").write(f"of {{number}}")
open("empty", "w").close()
open(b"odd-\\xff\\n", "w").write("odd")
open("long", "wb").write(random.Random(3).randbytes(5_000_000))
os.symlink("long", "link")
os.symlink("/etc/passwd", "elsewhere")
print("printed")
"""


class Breaking:
    """A connection that breaks after so many bytes."""

    def __init__(self, real: Any, left: int) -> None:
        self._real = real
        self._left = left

    def recv(self, most: int) -> bytes:
        if self._left <= 0:
            raise ConnectionResetError
        data: bytes = self._real.recv(min(most, self._left))
        self._left -= len(data)
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class BreakingSession(RemoteSession):
    """A session that counts its connections, each of which breaks earlier than it should."""

    most = 10**12
    connections = 0

    def connect(self, submission: Any = None) -> Any:
        self.connections += 1
        return Breaking(super().connect(submission), self.most)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TeamServer]:
    made = TeamServer(tmp_path / "server")
    made.start()
    yield made
    made.stop()


def taken(session: RemoteSession, folder: Path, home: Path) -> dict[str, bytes]:
    job = session.call("GET", "/v1/jobs/1")
    assert job["home"]["kind"] == "home"
    paths = Paths(str(home), str(home / "config.toml"), str(home / "socket"))
    placed = bring_home(session, "team", {**job, "folder": str(folder)}, paths)
    assert not placed.refused and not placed.in_the_way
    top = folder / "job_results"
    return {
        str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()
    }


def test_thousands_of_results_are_one_request_and_survive_cuts(
    server: TeamServer, tmp_path: Path
) -> None:
    ann = server.user("ann")
    assert ann.submit_ask({"argv": ["python3", "-c", MAKE], "cwd": "/"}, "k")["id"] == 1
    wait_until(lambda: (ann.call("GET", "/v1/jobs/1").get("home") or {}).get("kind") == "home")
    found = {}
    for name, most in (("whole", 10**12), ("cut", 400_000)):
        folder, home = tmp_path / name, tmp_path / f"{name}-home"
        folder.mkdir()
        home.mkdir()
        session = BreakingSession(ann.url, ann._certificate, ann.token)
        session.most = most
        found[name] = taken(session, folder, home)
        # The job itself, and all that it made.
        assert session.connections == 2 if name == "whole" else session.connections > 10
    wanted = {
        f"team-1/out/{number % 7}/{number}": f"of {number}".encode() for number in range(FILES)
    }
    wanted |= {"team-1/empty": b"", "team-1/odd-\udcff\n": b"odd", "team-1.out": b"printed\n"}
    wanted |= {"team-1/long": LONG, "team-1/link": LONG, ".gitignore": b"*\n"}
    assert found["whole"] == wanted
    assert found["cut"] == wanted
