"""The seed's command lines on three real nodes with GPUs, each in a network of its own."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.walled import without_bubblewrap
from testbed.hosts import Hosts
from testbed.pit import Pit
from testbed.team import TeamServer
from testbed.waiting import wait_until

pytestmark = pytest.mark.real

GTX1070 = {"name": "NVIDIA GeForce GTX 1070", "memory_total": 8192}
GTX1060 = {"name": "NVIDIA GeForce GTX 1060", "memory_total": 6144}
NODES = ("h1", "h2", "h3")
SHOWN = 'echo "$CUDA_VISIBLE_DEVICES"'
FIRST, SECOND = '  0: "NVIDIA GeForce GTX 1070"', '  1: "NVIDIA GeForce GTX 1060"'
NEW = ("add", "node:n0", "endpoint=ssh://h1")
IMPOSSIBLE = "Command failed: Cluster cannot fulfill resource request"


@pytest.fixture
def pit(tmp_path: Path, hosts: Hosts) -> Iterator[Pit]:
    for name in NODES:
        hosts.set_gpus(name, [GTX1070, GTX1070, *([GTX1060] * 4)])
    machines = ", ".join(f'{{ ssh = "{name}", cpus = 16 }}' for name in NODES)
    config = f'default_cluster = "lab"\n[clusters.lab]\nmachines = [{machines}]\n'
    server = TeamServer(tmp_path / "server", config)
    server.env["TOWLINE_SSH_CONFIG"] = str(hosts.ssh_config)
    server.start()
    yield Pit(tmp_path / "tilman", server).signed_in("tilman")
    server.stop()


@pytest.fixture
def bare(tmp_path: Path, hosts: Hosts) -> Iterator[TeamServer]:
    """A server without a machine; h1 has two GPUs."""
    hosts.set_gpus("h1", [GTX1070, GTX1060])
    server = TeamServer(tmp_path / "server", "")
    server.env["TOWLINE_SSH_CONFIG"] = str(hosts.ssh_config)
    server.start()
    yield server
    server.stop()


def state(pit: Pit, job: int) -> str:
    return pit.well("get", f"job:{job}", "state").strip()


def test_every_command_line_of_the_seed_on_three_nodes(pit: Pit) -> None:
    said = pit.well("run", "First light", "[2:gtx1070]", "-d", SHOWN, "-l")
    assert 'Resources:  "[2:gtx1070]"\n\n' in said and "[worker 0] 0,1\n" in said
    # Whoever ends first ends the other, too: both have time to speak.
    said = pit.well("run", "Second light", "2:[gtx1070]", "-d", f"{SHOWN}; sleep 2", "-l")
    assert set(re.findall(r"\[worker (\d)\] \d+\n", said)) == {"0", "1"}, said

    script = 'echo "Strange! $NUM_GROUPS $NUM_PROCESSES_GROUP0 $NUM_PROCESSES_GROUP1"; sleep 2'
    said = pit.well("run", "Strange job", "2:[],4:[gtx1070,2:gtx1060]", "-d", script, "-l")
    assert said.count("Strange! 2 2 4") == 6, said
    job = said.split()[2]
    assert re.search(r"Resources: +h\d\[", pit.well("show", f"job:{job}"))

    ping = "exec 3<>/dev/tcp/$HOST_GROUP0_PROCESS1/22 && echo reached"
    said = pit.well("run", "ping", "2:[]", "-d", f"{ping}; sleep 1", "-l")
    assert "[worker 0] reached" in said

    assert pit.refused("run", "too much", "[3:gtx1070]") == IMPOSSIBLE


def test_what_waits_for_gpus_holds_up_nothing_else(pit: Pit) -> None:
    busy = pit.begin("sleep 300", title="busy", request="3:[2:gtx1070]")
    wait_until(lambda: state(pit, busy) == "RUN", every=0.3)
    behind = pit.begin("echo got them", title="behind", request="[2:gtx1070]")
    assert "[worker 0] free" in pit.well("run", "no GPU", "[]", "-d", "echo free", "-l")
    rows = pit.well("status").splitlines()
    assert rows[1] == "Running:" and rows[2].count("[cuda 0-1] + ") >= 1
    waiting = rows[rows.index("Waiting:") + 1]
    assert re.match(
        rf" +{behind} WAI 00d .* tilman     behind               \[2:gtx1070\]", waiting
    )
    reading = pit.popen("log", str(behind))
    pit.well("stop", str(busy))
    said, _ = reading.communicate(timeout=60)
    assert "[worker 0] got them" in said and reading.returncode == 0


def resources(pit: Pit) -> list[str]:
    """Those of the node, which is there."""
    lines = pit.well("show", "node:n0").splitlines()
    assert lines[:3] == ["Node name: n0", "State:     ONLINE", "Resources: "]
    return lines[3:]


def test_nodes_are_added_once_and_their_gpus_named(
    bare: TeamServer, tmp_path: Path, hosts: Hosts
) -> None:
    root = Pit(tmp_path / "root", bare).signed_in("root")
    anna = Pit(tmp_path / "anna", bare).signed_in("anna")
    assert anna.refused(*NEW, "isolation=none") == "Command failed: Forbidden"
    with without_bubblewrap(hosts, "h1"):
        said = root.refused(*NEW)
    assert "nothing keeps jobs on n0 apart: bubblewrap is not installed" in said
    nobody = "endpoint=ssh://nobody@127.0.0.1:1"
    said = root.refused("add", "node:n1", nobody, "isolation=none")
    assert said.startswith("Command failed: Problem adding node n1: ")
    root.well(*NEW, "isolation=none")
    assert "already registered" in root.refused(*NEW, "isolation=none")
    # Neither the same address nor another one of the same machine makes a second node.
    twice = root.refused("add", "node:n1", "endpoint=ssh://h1", "isolation=none")
    assert twice == "Command failed: ssh://h1 is the node n0 already"
    twice = root.refused("add", "node:n1", "endpoint=ssh://h1:22", "isolation=none")
    assert twice == "Command failed: n1 is the node n0 under another name"
    assert anna.well("show", "nodes") == "n0\n"

    assert resources(anna) == [f"{FIRST} (cuda 0)", f"{SECOND} (cuda 1)"]
    assert anna.refused("run", "no such", "[gtx1070]", "-d", "true") == IMPOSSIBLE
    root.well("add", "alias:gtx1070", "name=NVIDIA GeForce GTX 1070")
    assert anna.well("show", "aliases") == "gtx1070\n"
    assert resources(anna) == [f'{FIRST} aka "gtx1070" (cuda 0)', f"{SECOND} (cuda 1)"]
    assert "[worker 0] 0\n" in anna.well("run", "a", "[gtx1070]", "-d", SHOWN, "-l")

    root.well("set", "node:n0", "state=drain")
    assert "State:     DRAIN" in anna.well("show", "node:n0")
    root.well("rm", "node:n0")
    assert anna.well("show", "nodes").strip() == ""


def test_a_gpu_or_a_whole_node_is_kept_for_a_group(bare: TeamServer, tmp_path: Path) -> None:
    root = Pit(tmp_path / "root", bare).signed_in("root")
    anna = Pit(tmp_path / "anna", bare).signed_in("anna")
    root.well(*NEW, "isolation=none")
    root.well("add", "alias:gtx1060", "name=NVIDIA GeForce GTX 1060")
    root.well("add", "group:students", "title=Students")
    root.well("add-group", "node:n0:1", "students")
    kept = f'{SECOND} aka "gtx1060" (cuda 1) - Groups: students'
    assert resources(anna) == [f"{FIRST} (cuda 0)", kept]
    done = anna("run", "b", "[gtx1060]", "-d", "true")
    assert done.stderr.startswith(IMPOSSIBLE) and done.returncode == 1
    assert "it keeps GPUs gtx1060 for members of students" in done.stderr
    # Administrators are limited as all others.
    assert root.refused("run", "b", "[gtx1060]", "-d", "true") == IMPOSSIBLE
    root.well("add-group", "user:anna", "students")
    assert "[worker 0] 1\n" in anna.well("run", "b", "[gtx1060]", "-d", SHOWN, "-l")
    # Who may no longer have what a job waits for, loses what waits, and not what runs.
    runs = anna.begin("sleep 300", request="[gtx1060]")
    wait_until(lambda: state(anna, runs) == "RUN", every=0.3)
    waits = anna.begin("true", request="[gtx1060]")
    assert "State:         WAI (position 1)\n" in anna.well("show", f"job:{waits}")
    root.well("remove-group", "user:anna", "students")
    wait_until(lambda: state(anna, waits) == "FIN", every=0.3)
    told = anna.well("show", f"job:{waits}")
    assert '"Cluster cannot fulfill resource request anymore"' in told
    assert state(anna, runs) == "RUN"
    anna.well("stop", str(runs))
    root.well("add-group", "user:anna", "students")
    root.well("add-group", "node:n0", "students")
    assert resources(anna) == [f"{FIRST} (cuda 0) - Groups: students", kept]
    root.well("remove-group", "node:n0", "students")
    assert resources(anna) == [f"{FIRST} (cuda 0)", kept.partition(" - ")[0]]
