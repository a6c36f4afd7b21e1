"""Names of machines that come to mean another one: jobs stay with the machine they were given."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from e2e.engines import engine_pid, kill_engine
from e2e.jobs import ENGINE, ended, show, submit, wait_for
from testbed.hosts import Hosts
from testbed.tow import Tow
from testbed.waiting import wait_until

pytestmark = pytest.mark.real

UNTIL_END = 'until [ -e "$HOME/end" ]; do sleep 0.1; done; hostname; exit 6'


def call_it(tow: Tow, **places: str) -> None:
    """Configure the cluster `lab`: what each machine is called, and what is dialled."""
    machines = ", ".join(
        f'{{ name = "{name}", ssh = "{place}", cpus = 32 }}' for name, place in places.items()
    )
    (tow.home / "config.toml").write_text(f"{ENGINE}[clusters.lab]\nmachines = [{machines}]\n")


@pytest.mark.parametrize("restarted", [False, True])
def test_an_edited_name_counts_for_new_jobs_at_once_and_running_ones_stay(
    hosts: Hosts, tow: Tow, restarted: bool
) -> None:
    call_it(tow, gpu1="h1")
    stays = submit(tow, "-c", "lab", "sh", "-c", UNTIL_END)
    wait_for(tow, stays, "running")
    call_it(tow, gpu1="h2")
    assert tow("run", "-c", "lab", "hostname").stdout == "h2\n"
    if restarted:
        kill_engine(tow.home)
        assert tow("run", "-c", "lab", "hostname").stdout == "h2\n"
    assert show(tow, stays)["state"] == "running"
    assert {m["name"] for m in tow.json("machines", "-c", "lab")["machines"]} == {"gpu1~h2"}
    (hosts.home("h1") / "end").touch()
    assert ended(tow, stays)["exit_code"] == 6
    assert tow("log", str(stays)).stdout == "h1\n"
    # Once nothing runs there any more the name means the new one, and old jobs are still read.
    kill_engine(tow.home)
    again = submit(tow, "-c", "lab", "hostname")
    assert ended(tow, again)["machines"] == ["gpu1"]
    assert tow("log", str(again)).stdout == "h2\n"
    assert tow("log", str(stays)).stdout == "h1\n"


def test_two_projects_may_call_different_machines_alike(
    hosts: Hosts, tow: Tow, tmp_path: Path
) -> None:
    (tow.home / "config.toml").write_text(ENGINE)
    folders = {}
    for place in ("h1", "h2"):
        folders[place] = tmp_path / f"project-{place}"
        folders[place].mkdir()
        machines = f'machines = [{{ name = "gpu1", ssh = "{place}", cpus = 32 }}]'
        tow.trusting(f"[clusters.of-{place}]\n{machines}\n", folders[place])
    # Seen by one Engine in turn: neither redirects the other's jobs.
    for place in ("h1", "h2", "h1", "h2"):
        done = tow("run", "-c", f"of-{place}", "hostname", cwd=folders[place])
        assert done.stdout == f"{place}\n", done.stderr


@pytest.mark.parametrize("restarted", [False, True])
def test_the_jobs_of_one_project_never_go_to_the_machines_of_another(
    hosts: Hosts, tow: Tow, tmp_path: Path, restarted: bool
) -> None:
    (tow.home / "config.toml").write_text(ENGINE)
    folders = {}
    for place in ("h1", "h2"):
        folders[place] = tmp_path / f"project-{place}"
        folders[place].mkdir()
        machines = f'machines = [{{ name = "gpu1", ssh = "{place}", cpus = 32 }}]'
        tow.trusting(f"[clusters.lab]\n{machines}\n", folders[place])
    stays = submit(tow, "-c", "lab", "sh", "-c", UNTIL_END, cwd=folders["h1"])
    waits = submit(tow, "-c", "lab", "--exclusive", "hostname", cwd=folders["h1"])
    wait_for(tow, stays, "running")
    if restarted:
        kill_engine(tow.home)
    for words in (["machines", "-c", "lab"], ["run", "-c", "lab", "hostname"]):
        refused = tow(*words, cwd=folders["h2"])
        assert refused.returncode == 2, refused.stdout
        assert "the cluster 'lab' is another one in" in refused.stderr
    (hosts.home("h1") / "end").touch()
    ended(tow, waits)
    assert tow("log", str(waits)).stdout == "h1\n"
    assert tow("run", "-c", "lab", "hostname", cwd=folders["h2"]).stdout == "h2\n"


def drop_connections(tow: Tow, host: str) -> None:
    """As a broken network does: end the Engine's ssh to a host."""
    engine = engine_pid(tow.home)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if int(parent) == engine and words[0] == b"ssh" and host.encode() in words:
            os.kill(int(pid), signal.SIGKILL)


def lead(tow: Tow, hosts: Hosts, place: str) -> None:
    """Let the name `login` lead to a host, as a name server does that takes turns."""
    text = hosts.ssh_config.read_text()
    alias = f"Host login\n  HostName {hosts.address(place)}\n  HostKeyAlias {place}\n"
    (tow.home / "ssh_config").write_text(f"{alias}{text}")
    tow.env["TOWLINE_SSH_CONFIG"] = str(tow.home / "ssh_config")


def test_a_name_that_leads_to_another_machine_is_said_and_harms_no_job(
    hosts: Hosts, tow: Tow
) -> None:
    lead(tow, hosts, "h1")
    call_it(tow, login="login")
    number = submit(tow, "-c", "lab", "--retries", "1", "sh", "-c", UNTIL_END)
    wait_for(tow, number, "running")
    lead(tow, hosts, "h2")
    drop_connections(tow, "login")
    said = f"login leads to another machine now (h2); job {number} runs on h1"
    wait_until(lambda: show(tow, number)["reason"] == said, timeout=60)
    # What is new goes to where the name leads, and a stop is not asked of the wrong machine.
    assert tow("run", "-c", "lab", "hostname").stdout == "h2\n"
    assert tow("stop", str(number)).returncode == 0
    assert show(tow, number)["state"] == "stopping"
    lead(tow, hosts, "h1")
    drop_connections(tow, "login")
    stopped = ended(tow, number, timeout=60)
    assert (stopped["state"], stopped["attempt"]) == ("stopped", 1)


def test_a_machine_with_two_names_is_one(hosts: Hosts, tow: Tow) -> None:
    hosts.set_gpus("h1", [{"index": 0}, {"index": 1}])
    lead(tow, hosts, "h1")
    call_it(tow, h1="h1", again="login")

    def seen() -> list[dict[str, Any]]:
        machines: list[dict[str, Any]] = tow.json("machines", "-c", "lab")["machines"]
        return machines

    (one,) = wait_until(lambda: found if len(found := seen()) == 1 else None)
    assert {one["name"], *one["also"]} == {"h1", "again"}  # type: ignore[misc]
    assert len(one["gpus"]) == 2  # type: ignore[arg-type]
    lines = "\n".join(["sleep 0.3"] * 8)
    (tow.folder / "lines").write_text(f"{lines}\n")
    done = tow("batch", "-c", "lab", "--gpus", "1", "lines")
    assert done.returncode == 0, done.stderr
    assert "void" not in done.stdout + done.stderr
