"""A team's server as a process: from an empty folder to results at home, and through kills."""

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.team import PASSWORD, TeamServer
from testbed.tow import Tow
from towline.errors import Forbidden, SignInWanted


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TeamServer]:
    made = TeamServer(tmp_path / "server")
    yield made
    made.stop()


def sign_in(tow: Tow, server: TeamServer, user: str) -> None:
    server.user(user)
    words = ("clusters", "add", "team", "--connect", str(server.connect_file))
    done = tow(*words, "--user", user, "--password-stdin", input=f"{PASSWORD}\n")
    assert done.returncode == 0, done.stderr


def test_a_folder_runs_on_the_server_and_what_it_makes_comes_home(
    tow: Tow, server: TeamServer
) -> None:
    assert "without walls" in server.start()
    sign_in(tow, server, "ann")
    (tow.folder / "odd name é.txt").write_text("data\n")
    (tow.folder / "large.bin").write_bytes(random.Random(1).randbytes(9 << 20))
    script = "cat 'odd name é.txt'; wc -c < large.bin; echo new > made.txt; ln -s made.txt link"
    done = tow("run", "-c", "team", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["data", str(9 << 20)]
    results = tow.folder / "job_results" / "team-1"
    assert (results / "made.txt").read_text() == "new\n"
    assert (results / "link").readlink() == Path("made.txt")
    # What a person changed stays; what the server has of it comes beside.
    (results / "made.txt").write_text("mine\n")
    assert tow("@team", "results", "1").returncode == 0
    assert (results / "made.txt").read_text() == "mine\n"
    assert "made.txt" in tow("@team", "ls", "1").stdout
    assert tow("run", "-c", "team", "false").returncode == 1
    assert [job["id"] for job in tow.json("status", "-c", "team")["jobs"]] == [1, 2]
    # Nothing of this machine but the folder went there, and nothing of the server's came here.
    with pytest.raises(Forbidden):
        server.user("ben").call("GET", "/v1/jobs/1/made")
    told = server.user("ann").call("GET", "/v1/jobs/1")
    assert str(server.folder) not in str({**told, "processes": None})


def test_contents_are_given_only_to_who_sent_them(server: TeamServer) -> None:
    server.start()
    ann, ben = server.user("ann"), server.user("ben")
    digest = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"  # of "foo"
    ann.upload("/v1/contents", lambda: [({"hash": digest}, b"foo")])
    entries = {"entries": [["secret", "f", digest]]}
    snapshot = ann.call("POST", "/v1/snapshots", entries)["snapshot"]
    assert ben.call("POST", "/v1/contents/missing", {"hashes": [digest]})["missing"] == [digest]
    for body in (entries, {"entries": [["../x", "d", ""]]}, {"entries": [["a", "l", "/"]] * 2}):
        with pytest.raises(Exception, match=r"not sent|cannot be|twice"):
            ben.call("POST", "/v1/snapshots", body)
    ask = {"argv": ["cat", "secret"], "cwd": "/", "frozen": {"snapshot": snapshot}}
    with pytest.raises(Exception, match="is not here"):
        ben.submit_ask(dict(ask), "k")
    with pytest.raises(Exception, match="another hash"):
        ben.upload("/v1/contents", lambda: [({"hash": digest}, b"bar")])
    assert ann.submit_ask(dict(ask), "k")["id"] == 1


def test_invitations_copies_and_the_unit(tmp_path: Path) -> None:
    server = TeamServer(tmp_path / "server", registration="invitation")
    assert f"server run {server.folder}" in server.tow("unit", str(server.folder))
    code = server.tow("invite", str(server.folder), "--name", "eve").strip()
    copy = tmp_path / "copy.db"
    try:
        server.start()
        new = {"name": "eva", "password": PASSWORD, "invitation": code}
        with pytest.raises(Forbidden):
            server.session("").call("POST", "/v1/accounts", new)
        server.session("").call("POST", "/v1/accounts", {**new, "name": "eve"})
        server.tow("backup", str(server.folder), str(copy))
        root = server.user("root")
        root.call("DELETE", "/v1/accounts/eve")
    finally:
        server.stop()
    server.tow("restore", str(server.folder), str(copy))
    assert sqlite3.connect(copy).execute("PRAGMA quick_check").fetchone() == ("ok",)
    try:
        server.start()
        assert server.user("eve").call("GET", "/v1/accounts/~")["state"] == "active"
        # Tokens that were given after the copy was made are not known to it.
        with pytest.raises(SignInWanted):
            root.call("GET", "/v1/accounts")
    finally:
        server.stop()
