"""Machines that want a password: a person is asked once, on the terminal."""

import pytest

from e2e.jobs import complaint, configure
from e2e.person import Person
from testbed import disk
from testbed.hosts import Hosts
from testbed.tow import Tow

pytestmark = pytest.mark.real


@pytest.fixture
def guarded(tow: Tow, hosts: Hosts) -> Tow:
    """`tow` with a cluster whose machine lets nobody in without a password."""
    hosts.sshd_options("h1", {"PubkeyAuthentication": "no", "PasswordAuthentication": "yes"})
    configure(tow, "h1")
    return tow


def test_login_asks_once_and_then_jobs_run_without_a_terminal(guarded: Tow) -> None:
    said = complaint(guarded("run", "-c", "lab", "true"), 1)
    assert "tow login h1" in said
    with Person(guarded, "login", "lab") as person:
        person.sees("password:")
        person.types(disk.PASSWORD + "\n")
        assert person.leaves() == 0
        assert disk.PASSWORD not in person.shown
    for word in ("first", "second"):
        done = guarded("run", "-c", "lab", "echo", word)
        assert done.stdout == f"{word}\n", done.stderr
    assert "needs no login" in guarded("login", "lab").stdout


def test_run_on_a_terminal_asks_by_itself_and_only_once(guarded: Tow) -> None:
    with Person(guarded, "run", "-c", "lab", "hostname") as person:
        person.sees("password:")
        person.types(disk.PASSWORD + "\n")
        person.sees("h1\n")
        assert person.leaves() == 0
    with Person(guarded, "run", "-c", "lab", "hostname") as person:
        person.sees("h1\n")
        assert person.leaves() == 0
        assert "password" not in person.shown
    # The connection that was opened by hand outlives the Engine.
    assert guarded("engine", "stop").returncode == 0
    assert guarded("run", "-c", "lab", "hostname").stdout == "h1\n"


def test_a_detached_run_on_a_terminal_asks_by_itself_too(guarded: Tow) -> None:
    with Person(guarded, "run", "-d", "-c", "lab", "hostname") as person:
        person.sees("password:")
        person.types(disk.PASSWORD + "\n")
        person.sees("job 1")
        assert person.leaves() == 0
    assert guarded("attach", "1").stdout == "h1\n"


def test_wrong_password_ends_with_a_clear_error(guarded: Tow) -> None:
    with Person(guarded, "run", "-c", "lab", "true") as person:
        for _ in range(3):
            person.sees("password:")
            person.types("wrong\n")
        assert person.leaves() == 1
        assert "login refused" in person.shown
        assert "Traceback" not in person.shown
    assert guarded.json("status")["jobs"] == []


def test_password_cannot_be_asked_for_in_a_pipe(guarded: Tow) -> None:
    guarded("run", "-c", "lab", "true")
    assert "on a terminal" in complaint(guarded("login", "h1"), 2)


def test_unknown_host_key_is_confirmed_on_the_terminal(tow: Tow, hosts: Hosts) -> None:
    known = f"{hosts.ssh_config.parent}/known_hosts"
    own = tow.folder / "known_hosts"
    text = hosts.ssh_config.read_text().replace(known, str(own))
    config = tow.folder / "ssh_config"
    config.write_text(text.replace("StrictHostKeyChecking yes", "StrictHostKeyChecking ask"))
    tow.env["TOWLINE_SSH_CONFIG"] = str(config)
    configure(tow, "h1")
    with Person(tow, "run", "-c", "lab", "hostname") as person:
        person.sees("Are you sure you want to continue connecting")
        person.types("yes\n")
        person.sees("h1\n")
        assert person.leaves() == 0
    assert own.exists()
