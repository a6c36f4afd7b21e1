"""Accessing data, sentence by sentence, in jobs on real nodes that have a common file system."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import common_folder
from testbed.hosts import Hosts
from testbed.pit import Pit
from testbed.team import TeamServer
from testbed.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow]

NODES = ("h1", "h2", "h3")
#: Where nodes have the data; h3 has it nowhere.
AT = "/nfs/pit"
DIRS = 'for name in $(compgen -v | grep _DIR$ | sort); do echo "$name=${!name}"; done'


@pytest.fixture
def server(tmp_path: Path, hosts: Hosts) -> Iterator[TeamServer]:
    made = TeamServer(tmp_path / "server", "")
    made.env["TOWLINE_SSH_CONFIG"] = str(hosts.ssh_config)
    made.start()
    shown = ("h1", "h2")
    for name in shown:
        common_folder.show(hosts, name, str(made.folder / "data"), AT)
    try:
        yield made
    finally:
        made.stop()
        for name in shown:
            common_folder.hide(hosts, name, AT)


@pytest.fixture
def root(server: TeamServer, tmp_path: Path) -> Pit:
    """The administrator of three nodes, who has put anna into the groups staff and guests."""
    pit = Pit(tmp_path / "root", server).signed_in("root")
    server.user("anna")
    for number, host in enumerate(NODES):
        # Data is where it is whether jobs are walled in or not.
        walls = "isolation=none" if number == 1 else "isolation=walls"
        pit.well("add", f"node:n{number}", f"endpoint=ssh://root@{host}", walls)
    for group in ("staff", "guests", "others"):
        pit.well("add", f"group:{group}", "title=x")
    for group in ("staff", "guests"):
        pit.well("add-group", "user:anna", group)
    return pit


def printed(pit: Pit, script: str, request: str = "[]") -> list[str]:
    """The lines that a job's script prints."""
    said = pit.well("run", "a job", request, "-d", script, "-l")
    marks = [line.partition("] [worker ")[2].partition("] ")[2] for line in said.splitlines()]
    return [line for line in marks if line and not line.startswith("Worker ")]


def on(pit: Pit, root: Pit, node: str, script: str) -> list[str]:
    """The same on one node: the others are drained meanwhile."""
    for other in ("n0", "n1", "n2"):
        root.well("set", f"node:{other}", f"state={'online' if other == node else 'drain'}")
    return printed(pit, script)


def test_every_sentence_of_accessing_data(
    server: TeamServer, root: Pit, hosts: Hosts, tmp_path: Path
) -> None:
    anna = Pit(tmp_path / "anna", server).signed_in("anna")
    bert = Pit(tmp_path / "bert", server).signed_in("bert")
    assert anna.refused("set", "node:n0", f"data={AT}") == "Command failed: Forbidden"
    for node in ("n0", "n1"):
        root.well("set", f"node:{node}", f"data={AT}")
    # "Within your script you can use the following environment variables to access data."
    (server.folder / "data" / "shared" / "set").write_text("of all\n")
    anna.well("push", "home", "mine", input="mine\n")
    for node in ("n0", "n1"):
        names = dict(line.split("=") for line in on(anna, root, node, DIRS))
        job = names.pop("JOB_DIR")
        assert names == {
            "GUESTS_GROUP_DIR": f"{AT}/groups/guests",
            "KEEP_DIR": f"{job}/keep",
            "SHARED_DIR": f"{AT}/shared",
            "SRC_DIR": f"{job}/src",
            "STAFF_GROUP_DIR": f"{AT}/groups/staff",
            "USER_DIR": f"{AT}/home/anna",
            "WORK_DIR": f"{job}/src",
        }
    # "Files in this directory [...] considered public."
    # "Admins and all members of the given group have read/write access to all contents."
    # "Admins and the user itself have read-write access."
    script = (
        "cat $SHARED_DIR/set $USER_DIR/mine; echo grouped > $STAFF_GROUP_DIR/g; "
        "echo own > $USER_DIR/o; pwd; echo $SRC_DIR"
    )
    lines = on(anna, root, "n0", script)
    assert lines[:2] == ["of all", "mine"]
    # "$SRC_DIR (where the .compute script is running)"
    assert lines[2] == lines[3]
    assert (
        root.well("cat", "group:staff", "g") == anna.well("cat", "group:staff", "g") == "grouped\n"
    )
    assert root.well("cat", "user:anna", "o") == anna.well("cat", "home", "o") == "own\n"
    # "Jobs have the same rights as their owning users": on another node, and for another owner.
    assert on(anna, root, "n1", "cat $STAFF_GROUP_DIR/g") == ["grouped"]
    theirs = on(bert, root, "n1", DIRS)
    assert not any("GROUP_DIR" in line for line in theirs)
    assert f"USER_DIR={AT}/home/bert" in theirs
    _beside(anna)
    # A group that is left is no longer there for the next job.
    root.well("remove-group", "user:anna", "guests")
    assert not any("GUESTS" in line for line in on(anna, root, "n0", DIRS))
    _gang(anna, root)


def _beside(anna: Pit) -> None:
    """What runs beside a job has the data as well."""
    running = anna.begin("touch $USER_DIR/began; sleep 600")
    wait_until(lambda: "began" in anna.well("ls", "home"), 60)
    beside = anna.well("exec", str(running), "--", "sh", "-c", "echo $USER_DIR $STAFF_GROUP_DIR")
    assert beside == f"{AT}/home/anna {AT}/groups/staff\n"
    anna.well("stop", str(running))


def _gang(anna: Pit, root: Pit) -> None:
    """A process on each node has the data."""
    for node in ("n0", "n1"):
        root.well("set", f"node:{node}", "state=online")
    root.well("set", "node:n2", "state=drain")
    count = "for i in $(seq 100); do [ $(ls $USER_DIR/gang | wc -l) = 2 ] && break; sleep 0.1; done"
    anna.well("mkdir", "home", "gang")
    printed(anna, f"touch $USER_DIR/gang/$PROCESS_INDEX; {count}", "2:[cpus=1]")
    assert anna.well("ls", "home", "gang") == "F 0\nF 1\n"


def test_a_node_that_does_not_see_the_data_gets_no_variables_and_says_so(
    server: TeamServer, root: Pit, hosts: Hosts, tmp_path: Path
) -> None:
    anna = Pit(tmp_path / "anna", server).signed_in("anna")
    # Nothing is set up: no variable, and a line that says how.
    assert not any("USER_DIR" in line for line in on(anna, root, "n2", DIRS))
    assert anna("show", "node:n2").stderr.splitlines()[-1] == (
        "Data:      none (no common file system is set: pit set node:n2 data=PATH)"
    )
    # A folder that is something else, or nothing, is not taken for it.
    done = root("set", "node:n2", "data=/tmp")
    assert done.returncode == 1 and "n2 does not see the server's data at /tmp" in done.stderr
    assert "No such file or directory" in done.stderr
    assert "is not a whole path" in root("set", "node:n2", "data=nfs/pit").stderr
    copy = hosts.root("h3") / "srv" / "copy"
    copy.mkdir(parents=True)
    (mark,) = (server.folder / "data").glob(".mark-*")
    (copy / mark.name).write_text(mark.read_text())
    assert "does not arrive on the server" in root("set", "node:n2", "data=/srv/copy").stderr
    (copy / mark.name).write_text("another")
    assert "it is another one" in root("set", "node:n2", "data=/srv/copy").stderr
    # What was there and is unmounted is an ordinary folder: nothing may be written into that.
    root.well("set", "node:n0", f"data={AT}")
    assert anna("show", "node:n0").stderr.splitlines()[-1] == f"Data:      {AT}"
    common_folder.hide(hosts, "h1", AT)
    try:
        assert not any("USER_DIR" in line for line in on(anna, root, "n0", DIRS))
        assert os.listdir(hosts.root("h1") / AT[1:]) == []
        shown = anna("show", "node:n0").stderr.splitlines()[-1]
        assert shown == f"Data:      none (at {AT}: No such file or directory)"
    finally:
        common_folder.show(hosts, "h1", str(server.folder / "data"), AT)
    assert f"USER_DIR={AT}/home/anna" in on(anna, root, "n0", DIRS)
    root.well("set", "node:n0", "data=none")
    assert not any("USER_DIR" in line for line in on(anna, root, "n0", DIRS))
    left = [name for name in os.listdir(server.folder / "data") if name.startswith(".seen")]
    assert not left
