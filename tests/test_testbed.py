"""The test hosts themselves: what the other tests rely on."""

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from testbed import disk
from testbed.hosts import Hosts
from testbed.leftovers import belonging_to, stop_all
from testbed.own_home import persons_home
from testbed.slot import FOLDER, TestbedError
from testbed.tow import Tow
from testbed.waiting import TooLate, wait_until

real = pytest.mark.real


def said(hosts: Hosts, name: str, *argv: str) -> str:
    done = hosts.run(name, argv)
    assert done.returncode == 0, done
    return done.stdout.strip()


def ssh(hosts: Hosts, *words: str) -> subprocess.CompletedProcess[str]:
    argv = ["ssh", "-F", str(hosts.ssh_config), *words]
    return subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30
    )


@real
def test_each_host_has_its_own_name_user_home_and_tmp(hosts: Hosts) -> None:
    for name in hosts.names:
        script = "hostname; id -un; pwd; echo $0 of $(hostname) > mine; echo x > /tmp/$(hostname)"
        assert said(hosts, name, "sh", "-c", script).split() == [name, "worker", "/home/worker"]
    for name in hosts.names:
        assert said(hosts, name, "cat", "mine") == f"sh of {name}"
        assert said(hosts, name, "ls", "/tmp") == name
        assert (hosts.home(name) / "mine").read_text() == f"sh of {name}\n"
        assert not Path("/tmp", name).exists()


@real
def test_a_host_sees_only_its_own_processes(hosts: Hosts) -> None:
    processes = said(hosts, "h1", "ps", "-eo", "pid,args").splitlines()
    assert len(processes) < 20
    assert "sshd" in processes[1]
    assert processes[1].split()[0] == "1"


@real
def test_a_host_does_not_see_the_files_of_root_or_the_repository(hosts: Hosts) -> None:
    repository = Path(__file__).resolve().parents[1]
    root = hosts.root("h1")
    inside = root / str(repository)[1:]
    assert not inside.exists() or list(inside.iterdir()) == []
    # Wherever the repository lies, of the way to it only empty folders show.
    on_the_way = set(repository.parts)
    assert {path.name for path in (root / "root").iterdir()} - on_the_way == {".ssh"}
    homes = {path.name for path in (root / "home").iterdir()}
    assert homes - on_the_way == {"worker", "neighbour"}


@real
def test_python_runs_on_every_host_in_a_plain_ssh_session(hosts: Hosts) -> None:
    for name in hosts.names:
        assert said(hosts, name, "python3", "-c", "print(6 * 7)") == "42"


@real
def test_a_terminal_can_be_had_on_a_host(hosts: Hosts) -> None:
    done = ssh(hosts, "-tt", "h1", "tty")
    assert done.stdout.startswith("/dev/pts/"), done


@real
def test_in1_is_reached_only_through_h1(hosts: Hosts) -> None:
    assert said(hosts, "in1", "hostname") == "in1"
    direct = ssh(hosts, "-o", "BatchMode=yes", "-o", "ProxyJump=none", "in1", "true")
    assert direct.returncode == 255
    assert "No route to host" in direct.stderr or "unreachable" in direct.stderr
    from_h2 = "import socket; socket.create_connection(('in1', 22), 5)"
    assert "unreachable" in hosts.run("h2", ["python3", "-c", from_h2]).stderr
    hosts.kill("h1")
    assert hosts.run("in1", ["true"]).returncode == 255


@real
def test_a_cut_host_is_silent_until_it_is_healed(hosts: Hosts) -> None:
    said(hosts, "h3", "touch", "/tmp/before")
    hosts.cut("h3")
    done = ssh(hosts, "-o", "ConnectTimeout=1", "h3", "true")
    assert (done.returncode, "timed out" in done.stderr) == (255, True), done
    hosts.heal("h3")
    assert said(hosts, "h3", "ls", "/tmp/before") == "/tmp/before"


@real
def test_a_host_keeps_its_home_but_not_its_tmp_over_a_power_cut(hosts: Hosts) -> None:
    said(hosts, "h2", "sh", "-c", "echo kept > kept; touch /tmp/gone")
    hosts.poweroff("h2")
    done = ssh(hosts, "-o", "ConnectTimeout=1", "h2", "true")
    assert (done.returncode, "timed out" in done.stderr) == (255, True), done
    with pytest.raises(TestbedError, match="h2 is not running"):
        hosts.root("h2")
    hosts.boot("h2")
    assert said(hosts, "h2", "cat", "kept") == "kept"
    assert hosts.run("h2", ["ls", "/tmp/gone"]).returncode == 2


@real
def test_a_killed_host_refuses_connections(hosts: Hosts) -> None:
    hosts.kill("h4")
    assert "Connection refused" in hosts.run("h4", ["true"]).stderr
    hosts.boot("h4")
    assert said(hosts, "h4", "hostname") == "h4"


@real
def test_nvidia_smi_shows_the_gpus_that_were_set_and_is_absent_without(hosts: Hosts) -> None:
    ask = ["nvidia-smi", "--format=csv,noheader,nounits"]
    ask.insert(1, "--query-gpu=index,uuid,name,memory.total,memory.used,utilization.gpu")
    apps = ["nvidia-smi", "--query-compute-apps=gpu_uuid,pid,used_memory", ask[2]]
    assert hosts.run("h1", ask).returncode == 127
    hosts.set_gpus(
        "h1",
        [{"name": "NVIDIA A100", "memory_total": 81920}, {"memory_used": 500, "utilization": 30}],
        apps=[{"gpu_uuid": "GPU-1", "pid": 77, "used_memory": 500}],
    )
    assert said(hosts, "h1", *ask).splitlines() == [
        "0, GPU-0, NVIDIA A100, 81920, 0, 0",
        "1, GPU-1, NVIDIA GeForce GTX 1070, 8192, 500, 30",
    ]
    assert said(hosts, "h1", *apps) == "GPU-1, 77, 500"
    assert hosts.run("h1", ["nvidia-smi", "--query-gpu=serial"]).returncode == 2
    assert hosts.run("h2", ask).returncode == 127
    hosts.set_gpus("h1", [])
    assert hosts.run("h1", ask).returncode == 127


def log_in_with_password(hosts: Hosts, name: str, password: str) -> str:
    """Type a password at the terminal of a real ssh, and return all that it showed."""
    argv = ["ssh", "-F", str(hosts.ssh_config), "-o", "NumberOfPasswordPrompts=1", name, "hostname"]
    child, terminal = pty.fork()
    if child == 0:
        os.execvp(argv[0], argv)
    shown = b""
    try:
        while b"password:" not in shown:
            shown += os.read(terminal, 1024)
        os.write(terminal, password.encode() + b"\n")
        while block := os.read(terminal, 1024):
            shown += block
    except OSError:  # what Linux says at the end of a terminal
        pass
    finally:
        os.close(terminal)
        os.waitpid(child, 0)
    return shown.decode()


@real
def test_a_host_can_ask_for_a_password(hosts: Hosts) -> None:
    hosts.sshd_options("h2", {"PasswordAuthentication": "yes", "PubkeyAuthentication": "no"})
    assert "Permission denied" in hosts.run("h2", ["true"]).stderr
    assert log_in_with_password(hosts, "h2", disk.PASSWORD).split()[-1] == "h2"
    assert "Permission denied" in log_in_with_password(hosts, "h2", "wrong")
    hosts.restore()
    assert said(hosts, "h2", "hostname") == "h2"


@real
def test_a_host_with_one_session_refuses_a_second_over_the_same_connection(
    hosts: Hosts, tmp_path: Path
) -> None:
    hosts.sshd_options("h3", {"MaxSessions": 1})
    socket = f"{tmp_path}/s"
    first = subprocess.Popen(
        ["ssh", "-F", str(hosts.ssh_config), "-M", "-S", socket, "h3", "echo in; cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert first.stdout and first.stdout.readline() == b"in\n"
        second = ssh(hosts, "-S", socket, "-o", "BatchMode=yes", "h3", "true")
        assert "Session open refused by peer" in second.stderr
    finally:
        first.communicate(timeout=10)


@real
def test_restarting_sshd_keeps_what_runs_and_refuses_bad_options(hosts: Hosts) -> None:
    job = said(hosts, "h1", "sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!")
    hosts.sshd_options("h1", {"MaxSessions": 7})
    said(hosts, "h1", "kill", "-0", job)
    with pytest.raises(TestbedError, match="Bad configuration option"):
        hosts.sshd_options("h1", {"NoSuchOption": "yes"})
    said(hosts, "h1", "kill", job)


@real
def test_ssh_refuses_a_host_whose_key_changed(hosts: Hosts) -> None:
    hosts.new_host_key("h4")
    done = hosts.run("h4", ["true"])
    assert (done.returncode, "Host key verification failed" in done.stderr) == (255, True), done
    hosts.restore()
    assert said(hosts, "h4", "hostname") == "h4"


@real
def test_python_can_be_absent_from_a_host(hosts: Hosts) -> None:
    hosts.no_python("h2")
    done = hosts.run("h2", ["python3", "-V"])
    assert (done.returncode, "not found" in done.stderr) == (127, True), done
    assert said(hosts, "h1", "python3", "-c", "print(1)") == "1"
    hosts.restore()
    assert said(hosts, "h2", "python3", "-c", "print(1)") == "1"


@real
def test_a_full_disk_takes_logins_but_no_byte(hosts: Hosts) -> None:
    said(hosts, "h3", "sh", "-c", "echo mine > file")
    hosts.fill_disk("h3")
    done = hosts.run("h3", ["sh", "-c", "head -c 1 /dev/zero > more"])
    assert "No space left on device" in done.stderr
    hosts.restore()
    assert said(hosts, "h3", "cat", "file") == "mine"


@real
def test_wiping_ends_what_runs_and_empties_the_homes(hosts: Hosts) -> None:
    said(hosts, "h1", "sh", "-c", "mkdir -p a/b; touch /tmp/x; setsid sleep 61 >/dev/null 2>&1 &")
    hosts.wipe()
    assert said(
        hosts, "h1", "sh", "-c", "ls -A; ls -A /tmp; ps -eo args | grep -c '[s]leep' || :"
    ) == (".ssh\n0")


def of_slot(prefix: str) -> dict[str, list[str]]:
    """Everything of one set of hosts that this machine still has."""
    number = prefix.removeprefix("tl")
    routes = subprocess.run(["ip", "route"], capture_output=True, text=True, check=True).stdout
    networks = (f"10.81.{number}.", f"10.82.{number}.")
    commands = Path("/proc").glob("[0-9]*/cmdline")
    mine = f"{FOLDER}/{number}/"
    return {
        "namespaces": [str(p) for p in Path("/run/netns").glob(f"{prefix}-*")],
        "links": [str(p) for p in Path("/sys/class/net").glob(f"{prefix}-*")],
        "routes": [line for line in routes.splitlines() if any(n in line for n in networks)],
        "mounts": [line for line in Path("/proc/mounts").read_text().splitlines() if mine in line],
        "files": [str(p) for p in FOLDER.glob(number)],
        "processes": [str(p) for p in commands if mine in read(p)],
    }


def alive(pid: int) -> bool:
    # One that has ended may wait a moment for whoever adopted it to take note.
    state = read(Path(f"/proc/{pid}/stat")).rpartition(") ")[2][:1]
    return state not in ("", "Z", "X")


def read(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


@real
def test_two_sets_of_hosts_live_side_by_side_and_leave_nothing(hosts: Hosts) -> None:
    with Hosts(count=1, inner=False) as others:
        assert others.address("h1") != hosts.address("h1")
        others.home("h1").joinpath("theirs").touch()
        assert not hosts.home("h1").joinpath("theirs").exists()
        assert said(others, "h1", "hostname") == "h1"
        pid = others.pid("h1")
        prefix = f"tl{others.ssh_config.parent.name}"
        assert all(of_slot(prefix).values())
    assert not any(of_slot(prefix).values()), of_slot(prefix)
    assert not alive(pid)
    assert said(hosts, "h1", "hostname") == "h1"


@real
def test_hosts_go_when_their_owner_is_killed() -> None:
    script = (
        "import sys; from testbed.hosts import Hosts; hosts = Hosts(2, inner=False); hosts.up();"
        "print(hosts.ssh_config.parent.name, hosts.pid('h1'), flush=True); sys.stdin.read()"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with owner:
        assert owner.stdout
        number, pid = owner.stdout.readline().split()
        owner.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(of_slot(f"tl{number}").values()), on_timeout=lambda: of_slot(number))
    assert not alive(int(pid))


@real
def test_what_an_owner_and_its_janitor_left_is_removed_by_the_next() -> None:
    dead = Hosts(count=1, inner=False)
    dead.up()
    prefix = f"tl{dead.ssh_config.parent.name}"
    host = dead._running["h1"]
    assert dead._janitor and dead._slot
    dead._janitor.kill()
    dead._janitor.communicate()
    dead._slot.release()
    assert all(of_slot(prefix).values())
    with Hosts(count=0, inner=False) as next_owner:
        host.wait(timeout=10)
        assert not next_owner.names
        assert not Path("/run/netns", f"{prefix}-h1").exists()
    assert not any(of_slot(prefix).values()), of_slot(prefix)


def test_waiting_returns_the_answer_or_says_what_was_there_instead() -> None:
    assert wait_until(lambda: "yes", timeout=0) == "yes"
    with pytest.raises(TooLate, match="the log"):
        wait_until(lambda: "", timeout=0, on_timeout=lambda: "the log")


def test_processes_of_a_home_are_ended_with_it(tow: Tow, tow_home: Path, tmp_path: Path) -> None:
    assert len(str(tow_home)) < 40
    by_environment = subprocess.Popen(["sleep", "62"], env=tow.env)
    by_folder = subprocess.Popen(["sleep", "63"], cwd=tow_home)
    unrelated = subprocess.Popen(["sleep", "64"], cwd=tmp_path, env={"PATH": os.environ["PATH"]})
    (tow_home / "engine.pid").write_text(f"{by_environment.pid}\n")
    try:
        assert sorted(belonging_to(tow_home)) == sorted([by_environment.pid, by_folder.pid])
        stop_all(tow_home)
        assert by_environment.wait(10) == -signal.SIGTERM
        assert by_folder.wait(10) == -signal.SIGKILL
        assert unrelated.poll() is None
    finally:
        for process in (by_environment, by_folder, unrelated):
            process.kill()
            process.wait()


def test_a_nasty_folder_name_is_there(weird_path: Path) -> None:
    assert weird_path.is_dir()
    assert all(mark in weird_path.name for mark in "'\" \n$ü")


@pytest.mark.slow
def test_tests_have_a_home_of_their_own(tow: Tow) -> None:
    """Also what they start: a login shell, and the job of an Engine."""
    persons = persons_home().stat()
    for words in (["bash", "-lc", "cd; pwd -P"], ["sh", "-c", "cd; pwd -P"]):
        done = tow("run", *words)
        assert done.returncode == 0, done.stderr
        found = Path(done.stdout.strip()).stat()
        assert (found.st_dev, found.st_ino) != (persons.st_dev, persons.st_ino)
