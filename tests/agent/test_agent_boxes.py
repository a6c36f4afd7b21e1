"""Jobs in a box on a real agent: they start, end, stop and are looked into as others are."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.waiting import wait_until

from .conftest import NewAgent
from .driver import REMOTE, START, AgentError, Driver

HOST = {"network": "host"}
OWN = {"network": "own"}
READY = "echo ready; "


def until_ready(agent: Driver, key: str) -> None:
    agent.call_blob("read", key=key, stream="out", offset=0, limit=10, wait=True)


def keeper_of(agent: Driver, key: str) -> int:
    agent.wait_for(lambda: key in agent.started)
    return agent.started[key][0]


def processes_in_namespace(of: int) -> list[int]:
    """All that share the process namespace of a process, as numbered here."""
    wanted = os.readlink(f"/proc/{of}/ns/pid")
    found = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.readlink(f"/proc/{name}/ns/pid") == wanted:
                found.append(int(name))
        except OSError:
            pass
    return found


def first_process(root: Path, key: str) -> int:
    note = root / "records" / key / "box"
    return int(json.loads(wait_until(lambda: note.exists() and note.read_text()))["init"])


def test_exit_code_output_and_what_was_made_are_told_as_of_any_job(
    agent: Driver, root: Path
) -> None:
    script = "echo out; echo err >&2; echo made > made; echo kept > $KEEP_DIR/kept; exit 7"
    end = agent.run("a", "sh", "-c", script, box=HOST)
    assert (end["code"], end["signal"], end["cause"], end["made"]) == (7, None, "", 1)
    assert (agent.output("a"), agent.output("a", "err")) == (b"out\n", b"err\n")
    assert (root / "jobs/a/src/made").read_text() == "made\n"
    assert (root / "jobs/a/keep/kept").read_text() == "kept\n"


def test_a_signal_is_told_as_one_and_what_was_used_is_the_command_s(agent: Driver) -> None:
    assert agent.run("a", "sh", "-c", "kill -SEGV $$", box=HOST)["signal"] == signal.SIGSEGV
    code = "x = bytearray(120 << 20); raise SystemExit(4)"
    end = agent.run("b", "python3", "-c", code, box=HOST)
    assert end["code"] == 4
    assert end["max_rss_kb"] > 120 << 10


@pytest.mark.parametrize(
    ("argv", "code", "cause"),
    [
        (["no-such-command"], 127, "not_found"),
        (["./no-such-file"], 127, "not_found"),
        (["/etc/os-release"], 126, "not_executable"),
        (["--bind"], 127, "not_found"),
        (["-c"], 127, "not_found"),
    ],
)
def test_a_command_that_is_not_there_is_told_as_such(
    agent: Driver, argv: list[str], code: int, cause: str
) -> None:
    end = agent.run("a", *argv, box=HOST)
    assert (end["code"], end["cause"]) == (code, cause)


def test_words_and_variables_arrive_whatever_is_in_them(agent: Driver) -> None:
    words = ["--ro-bind", "/", "new\nline", "$HOME `id`", "", "--"]
    code = "import os, sys; print(sys.argv[1:], [os.environ['ODD']])"
    agent.run("a", "python3", "-c", code, *words, env={"ODD": "--bind\n/ /"}, box=HOST)
    assert agent.output("a").decode() == f"{words} ['--bind\\n/ /']\n"


def test_a_set_up_runs_inside_and_its_failure_is_told(agent: Driver) -> None:
    agent.run("a", "sh", "-c", "echo $X; pwd", setup="export X=1", cwd="sub/folder", box=HOST)
    said = agent.output("a").decode().split()
    assert said[0] == "1" and said[1].endswith("/jobs/a/src/sub/folder")
    end = agent.run("b", "true", setup="false", box=HOST)
    assert (end["cause"], end["text"]) == ("setup", "false")
    assert agent.run("c", "no-such-command", setup="true", box=HOST)["cause"] == "not_found"


def test_the_environment_of_the_agent_stays_outside(new_agent: Callable[..., Driver]) -> None:
    agent = new_agent(AGENT_SECRET="hush", SSH_AUTH_SOCK="/tmp/agent", LC_TIME="C")
    agent.run("a", "env", env={"MINE": "1"}, box=HOST)
    names = {line.partition("=")[0] for line in agent.output("a").decode().splitlines()}
    assert not names & {"AGENT_SECRET", "SSH_AUTH_SOCK"}
    assert {"MINE", "LC_TIME", "PATH", "HOME", "USER", "JOB_DIR", "SRC_DIR", "KEEP_DIR"} <= names


def test_stopping_asks_first_and_then_nothing_is_left(agent: Driver, root: Path) -> None:
    script = "trap 'echo saved; exit 0' TERM; " + READY + "while :; do sleep 0.05; done"
    agent.start("a", "sh", "-c", script, box=OWN)
    until_ready(agent, "a")
    agent.call("stop", keys=["a"], grace_s=20)
    end = agent.end_of("a")
    assert (end["cause"], end["code"]) == ("stopped", 0)
    assert agent.output("a") == b"ready\nsaved\n"


def test_a_stop_never_misses(agent: Driver, root: Path) -> None:
    """Not what left its session and ignores being asked, and not where the job holds its own first
    process by ptrace."""
    hold = "import ctypes, time; ctypes.CDLL(None).ptrace(16, 1, 0, 0); print('ready', flush=True)"
    daemon = "(trap '' TERM HUP; env -i setsid sleep 300) & "
    script = f'{daemon} trap "" TERM; python3 -c "{hold}; time.sleep(300)"; sleep 300'
    agent.start("a", "sh", "-c", script, box=HOST)
    until_ready(agent, "a")
    inside = processes_in_namespace(first_process(root, "a"))
    assert len(inside) > 3
    agent.call("stop", keys=["a"], grace_s=0.2)
    assert agent.end_of("a")["cause"] == "stopped"
    assert not [pid for pid in inside if os.path.exists(f"/proc/{pid}/ns/pid")]


def test_a_daemon_ends_with_its_job(agent: Driver, root: Path) -> None:
    script = "env -i setsid sh -c 'trap \"\" TERM; exec sleep 300' & " + READY + "read x < hold"
    agent.start("a", "sh", "-c", "mkfifo hold; " + script, box=HOST)
    until_ready(agent, "a")
    inside = processes_in_namespace(first_process(root, "a"))
    (root / "jobs/a/src/hold").write_text("go\n")
    assert agent.end_of("a")["code"] == 0
    assert not [pid for pid in inside if os.path.exists(f"/proc/{pid}/ns/pid")]


def test_a_job_in_a_box_outlives_its_supervisor_and_keeps_its_exit_code(
    agent: Driver, root: Path
) -> None:
    agent.start("a", "sh", "-c", "mkfifo hold; " + READY + "read x < hold; exit 9", box=HOST)
    until_ready(agent, "a")
    keeper = keeper_of(agent, "a")
    supervisor = int(Path(f"/proc/{keeper}/stat").read_text().rsplit(")", 1)[1].split()[1])
    os.kill(supervisor, signal.SIGKILL)
    wait_until(lambda: not os.path.exists(f"/proc/{supervisor}/ns/pid"))
    (root / "jobs/a/src/hold").write_text("go\n")
    assert agent.end_of("a")["code"] == 9
    assert agent.end_count["a"] == 1


def test_a_keeper_that_is_killed_takes_its_box_along(agent: Driver, root: Path) -> None:
    agent.start("a", "sh", "-c", READY + "sleep 300", box=OWN)
    until_ready(agent, "a")
    inside = processes_in_namespace(first_process(root, "a"))
    os.kill(keeper_of(agent, "a"), signal.SIGKILL)
    assert agent.end_of("a")["signal"] == signal.SIGKILL
    assert not [pid for pid in inside if os.path.exists(f"/proc/{pid}/ns/pid")]


def test_a_command_beside_the_job_is_inside_the_same_walls(agent: Driver, root: Path) -> None:
    agent.start("a", "sh", "-c", READY + "sleep 300", env={"A": "1"}, box=OWN)
    until_ready(agent, "a")
    look = "hostname; echo $A; cat /proc/2/comm; grep -c . /proc/net/dev; ls /root /home; id -u; "
    look += (
        "grep -E 'CapEff|CapBnd|NoNewPrivs|Seccomp:' /proc/self/status; unshare -Ur true; exit 6"
    )
    agent.call("exec", key="a", new_key="a.x", argv=["sh", "-c", look], env={})
    assert agent.end_of("a.x")["code"] == 6
    said = agent.output("a.x").decode().split()
    assert said[:3] == ["job-a", "1", "sh"]
    zero = "0" * 16
    assert said[-8:] == ["CapEff:", zero, "CapBnd:", zero, "NoNewPrivs:", "1", "Seccomp:", "2"]
    errors = agent.output("a.x", "err").decode()
    assert "/root" in errors and "/home" in errors and "unshare failed" in errors
    agent.call("exec", key="a", new_key="a.y", argv=["sh", "-c", READY + "sleep 300"], env={})
    until_ready(agent, "a.y")
    agent.call("stop", keys=["a.y"], grace_s=5)
    assert agent.end_of("a.y")["cause"] == "stopped"
    agent.call("stop", keys=["a"], grace_s=5)
    agent.end_of("a")
    agent.call("exec", key="a", new_key="a.z", argv=["true"], env={})
    assert "not there any more" in agent.end_of("a.z")["text"]


SERVE = """
import http.server, os, socketserver
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
        self.wfile.write(os.uname().nodename.encode())
    def log_message(self, *_): pass
socketserver.TCPServer(("127.0.0.1", int(os.environ["PORT"])), H).serve_forever()
"""


def test_a_service_is_inside_and_reached_only_through_the_agent(agent: Driver) -> None:
    services = [{"name": "web", "argv": ["python3", "-c", SERVE]}]
    agent.start("a", "sleep", "300", box=OWN, services=services)
    agent.wait_for(lambda: "a" in agent.started)
    about = agent.wait_for(
        lambda: (s := agent.call("services", key="a")["services"]["web"])["port"] and s
    )

    def dialled() -> bool:
        try:
            agent.call("dial", stream=1, key="a", service="web")
        except AgentError:
            return False
        return True

    wait_until(dialled)
    agent.send({"stream": 1}, b"GET / HTTP/1.0\r\n\r\n")
    said = b""
    while b"job-a" not in said:
        said += agent.wait_for(lambda: agent.pop(lambda h: h.get("stream") == 1))[1]
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", about["port"]), 2)
    agent.call("stop", keys=["a"], grace_s=5)
    agent.end_of("a")


def test_a_box_of_root_cannot_change_the_machine_either(agent: Driver) -> None:
    """Tests are root: what files let their owner do is not to be had inside."""
    assert os.getuid() == 0
    paths = "/proc/sys/kernel/core_pattern /proc/sysrq-trigger /proc/sys/vm/drop_caches /usr/x"
    script = f"id -u; for path in {paths}; do true 2>/dev/null >> $path && echo $path; done; true"
    agent.run("a", "bash", "-c", script, box=HOST)
    assert agent.output("a") == b"0\n"
    tries = "mount -t tmpfs x /tmp || chroot / true || mknod n c 1 3 || umount /usr || echo none"
    agent.run("b", "sh", "-c", tries, box=HOST)
    assert agent.output("b") == b"none\n"


def test_what_leads_out_of_a_box_is_refused(agent: Driver, tmp_path: Path) -> None:
    for wrong in ({"folder": str(tmp_path)}, {"links": {"OUT": "$OUT"}}):
        with pytest.raises(AgentError):
            agent.start("a", "true", box=HOST, **wrong)
    (tmp_path / "keys").mkdir()
    (tmp_path / "link").symlink_to("keys")
    end = agent.run("b", "true", box={"binds": [[f"{tmp_path}/link", "/data", "ro"]]})
    assert end["cause"] == "walls" and "by a link" in end["text"]


def test_a_mount_point_is_never_made_where_a_job_left_a_link(agent: Driver, tmp_path: Path) -> None:
    """An earlier job's `keep` holds links that lead to the old root, as bubblewrap sees it while it
    builds; nothing appears there."""
    target = tmp_path / "outside"
    target.mkdir()
    lead = f"ln -s /oldroot{target} $KEEP_DIR/x; ln -s /oldroot{target} $SRC_DIR/y"
    agent.run("a", "sh", "-c", lead, box=HOST)
    agent.run("a2", "sh", "-c", f"{lead}; ls $KEEP_DIR/x/ $SRC_DIR/y/", box=HOST)
    assert not list(target.iterdir())
    data = [[str(target), f"{agent.root}/jobs/c/keep/x", "ro"]]
    end = agent.run("c", "true", box={"binds": data})
    assert end["cause"] == "walls" and "which its job may write" in end["text"]


def test_what_is_shown_besides_is_seen_and_not_written(agent: Driver, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/set").write_text("numbers")
    shown = [[f"{tmp_path}/data", "/data", "ro"]]
    agent.run("a", "sh", "-c", "cat /data/set; echo x > /data/set", box={"binds": shown})
    assert agent.output("a") == b"numbers"
    assert b"Read-only" in agent.output("a", "err")


def test_the_job_may_empty_its_own_log_and_whoever_reads_it_goes_on(agent: Driver) -> None:
    script = "echo first line; : > /proc/self/fd/1; echo second"
    assert agent.run("a", "sh", "-c", script, box=HOST)["code"] == 0
    assert b"second" in agent.output("a")


def test_a_machine_without_bubblewrap_says_so_and_nothing_starts(
    new_agent: Callable[..., Driver], root: Path
) -> None:
    code = (
        "import sys; sys.path.insert(0, {folder!r}); from remote.box import ability;"
        "ability.PLACES = (b'/no/such/bwrap',); ability.look.__defaults__ = (ability.PLACES,);"
        "from remote.main import main; main({root!r})"
    )
    agent = new_agent(code=code)
    end = agent.run("a", "touch", "made", box=HOST)
    assert end["cause"] == "walls" and "bubblewrap is not installed" in end["text"]
    assert not (root / "jobs/a/src").exists()
    assert "not installed" in agent.call("walls")["walls"]["why"]
    assert agent.run("b", "true")["code"] == 0


def test_a_machine_says_how_well_it_can_wall_in_jobs(agent: Driver, root: Path) -> None:
    told = agent.call("walls")["walls"]
    assert (told["why"], told["nesting"], told["network"]) == ("", False, "slirp4netns")
    assert json.loads((root / "walls.json").read_text())["found"]["network"] == "slirp4netns"
    assert agent.call("walls")["walls"] == told


#: The supervisor of a job is killed when there is somebody to keep its box, and nothing in it.
KILLED_AT_THE_GATE = """
import os, signal, sys
sys.path.insert(0, {folder!r})
from remote.box.keeper import BoxKeeper
real_start = BoxKeeper.start
def start(self, *fds):
    pid = real_start(self, *fds)
    if not self.record.startswith({root!r}) or os.path.exists({root!r} + "/killed"):
        return pid
    os.close(os.open({root!r} + "/killed", os.O_CREAT))
    os.kill(os.getpid(), signal.SIGKILL)
BoxKeeper.start = start
"""


def test_a_box_whose_supervisor_is_killed_before_it_is_opened_counts_as_never_begun(
    new_agent: NewAgent, root: Path
) -> None:
    agent = new_agent(code=KILLED_AT_THE_GATE + START)
    end = agent.run("a", "sh", "-c", "echo ran; exit 7", box=HOST)
    assert (root / "killed").exists()
    if end["cause"] == "void":  # whoever asked for it asks again
        end = agent.run("a2", "sh", "-c", "echo ran; exit 7", box=HOST)
        assert agent.output("a") == b""
        assert agent.output("a2") == b"ran\n"
    else:
        assert agent.output("a") == b"ran\n"
    assert (end["code"], end["cause"]) == (7, "")


def test_a_link_that_is_put_in_the_way_while_a_file_is_read_leads_nowhere(
    agent: Driver, root: Path, tmp_path: Path
) -> None:
    """A job swaps a folder for a link to one outside, again and again, while it is read by its
    path: its own file is told, or nothing is."""
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "key").write_text("the key")
    swap = (
        "import os\n"
        "os.mkdir('real'); open('real/key', 'w').write('mine')\n"
        f"os.symlink({str(secrets)!r}, 'link')\n"
        "print('ready', flush=True)\n"
        "while True:\n"
        "    os.rename('real', 'd'); os.rename('d', 'real')\n"
        "    os.rename('link', 'd'); os.rename('d', 'link')\n"
    )
    agent.start("a", "python3", "-c", swap, box=HOST)
    until_ready(agent, "a")
    got = set()
    for _ in range(1500):
        try:
            got.add(agent.call_blob("get", key="a", path="d/key")[1])
        except AgentError as error:
            got.add(error.code.encode())
    agent.call("stop", keys=["a"], grace_s=1)
    agent.end_of("a")
    assert b"mine" in got
    assert b"the key" not in got


#: In mounts of its own, so that nothing of this machine is at stake: what slirp4netns does when it
#: locks itself in, with a mount that others have, too.
UNMOUNTS = """
import os, subprocess, sys
sys.path.insert(0, {remote!r})
from remote.box import network
inner = {place!r} + "/inner"
for words in (
    ["mount", "-t", "tmpfs", "tmpfs", {place!r}], ["mount", "--make-shared", {place!r}],
    ["mkdir", inner], ["mount", "-t", "tmpfs", "tmpfs", inner],
):
    subprocess.run(words, check=True)
null = os.open(os.devnull, os.O_RDWR)
network.start([b"/bin/umount", inner.encode()], [], null, 2)
os.wait()
print(os.path.ismount(inner))
"""


def test_what_keeps_the_way_out_unmounts_nothing_of_the_machine(tmp_path: Path) -> None:
    code = UNMOUNTS.format(remote=str(REMOTE), place=str(tmp_path))
    apart = ["unshare", "--mount", "--propagation", "private", sys.executable, "-c", code]
    said = subprocess.run(apart, capture_output=True, text=True, timeout=60)
    assert said.stdout == "True\n", said
