"""The data of a team from outside: `pit` and `tow @team` against a real server."""

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.pit import PASSWORD, Pit
from testbed.team import TeamServer
from testbed.waiting import wait_until
from towline.client.data import DataFolder

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TeamServer]:
    """One for all of these tests, with a group staff that anna is in."""
    made = TeamServer(tmp_path_factory.mktemp("team") / "server")
    made.start()
    root = made.user("root")
    made.user("anna")
    root.call("PUT", "/v1/groups/staff", {})
    root.call("PUT", "/v1/accounts/anna/groups/staff")
    yield made
    made.stop()


@pytest.fixture
def anna(server: TeamServer, tmp_path: Path) -> Pit:
    return Pit(tmp_path / "anna", server).signed_in("anna")


@pytest.fixture
def bert(server: TeamServer, tmp_path: Path) -> Pit:
    return Pit(tmp_path / "bert", server).signed_in("bert")


@pytest.fixture
def root(server: TeamServer, tmp_path: Path) -> Pit:
    return Pit(tmp_path / "root", server).signed_in("root")


def test_files_go_to_and_fro_with_the_rights_of_each_domain(
    server: TeamServer, anna: Pit, bert: Pit, root: Pit
) -> None:
    words = anna.folder / "words.txt"
    words.write_text("one two\n")
    (server.folder / "data" / "shared" / "set").mkdir()
    (server.folder / "data" / "shared" / "set" / "x").write_text("shared\n")
    # One's own.
    assert anna.well("push", "home", "sets/words.txt", "words.txt") == ""
    assert anna.well("ls", "home") == "D sets\n"
    assert anna.well("ls", "home", "/sets") == "F words.txt\n"
    assert anna.well("ls", "home", "sets/words.txt") == "F sets/words.txt\n"
    assert anna.well("cat", "home", "sets/words.txt") == "one two\n"
    assert anna.refused("ls", "home", "nothing") == "Command failed: Not Found"
    assert bert.well("ls", "home") == ""
    # That of others: for administrators only.
    assert bert.refused("ls", "user:anna") == "Command failed: Forbidden"
    assert bert.refused("push", "user:anna", "x", input="x") == "Command failed: Forbidden"
    assert root.well("cat", "user:anna", "sets/words.txt") == "one two\n"
    # A group's: for its members and administrators.
    assert anna.well("mkdir", "group:staff", "a/b") == ""
    assert root.well("push", "group:staff", "a/b/", "../home/.pitconnect.txt") == ""
    assert anna.well("ls", "group:staff", "a/b") == "F .pitconnect.txt\n"
    for words_ in (
        ["ls", "group:staff"],
        ["cat", "group:staff", "a"],
        ["mkdir", "group:staff", "c"],
    ):
        assert bert.refused(*words_) == "Command failed: Forbidden"
    # What is shared: read by all, written by nobody.
    for pit in (anna, bert, root):
        assert pit.well("cat", "shared", "set/x") == "shared\n"
        assert pit.refused("push", "shared", "y", input="y") == "Command failed: Forbidden"
        assert pit.refused("delete", "shared", "set") == "Command failed: Forbidden"
    assert bert.well("cp", "shared", "set/x", ".") == ""
    assert (bert.folder / "x").read_text() == "shared\n"
    assert bert.refused("cp", "shared", "set", ".").endswith("only file copying is supported.")
    # Deleted with all that is in it.
    assert anna.well("delete", "group:staff", "a") == ""
    assert anna.well("ls", "group:staff") == ""
    assert anna.refused("delete", "group:staff", "a") == "Command failed: Not Found"
    assert anna.refused("ls", "group:none") == "Command failed: Forbidden"
    assert anna.refused("ls", "attic") == 'Command failed: Unsupported entity type "attic"'


def test_pull_and_push_skip_go_on_and_replace_as_the_ancestor(anna: Pit) -> None:
    data = os.urandom(300_000)
    (anna.folder / "big").write_bytes(data)
    anna.well("push", "home", "big", "big")
    # Pulled: what is there whole stays, a part is gone on with, more is refused.
    here = anna.folder / "here"
    anna.well("pull", "home", "big", "here")
    assert here.read_bytes() == data
    here.write_bytes(data[:100_000])
    anna.well("pull", "-c", "home", "big", "here")
    assert here.read_bytes() == data
    here.write_bytes(data + b"more")
    assert "is larger" in anna.refused("pull", "home", "big", "here")
    anna.well("pull", "-f", "home", "big", "here")
    assert here.read_bytes() == data
    # A part of something else does not become a wrong whole without a word.
    here.write_bytes(b"x" * 1000)
    assert "is not what is there" in anna.refused("pull", "-c", "home", "big", "here")
    # Pushed: the same is nothing new, something else is not replaced unasked.
    assert anna.well("push", "home", "big", "big") == ""
    (anna.folder / "big").write_bytes(b"other")
    assert "is there already" in anna.refused("push", "home", "big", "big")
    anna.well("push", "-f", "home", "big", "big")
    assert anna.well("cat", "home", "big") == "other"
    assert anna.refused("push", "home", "d", "..") == (
        "Command failed: Command only supports file transfers."
    )


def test_a_push_that_was_cut_goes_on_where_it_was(server: TeamServer, anna: Pit) -> None:
    """The server is killed in the middle: the client waits for none of it, and sends the rest."""
    data = os.urandom(40 << 20)
    file = anna.folder / "big"
    file.write_bytes(data)
    folder = DataFolder(server.user("anna"), "home")
    seen: list[int] = []

    class Killed(Exception): ...

    def tell(at: int, _: int) -> None:
        seen.append(at)
        if len(seen) == 2:
            server.kill()
            raise Killed

    with file.open("rb") as opened, pytest.raises(Killed):
        folder.send("cut.bin", opened, 0o644, tell)
    server.start()
    assert "cut.bin" not in anna.well("ls", "home")
    seen.clear()
    with file.open("rb") as opened:
        sent = folder.send("cut.bin", opened, 0o644, lambda at, _: seen.append(at))
    assert seen[0] == 16 << 20 and sent == 24 << 20
    assert folder.stat("cut.bin", hashed=True)["sha256"] == hashlib.sha256(data).hexdigest()


def test_quotas_are_set_by_administrators_and_said_clearly(anna: Pit, root: Pit) -> None:
    assert anna.refused("set", "user:anna", "quota=1G") == "Command failed: Forbidden"
    root.well("set", "group:staff", "quota=1M")
    (anna.folder / "big").write_bytes(bytes(2_000_000))
    refused = anna.refused("push", "group:staff", "big", "big")
    assert refused == (
        "Command failed: group:staff may have 1.05 MB: it has 0 bytes, and this would be 2 MB more"
    )
    root.well("set", "group:staff", "quota=none")
    anna.well("push", "group:staff", "big", "big")
    anna.well("delete", "group:staff", "big")


def tow_of(pit: Pit) -> list[str]:
    """`tow` of the same person, who has added the server as `team`."""
    tow = [sys.executable, "-m", "towline.cli.main"]
    name = (pit.home / ".pituser.txt").read_text().splitlines()[0]
    connect = str(pit.home / ".pitconnect.txt")
    words = ["clusters", "add", "team", "--connect", connect, "--user", name, "--password-stdin"]
    done = subprocess.run(
        [*tow, *words], env=pit.env, input=f"{PASSWORD}\n", capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return tow


def test_tow_lists_pushes_pulls_and_prints_the_same_data(anna: Pit) -> None:
    tow = tow_of(anna)

    def typed(*words: str, code: int = 0) -> str:
        done = subprocess.run(
            [*tow, "@team", *words], cwd=anna.folder, env=anna.env, capture_output=True, text=True
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout if code == 0 else done.stderr

    folder = anna.folder / "images"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.png").write_bytes(b"a" * 1000)
    (folder / "deep" / "b.png").write_bytes(b"b" * 500)
    (folder / "link").symlink_to("/etc/passwd")
    assert typed("push", "home", "images", "sets/images") == "2 files, 1.5 KB to home\n"
    # The same again: nothing travels.
    assert typed("push", "home", "images", "sets/images") == "2 files, 0 B to home\n"
    assert typed("ls", "home", "sets/images") == "a.png\ndeep/\n"
    assert "1000 B" in typed("ls", "-l", "home", "sets/images")
    assert typed("cat", "home", "sets/images/deep/b.png") == "b" * 500
    assert typed("pull", "home", "sets/images", "back") == "2 files, 1.5 KB\n"
    assert (anna.folder / "back" / "deep" / "b.png").read_bytes() == b"b" * 500
    assert typed("pull", "home", "sets/images", "back2/") == "2 files, 1.5 KB\n"
    assert typed("pull", "home", "sets/images/a.png") == "1 file, 1000 B\n"
    assert typed("pull", "home", "sets/images/a.png") == "0 files, 0 B, 1 here already\n"
    (anna.folder / "a.png").write_text("mine")
    assert "here already, with other contents: a.png" in typed(
        *("pull", "home", "sets/images/a.png"), code=2
    )
    assert (anna.folder / "a.png").read_text() == "mine"
    assert "there is nothing at 'nope'" in typed("ls", "home", "nope", code=2)
    assert "read-only" in typed("push", "shared", "a.png", code=1)
    assert "is not for anna" in typed("ls", "user:bert", code=1)


@pytest.mark.real
def test_a_domain_is_mounted_read_and_written(server: TeamServer, anna: Pit) -> None:
    shared = server.folder / "data" / "shared" / "mounted.bin"
    content = os.urandom(3 << 20)
    shared.write_bytes(content)
    place = anna.folder / "here"
    place.mkdir()
    for domain in ("home", "shared"):
        mounting = anna.popen("mount", domain, "here")
        try:
            wait_until(place.is_mount, 30)
            if domain == "shared":
                assert (place / "mounted.bin").read_bytes() == content
                with pytest.raises(OSError, match="Read-only"):
                    (place / "new").write_text("x")
            else:
                _write_into(place)
        finally:
            mounting.send_signal(signal.SIGINT)
            said, _ = mounting.communicate(timeout=30)
        assert "press Ctrl-C to unmount" in said and said.endswith("unmounting...\n")
        assert not place.is_mount()
    assert anna.well("cat", "home", "sub/moved") == "first\nsecond\n"
    assert "F gone" not in anna.well("ls", "home", "sub")


@pytest.mark.real
def test_tow_mounts_a_domain_and_a_job_of_the_server(anna: Pit) -> None:
    tow = tow_of(anna)
    job = anna.run("echo made > made.txt")
    (anna.folder / "mine").write_text("mine")
    anna.well("push", "home", "mine", "mine")
    for what, file, content in (("home", "mine", "mine"), (str(job), "made.txt", "made\n")):
        words = [*tow, "@team", "mount", "-d", what, f"at-{what}"]
        done = subprocess.run(words, cwd=anna.folder, env=anna.env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        place = anna.folder / f"at-{what}"
        try:
            assert (place / file).read_text() == content
        finally:
            subprocess.run(["fusermount", "-u", str(place)], check=True)
        wait_until(lambda place=place: not place.exists())


def _write_into(place: Path) -> None:
    (place / "sub").mkdir()
    (place / "sub" / "new").write_text("first\n")
    with (place / "sub" / "new").open("a") as file:
        file.write("second\n")
        file.flush()
        os.fsync(file.fileno())
    (place / "sub" / "gone").write_text("x")
    (place / "sub" / "gone").unlink()
    (place / "sub" / "new").rename(place / "sub" / "moved")
    assert (place / "sub" / "moved").read_text() == "first\nsecond\n"
    assert sorted(os.listdir(place / "sub")) == ["moved"]
    (place / "empty").mkdir()
    (place / "empty").rmdir()
    with pytest.raises(OSError, match="not empty"):
        (place / "sub").rmdir()
