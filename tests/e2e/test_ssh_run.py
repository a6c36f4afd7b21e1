"""A command on machines reached by ssh, where nothing is installed."""

import os
from pathlib import Path

import pytest

from e2e.jobs import configure, ended, engine_pid, raw, read_line_with, show, submit
from e2e.test_local_run import ODD_WORDS, SHOW_WORDS
from testbed.hosts import Hosts
from testbed.tow import Tow
from testbed.waiting import wait_until
from testbed.wiretap import wiretapped

pytestmark = pytest.mark.real


def test_added_cluster_shows_its_machines_and_runs_jobs(tow: Tow, hosts: Hosts) -> None:
    added = tow("clusters", "add", "lab", "h1", "in1")
    assert added.returncode == 0, added.stderr
    assert "✓ h1: connected" in added.stdout
    assert "✓ in1: connected" in added.stdout
    done = tow("run", "-c", "lab", "sh", "-c", "hostname; id -un; echo err >&2; exit 6")
    assert done.returncode == 6
    machine, user = done.stdout.split()
    assert user == "worker"
    assert done.stderr.splitlines()[0] == "err"
    assert show(tow, 1)["machines"] == [machine]


def test_arguments_arrive_exactly_as_typed_over_ssh(tow: Tow, hosts: Hosts) -> None:
    configure(tow, "h1")
    done = raw(tow, "run", "-c", "lab", "python3", "-c", SHOW_WORDS, *ODD_WORDS, b"\xff\xfe raw")
    expected = [os.fsencode(word) for word in ODD_WORDS] + [b"\xff\xfe raw"]
    assert done.stdout.decode() == f"{expected}\n"


def test_folder_with_an_odd_name_is_sent_and_run_in(
    tow: Tow, hosts: Hosts, weird_path: Path
) -> None:
    configure(tow, "h1")
    inner = weird_path / "it's $HOME\nbelow"
    inner.mkdir()
    (weird_path / ".towignore").write_text("secret\n")
    (inner / "secret").write_text("stays here")
    (inner / "lädt 雪.txt").write_text("travels")
    (inner / "tool").write_text("#!/bin/sh\nls; cat *.txt; echo")
    (inner / "tool").chmod(0o755)
    done = tow("run", "-c", "lab", "./tool", cwd=inner)
    assert done.stdout.splitlines() == ["lädt 雪.txt", "secret", "tool", "travels"]
    done = tow("run", "-c", "lab", "sh", "-c", "cat */tool; ls */secret", cwd=weird_path)
    assert done.stdout.startswith("#!/bin/sh")
    assert "stays here" not in done.stdout
    assert done.returncode == 2


def test_jobs_over_there_do_not_get_the_environment_from_here(tow: Tow, hosts: Hosts) -> None:
    configure(tow, "h1")
    words = ["-c", "lab", "-e", "GIVEN=1", "env"]
    lines = tow("run", *words, env={"SECRET_TOKEN": "x"}).stdout.splitlines()
    assert "GIVEN=1" in lines
    assert "HOME=/home/worker" in lines
    assert not any(line.startswith("SECRET_TOKEN") for line in lines)


def test_a_secret_of_the_terminal_crosses_the_socket_for_jobs_on_this_machine_only(
    tow: Tow, hosts: Hosts
) -> None:
    configure(tow, "h1", more='[clusters.mine]\nmachines = ["this"]')
    secret, show_it = {"SECRET_TOKEN": "0xC0FFEE"}, ["sh", "-c", "echo got $SECRET_TOKEN"]
    assert tow("status").returncode == 0
    with wiretapped(tow.home / "engine.sock") as tap:
        assert tow("run", "-c", "lab", *show_it, env=secret).stdout == "got\n"
        assert tow("run", "-d", "-c", "lab", *show_it, env=secret).returncode == 0
        (tow.folder / "lines").write_text("echo got $SECRET_TOKEN\n")
        assert tow("batch", "-c", "lab", "lines", env=secret).returncode == 0
        assert b"POST /v1/run" in tap.heard and b"POST /v1/batches" in tap.heard
        assert b"0xC0FFEE" not in tap.heard
        # A cluster of another name that is this machine: the Engine asks for it.
        assert tow("run", "-c", "mine", *show_it, env=secret).stdout == "got 0xC0FFEE\n"
        assert tap.heard.count(b"POST /v1/run") == 3
        assert tow("run", *show_it, env=secret).stdout == "got 0xC0FFEE\n"
        assert tap.heard.count(b"POST /v1/run") == 4


def test_setup_of_the_cluster_runs_before_that_of_the_job(tow: Tow, hosts: Hosts) -> None:
    configure(tow, "h1", cluster='setup = "export A=cluster B=cluster"')
    done = tow("run", "-c", "lab", "--setup", "B=job:$A", "sh", "-c", "echo $A $B")
    assert done.stdout == "cluster job:cluster\n"
    configure(tow, "h1", cluster='setup = "source /no/such/env"')
    done = tow("run", "-c", "lab", "echo", "never")
    assert done.returncode != 0
    assert done.stdout == ""
    assert "set-up failed" in done.stderr


def test_machine_behind_another_runs_jobs_through_proxy_jump(tow: Tow, hosts: Hosts) -> None:
    configure(tow, "in1")
    assert tow("run", "-c", "lab", "hostname").stdout == "in1\n"


def test_one_session_per_connection_is_enough(tow: Tow, hosts: Hosts) -> None:
    hosts.sshd_options("h1", {"MaxSessions": 1})
    configure(tow, "h1")
    job = submit(tow, "-c", "lab", "sh", "-c", "echo hi; sleep 60")
    following = tow.popen("log", "-f", str(job))
    assert read_line_with(following, "hi") == "hi\n"
    assert tow("exec", str(job), "hostname").stdout == "h1\n"
    assert tow("run", "-c", "lab", "echo", "second").stdout == "second\n"
    assert tow("stop", str(job)).returncode == 0


def test_machine_that_has_only_ssh_s_own_favourite_cipher_is_reached(
    tow: Tow, hosts: Hosts
) -> None:
    hosts.sshd_options("h1", {"Ciphers": "chacha20-poly1305@openssh.com"})
    configure(tow, "h1")
    assert tow("run", "-c", "lab", "hostname").stdout == "h1\n"


def test_login_shell_that_prints_does_no_harm(tow: Tow, hosts: Hosts) -> None:
    noise = 'echo "hello from rc"; printf "no newline"; echo "rc err" >&2\n'
    (hosts.home("h1") / ".bashrc").write_text(noise)
    configure(tow, "h1")
    done = tow("run", "-c", "lab", "echo", "mine")
    assert (done.returncode, done.stdout) == (0, "mine\n")
    assert "rc err" not in done.stderr


def test_user_host_and_port_are_understood_without_an_ssh_config_entry(
    tow: Tow, hosts: Hosts
) -> None:
    hosts.sshd_options("h1", {"Port": 2222})
    configure(tow, "worker@h1:2222")
    assert tow("run", "-c", "lab", "hostname").stdout == "h1\n"


def test_binary_output_arrives_byte_by_byte_over_ssh(tow: Tow, hosts: Hosts) -> None:
    configure(tow, "h1")
    program = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 3000)"
    done = raw(tow, "run", "-c", "lab", "python3", "-c", program)
    assert done.stdout == bytes(range(256)) * 3000


def test_every_child_of_a_job_over_there_is_stopped_with_it(tow: Tow, hosts: Hosts) -> None:
    configure(tow, "h1")
    child = "echo $$ >> ~/pids; trap : TERM; while :; do sleep 300; done"
    (tow.folder / "child.sh").write_text(child)
    script = "setsid sh child.sh & (setsid setsid sh child.sh &); sh child.sh & wait"
    job = submit(tow, "-c", "lab", "sh", "-c", script)
    pids = hosts.home("h1") / "pids"
    wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 3)
    assert tow("stop", str(job)).returncode == 0
    assert ended(tow, job)["state"] == "stopped"
    left = hosts.run("h1", ["ps", "-eo", "args"]).stdout
    assert "child.sh" not in left
    assert "sleep 300" not in left


def test_nothing_of_a_job_is_left_running_when_its_command_ends(tow: Tow, hosts: Hosts) -> None:
    configure(tow, "h1")
    done = tow("run", "-c", "lab", "sh", "-c", "setsid sleep 301 & echo over")
    assert (done.returncode, done.stdout) == (0, "over\n")
    wait_until(lambda: "sleep 301" not in hosts.run("h1", ["ps", "-eo", "args"]).stdout)


def test_one_connection_serves_many_jobs(tow: Tow, hosts: Hosts) -> None:
    configure(tow, "h1")
    before = hosts.log("h1").count("Accepted")
    jobs = [submit(tow, "-c", "lab", "sh", "-c", f"exit {code}") for code in range(4)]
    assert [ended(tow, job)["exit_code"] for job in jobs] == [0, 1, 2, 3]
    assert hosts.log("h1").count("Accepted") == before + 1


def test_engine_forgets_no_job_of_a_machine_when_it_ends_and_starts(tow: Tow, hosts: Hosts) -> None:
    configure(tow, "h1")
    job = submit(tow, "-c", "lab", "sh", "-c", "while [ ! -e go ]; do sleep 0.05; done; echo on")
    wait_until(lambda: show(tow, job)["state"] == "running", every=0.1)
    first = engine_pid(tow)
    assert tow("engine", "stop").returncode == 0
    assert tow("exec", str(job), "touch", "go").returncode == 0
    assert engine_pid(tow) != first
    assert tow("attach", str(job)).stdout == "on\n"
