"""What is wrong is said in a line or two, with what to do next, and nothing is half done."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from e2e.jobs import complaint, configure, ended, show, submit
from testbed.hosts import Hosts
from testbed.tow import Tow

real = pytest.mark.real


def broken_steps(tow: Tow) -> dict[str, dict[str, Any]]:
    """What `tow doctor` finds wrong with the cluster `lab`, by the name of the step."""
    done = tow("doctor", "-c", "lab", "--json")
    frames = [json.loads(line) for line in done.stdout.splitlines()]
    assert frames[-1]["done"]
    found = [frame["step"] for frame in frames if "step" in frame]
    broken = {step["name"]: step for step in found if step["ok"] is False}
    assert done.returncode == (1 if broken else 0)
    assert all(step["hint"] for step in broken.values())
    return broken


def nothing_was_done(tow: Tow) -> bool:
    return bool(tow.json("status", "--all")["jobs"] == [])


def cannot_be_used(tow: Tow, machine: str, *said: str, step: str = "") -> None:
    """A job for it is refused in these words, and the doctor finds this step broken."""
    configure(tow, machine)
    refused = complaint(tow("run", "-c", "lab", "true"), 1)
    for text in said:
        assert text in refused
    if step:
        assert list(broken_steps(tow)) == [step]
    assert nothing_was_done(tow)


# What was typed


CANNOT_BE = [
    (["run"], "which command?"),
    (["run", "--no-such-option", "true"], "--no-such-option"),
    (["run", "-c", "nowhere", "true"], "there is no cluster 'nowhere'"),
    (["run", "--time", "soon", "true"], "soon"),
    (["run", "--retries", "many", "true"], "--retries takes a whole number"),
    (["run", "--cpus", "x", "true"], "x"),
    (["run", "--cpus", "-1", "true"], "-1"),
    (["run", "-e", "=x", "true"], "does not name a variable"),
    (["run", "-e", "NOT_SET_HERE", "true"], "there is no variable NOT_SET_HERE here"),
    (["run", "", "x"], "there is no command to run"),
    (["frobnicate"], "there is no command `frobnicate`"),
    (["show", "999"], "999"),
    (["log", "no-such-title"], "no-such-title"),
    (["stop", "9-1"], "not a range"),
    (["machines", "-c", "nowhere"], "there is no cluster 'nowhere'"),
    (["doctor", "-c", "nowhere"], "there is no cluster 'nowhere'"),
    (["clusters", "add", "lab", "-oProxyCommand=evil"], ""),
    (["clusters", "add", "lab", "host:notaport"], "notaport"),
    (["clusters", "add", "local", "this"], "`local` is this machine"),
    (["clusters", "default", "nowhere"], "there is no cluster nowhere"),
    (["clusters", "remove", "nowhere"], "nowhere"),
    (["login", "nowhere"], "nowhere"),
    (["forward", "1", "99999999"], ""),
    (["ls", "1"], "1"),
]


def test_what_cannot_be_is_refused_with_code_2(tow: Tow) -> None:
    for words, said in CANNOT_BE:
        assert said in complaint(tow(*words), 2), words
    assert nothing_was_done(tow)


def test_place_of_a_mistake_in_a_request_is_shown(tow: Tow) -> None:
    done = tow("run", "-r", "2:[gtx1070,,]", "true")
    lines = complaint(done, 2).splitlines()
    assert "expected a GPU name" in lines[0]
    assert lines[1].strip() == "2:[gtx1070,,]"
    assert lines[2].index("^") == lines[1].index(",,") + 1
    assert nothing_was_done(tow)


def test_broken_configuration_is_said_with_its_file_and_line(tow: Tow) -> None:
    file = tow.home / "config.toml"
    file.write_text("[clusters.lab\nmachines = 3")
    said = complaint(tow("run", "true"), 2)
    assert str(file) in said
    assert "line 1" in said
    file.write_text("[clusters.lab]\nmachines = 3")
    assert "clusters.lab.machines" in complaint(tow("machines"), 2)
    file.write_bytes(b"\xff\xfe\x00")
    assert str(file) in complaint(tow("run", "true"), 2)
    file.unlink()
    assert tow("run", "true").returncode == 0


def test_unknown_setting_lists_the_valid_ones(tow: Tow) -> None:
    (tow.home / "config.toml").write_text("[clusters.lab]\nmachine = ['h1']\n")
    said = complaint(tow("run", "true"), 2)
    assert "machine" in said
    assert "machines, " in said
    assert "setup" in said
    (tow.folder / "towline.toml").write_text("[defaults]\nretry = 3\n")
    (tow.home / "config.toml").unlink()
    said = complaint(tow("run", "true"), 2)
    assert "towline.toml" in said
    assert "retries" in said


def test_project_file_with_a_cluster_that_is_not_there(tow: Tow) -> None:
    (tow.folder / "towline.toml").write_text('default_cluster = "moon"\n')
    assert "moon" in complaint(tow("run", "true"), 2)


# Clusters that cannot be added


@real
def test_cluster_that_cannot_be_reached_is_not_added_and_the_corrected_line_works(
    tow: Tow, hosts: Hosts
) -> None:
    hosts.kill("h2")
    for machines in (["no-such-host.invalid"], ["h1", "no-such-host.invalid"], ["h2"]):
        done = tow("clusters", "add", "lab", *machines)
        assert (done.returncode, "nothing was added" in done.stderr) == (1, True), done.stdout
        assert "✗ " in done.stdout
        assert not (tow.home / "config.toml").exists()
    for machine in ("no-such-host.invalid", "h2"):
        assert tow("clusters", "add", "lab", "--slurm", machine).returncode == 1
    assert [one["name"] for one in tow.json("clusters")["clusters"]] == ["local"]
    assert [one["name"] for one in tow.json("machines")["machines"]] == ["this"]
    # One of several is away, which happens.
    done = tow("clusters", "add", "lab", "h1", "h2")
    assert done.returncode == 0 and "added lab" in done.stdout
    assert tow("run", "-c", "lab", "hostname").stdout == "h1\n"
    done = tow("clusters", "add", "--offline", "later", "no-such-host.invalid")
    assert done.returncode == 0 and "no machine of it answers yet" in done.stdout


@real
def test_cluster_that_can_is_named_and_can_be_made_the_one_that_is_meant(
    tow: Tow, hosts: Hosts
) -> None:
    hosts.set_gpus("h1", [{"name": "NVIDIA GeForce GTX 1070", "memory_total": 8192}])
    configure(tow, "h1", more="[clusters.plain]\nmachines = ['h2']\n")
    said = complaint(tow("run", "--gpus", "1", "true"), 2)
    assert "no machine of local can ever take it" in said and "lab can: -c lab" in said
    assert "tow machines" in complaint(tow("run", "--gpus", "50", "true"), 2)
    assert tow("clusters", "default", "lab").returncode == 0
    assert tow("run", "--gpus", "1", "hostname").stdout == "h1\n"


# Machines that cannot be used


@real
def test_host_name_that_does_not_exist(tow: Tow, hosts: Hosts) -> None:
    said = ("there is no host of that name", "~/.ssh/config")
    cannot_be_used(tow, "no-such-host.invalid", *said, step="reachable")


@real
def test_host_that_refuses_connections(tow: Tow, hosts: Hosts) -> None:
    hosts.kill("h1")
    cannot_be_used(tow, "h1", "h1: does not answer (connection refused)", step="reachable")


@real
@pytest.mark.slow
def test_host_that_is_silent(tow: Tow, hosts: Hosts) -> None:
    hosts.cut("h1")
    cannot_be_used(tow, "h1", "h1: does not answer")


@real
def test_dead_machine_does_not_hold_up_jobs_on_the_others(tow: Tow, hosts: Hosts) -> None:
    hosts.kill("h1")
    configure(tow, "h1", "h2")
    assert tow("run", "-c", "lab", "hostname").stdout == "h2\n"
    machines = {m["name"]: m for m in tow.json("machines", "-c", "lab")["machines"]}
    assert machines["h1"]["state"] == "offline"
    assert "does not answer" in machines["h1"]["reason"]


@real
def test_key_that_is_refused(tow: Tow, hosts: Hosts) -> None:
    (hosts.home("h1") / ".ssh" / "authorized_keys").unlink()
    said = ("h1: login refused (it accepts: publickey)", "ssh-copy-id h1")
    cannot_be_used(tow, "h1", *said, step="login")


@real
def test_host_key_that_nobody_confirmed_yet(tow: Tow, hosts: Hosts, tmp_path: Path) -> None:
    known = f"{hosts.ssh_config.parent}/known_hosts"
    config = tmp_path / "ssh_config"
    config.write_text(hosts.ssh_config.read_text().replace(known, str(tmp_path / "known_hosts")))
    tow.env["TOWLINE_SSH_CONFIG"] = str(config)
    said = ("h1: its host key is not known yet", "tow login h1")
    cannot_be_used(tow, "h1", *said, step="host key")
    # What it wants is a look at its key, and nothing else.
    assert "password" not in tow("run", "-c", "lab", "true").stderr
    assert not (tmp_path / "known_hosts").exists()


@real
def test_host_key_that_has_changed(tow: Tow, hosts: Hosts) -> None:
    hosts.new_host_key("h1")
    said = ("h1: its host key has changed", "ssh-keygen -R")
    cannot_be_used(tow, "h1", *said, step="host key")


@real
def test_machine_without_python(tow: Tow, hosts: Hosts) -> None:
    hosts.no_python("h1")
    cannot_be_used(tow, "h1", "h1: no python3 found there", step="python3")


@real
def test_machine_with_a_full_disk(tow: Tow, hosts: Hosts) -> None:
    hosts.fill_disk("h1")
    cannot_be_used(tow, "h1", "h1", "No space left", "`folder`")
    (step,) = broken_steps(tow).values()
    assert "No space left" in step["text"]
    assert nothing_was_done(tow)


@real
def test_disk_that_fills_up_under_a_job(tow: Tow, hosts: Hosts) -> None:
    configure(tow, "h1", cluster='folder = "/dev/shm/towline"')
    (tow.folder / "data.bin").write_bytes(bytes(range(256)) * 4096)
    assert tow("run", "-c", "lab", "true").returncode == 0
    hosts.run("h1", ["sh", "-c", "head -c 400M /dev/zero > /dev/shm/ballast"])
    (tow.folder / "more.bin").write_bytes(bytes(reversed(range(256))) * 4096)
    done = tow("run", "-c", "lab", "echo", "never")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "No space left" in done.stderr or "no space left" in done.stderr
    assert "Traceback" not in done.stderr
    hosts.run("h1", ["rm", "/dev/shm/ballast"])
    assert tow("run", "-c", "lab", "echo", "again").stdout == "again\n"
    hosts.run("h1", ["rm", "-rf", "/dev/shm/towline"])


@real
def test_gpu_tool_that_fails_is_said_by_the_doctor(tow: Tow, hosts: Hosts) -> None:
    hosts.set_gpus("h1", [{}])
    tool = hosts.root("h1") / "usr/local/bin/nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'Failed to initialize NVML: driver mismatch'; exit 18\n")
    configure(tow, "h1")
    assert "driver mismatch" in broken_steps(tow)["GPUs"]["text"]
    assert tow("run", "-c", "lab", "true").returncode == 0


@real
def test_machine_that_ends_jobs_at_logout_is_named_by_the_doctor(tow: Tow, hosts: Hosts) -> None:
    root = hosts.root("h1")
    (root / "run/systemd/system").mkdir(parents=True)
    config = root / "etc/systemd/logind.conf.d/50-lab.conf"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text("[Login]\nKillUserProcesses=yes\n")
    try:
        configure(tow, "h1")
        assert "loginctl enable-linger" in broken_steps(tow)["logout"]["hint"]
    finally:
        config.unlink()
        (root / "run/systemd/system").rmdir()


@real
def test_healthy_machines_pass_every_step_of_the_doctor(tow: Tow, hosts: Hosts) -> None:
    configure(tow, "h1", "in1")
    assert broken_steps(tow) == {}
    shown = tow("doctor", "-c", "lab")
    assert "all is well" in shown.stdout
    for step in ("reachable", "login", "python3", "GPUs", "disk space", "clock"):
        assert step in shown.stdout


@real
def test_mended_machine_is_used_without_further_ado(tow: Tow, hosts: Hosts) -> None:
    hosts.no_python("h1")
    configure(tow, "h1")
    assert tow("run", "-c", "lab", "true").returncode == 1
    hosts.restore()
    assert tow("run", "-c", "lab", "echo", "mended").stdout == "mended\n"


@real
def test_unknown_command_over_there_is_said(tow: Tow, hosts: Hosts) -> None:
    configure(tow, "h1")
    done = tow("run", "-c", "lab", "no-such-command")
    assert done.returncode == 127
    assert "command not found: no-such-command" in done.stderr
    job = submit(tow, "-c", "lab", "no-such-command")
    assert ended(tow, job)["state"] == "failed"
    assert "command not found" in show(tow, job)["reason"]


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ('{"host": "nohost.invalid"}', ["submit", "-c=alone.json", "true"]),
        (
            "ip: nohost.invalid",
            ["execute_remote", "--machine", "alone.json", "--job-name=j", "true"],
        ),
        ("ip: nohost.invalid", ["execute_to", "--machines", "alone.json", "--", "true"]),
    ],
    ids=["slurm", "machine", "machines"],
)
def test_a_host_that_does_not_exist_is_told_and_forgotten(
    tow: Tow, file: str, words: list[str]
) -> None:
    (tow.folder / "alone.json").write_text(file)
    done = subprocess.run(
        [*tow.program[:2], f"towline.cli.compat.{words[0]}", *words[1:]],
        cwd=tow.folder,
        env=tow.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "there is no host of that name" in done.stderr
    cleaned = tow("gc")
    assert (cleaned.returncode, cleaned.stderr) == (0, "")
    assert "nohost" not in cleaned.stdout
    tow("engine", "stop")
    assert tow("gc").returncode == 0


def test_a_machine_called_like_a_slurm_is_told_and_hides_no_other(tow: Tow) -> None:
    slurm = '[clusters.cedar]\nkind = "slurm"\nhost = "nohost.invalid"\n'
    (tow.home / "config.toml").write_text(f'{slurm}[clusters.box]\nmachines = ["cedar"]\n')
    said = complaint(tow("machines", "-c", "box"), 2)
    assert "called like the Slurm cedar" in said and "name = " in said
    shown = {view["name"]: view for view in tow.json("machines")["machines"]}
    assert shown["this"]["state"] == "online"
    assert "called like the Slurm" in shown["box"]["reason"]
