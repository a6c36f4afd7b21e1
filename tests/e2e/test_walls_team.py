"""Two members of a team on one node, each of whose jobs is walled in."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.walled import leaked, put_hostile, without_bubblewrap
from testbed.hosts import Hosts
from testbed.pit import Pit
from testbed.team import TeamServer
from testbed.waiting import wait_until

pytestmark = pytest.mark.real

NEW = ("add", "node:n0", "endpoint=ssh://h1")


CONFIG = """
default_cluster = "lab"
[clusters.lab]
machines = [{ ssh = "h1", cpus = 16 }]
sandbox = true
"""


def serving(folder: Path, hosts: Hosts, config: str) -> Iterator[TeamServer]:
    """Walls are its default: nothing in its settings says that none are meant."""
    server = TeamServer(folder, config)
    settings = folder / "server.toml"
    settings.write_text(settings.read_text().replace('isolation = "none"', 'isolation = ""'))
    server.env["TOWLINE_SSH_CONFIG"] = str(hosts.ssh_config)
    first = server.start()
    assert "Jobs are walled in on each node" in first
    yield server
    server.stop()


@pytest.fixture
def bare(tmp_path: Path, hosts: Hosts) -> Iterator[TeamServer]:
    yield from serving(tmp_path / "server", hosts, "")


@pytest.fixture
def server(tmp_path: Path, hosts: Hosts) -> Iterator[TeamServer]:
    yield from serving(tmp_path / "server", hosts, CONFIG)


def said_json(pit: Pit, job: int) -> Any:
    """The line of JSON that a job has printed."""

    def found() -> str:
        lines = pit.well("log", str(job)).splitlines() if state(pit, job) != "waiting" else []
        return next((line[line.index("{") :] for line in lines if "{" in line), "")

    return json.loads(wait_until(found, timeout=60))


def state(pit: Pit, job: int) -> str:
    return "waiting" if pit.well("get", f"job:{job}", "state").strip() == "WAI" else "begun"


def test_a_node_has_walls_unless_an_administrator_wants_none(
    bare: TeamServer, tmp_path: Path, hosts: Hosts
) -> None:
    root = Pit(tmp_path / "root", bare).signed_in("root")
    anna = Pit(tmp_path / "anna", bare).signed_in("anna")
    with without_bubblewrap(hosts, "h1"):
        assert "bubblewrap is not installed" in root.refused(*NEW)
        assert "walls or none" in root.refused(*NEW, "isolation=some")
    root.well(*NEW)
    shown = anna("show", "node:n0").stderr.splitlines()
    assert shown[0] == "Walls:     yes"
    assert shown[1].startswith("  open: memory and CPUs: not bounded (")
    look = 'echo "{\\"host\\": \\"$(hostname)\\"}"'
    assert said_json(anna, anna.run(look))["host"].startswith("job-")
    assert anna.refused("set", "node:n0", "isolation=none") == "Command failed: Forbidden"
    with without_bubblewrap(hosts, "h1"):
        assert "broken, no job starts: bubblewrap is not" in anna("show", "node:n0").stderr
        done = anna("run", "a job", "[]", "-d", look, "-l")
        assert "cannot wall in jobs: bubblewrap is not installed" in done.stderr
        assert done.returncode == 1 and '"host"' not in done.stdout.partition("Resources")[2]
    root.well("set", "node:n0", "isolation=none")
    assert anna("show", "node:n0").stderr.startswith("Walls:     none, ")
    assert said_json(anna, anna.run(look)) == {"host": "h1"}


def test_two_members_try_everything_against_each_other(
    server: TeamServer, tmp_path: Path, hosts: Hosts
) -> None:
    anna = Pit(tmp_path / "anna", server).signed_in("anna")
    bert = Pit(tmp_path / "bert", server).signed_in("bert")
    for pit in (anna, bert):
        put_hostile(pit.folder)
    victim = anna.begin("python3 victim.py; sleep 1")
    running = anna.popen("log", str(victim))
    try:
        assert running.stdout is not None
        line = next(line for line in running.stdout if "{" in line)
    finally:
        running.kill()
        running.communicate()
    facts = json.loads(line[line.index("{") :])
    # The victim's box does not number its processes as the machine does.
    facts["pid"] = int(hosts.run("h1", ["pgrep", "-n", "-f", "victim.py"]).stdout)
    facts["home"] = "/home/worker"
    found = said_json(bert, bert.run(f"python3 tries.py '{json.dumps(facts)}'"))
    assert len(found) > 45
    assert not leaked(found)
    said = anna.well("exec", str(victim), "--", "sh", "-c", "hostname; ls -a /home/worker")
    assert said.split()[0].startswith("job-")
    assert ".ssh" not in said
    assert bert("exec", str(victim), "--", "id").returncode != 0
    anna.well("stop", str(victim))
