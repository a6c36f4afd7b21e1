"""Reaching into a job: its files, a command beside it, its ports."""

import os
import signal
import subprocess
import urllib.request
from pathlib import Path

import pytest

from e2e.api import ask
from e2e.jobs import complaint, configure, raw, read_line_with, submit, wait_for
from testbed.hosts import Hosts
from testbed.tow import Tow
from testbed.waiting import wait_until

pytestmark = pytest.mark.real

MAKE_FILES = """\
mkdir -p out/deep
printf 'a\\000b\\377' > out/raw.bin
echo 1 > 'out/deep/with space 雪'
ln -s /etc/passwd out/link
touch out/ready
exec sleep 300
"""
SERVE = "cd out && exec python3 -m http.server --bind 127.0.0.1 $PORT"


@pytest.fixture
def job(tow: Tow, hosts: Hosts) -> str:
    """A job on h1 that has made files and goes on running."""
    configure(tow, "h1")
    (tow.folder / "input.txt").write_text("as sent")
    number = submit(tow, "-c", "lab", "sh", "-c", MAKE_FILES)
    wait_for(tow, number, "running")
    wait_until(lambda: "ready" in tow("ls", str(number), "out").stdout, every=0.1)
    return str(number)


def test_files_of_a_running_job_are_listed_and_printed(tow: Tow, job: str) -> None:
    assert {"input.txt", "out/"} <= set(tow("ls", job).stdout.split())
    entries = {entry["name"]: entry for entry in tow.json("ls", job, "out")["entries"]}
    assert entries["raw.bin"]["size"] == 4
    assert "with space 雪" in tow("ls", "-l", job, "out/deep").stdout
    assert raw(tow, "cat", job, "out/raw.bin").stdout == b"a\0b\xff"
    assert tow("cat", job, "input.txt").stdout == "as sent"


def test_paths_that_are_not_there_or_lead_out_are_refused(tow: Tow, job: str) -> None:
    assert "no-such" in complaint(tow("cat", job, "no-such"), 2)
    assert "out" in complaint(tow("cat", job, "out"), 2)
    complaint(tow("ls", job, "no-such"), 2)
    for path in ("../../../../../../etc/passwd", "/etc/passwd", "out/link"):
        complaint(tow("cat", job, path), 2)
        complaint(tow("pull", job, path, "stolen"), 2)
    assert not (tow.folder / "stolen").exists()
    complaint(tow("push", job, "input.txt", "../../escaped"), 2)
    complaint(tow("push", job, "not-here"), 2)
    complaint(tow("cat", "99", "input.txt"), 2)


def test_pull_brings_a_file_or_folder_and_never_overwrites(tow: Tow, job: str) -> None:
    assert tow("pull", job, "out/raw.bin").returncode == 0
    assert (tow.folder / "raw.bin").read_bytes() == b"a\0b\xff"
    assert tow("pull", job, "out", "results").returncode == 0
    results = tow.folder / "results"
    assert (results / "deep" / "with space 雪").read_text() == "1\n"
    assert not (results / "link").is_symlink()
    (results / "raw.bin").write_bytes(b"mine")
    again = tow("pull", job, "out/raw.bin", "results/raw.bin")
    assert "results/raw.bin" in complaint(again, 2)
    assert (results / "raw.bin").read_bytes() == b"mine"
    assert tow("pull", "--force", job, "out/raw.bin", "results/raw.bin").returncode == 0
    assert (results / "raw.bin").read_bytes() == b"a\0b\xff"
    assert not [path for path in results.rglob("*") if ".tow-" in path.name]


def test_push_puts_a_file_or_folder_into_the_job(tow: Tow, job: str) -> None:
    content = os.urandom(700_000)
    (tow.folder / "new").mkdir()
    (tow.folder / "new" / "tool").write_bytes(content)
    (tow.folder / "new" / "tool").chmod(0o755)
    assert tow("push", job, "new", "inputs").returncode == 0
    assert raw(tow, "cat", job, "inputs/tool").stdout == content
    assert tow("exec", job, "test", "-x", "inputs/tool").returncode == 0


def test_exec_runs_beside_the_job_with_its_folder_and_exit_code(tow: Tow, job: str) -> None:
    done = tow(
        "exec", job, "--", "sh", "-c", "pwd; hostname; echo $TOWLINE_JOB; echo e >&2; exit 9"
    )
    folder, *rest = done.stdout.split()
    assert folder.startswith("/home/worker/.towline/jobs/")
    assert rest == ["h1", job]
    assert (done.returncode, done.stderr) == (9, "e\n")
    assert raw(tow, "exec", job, "cat", "out/raw.bin").stdout == b"a\0b\xff"
    odd = ["a b", "$HOME", "it's", "é"]
    assert tow("exec", job, "printf", "%s\n", *odd).stdout.splitlines() == odd
    missing = tow("exec", job, "no-such-command")
    assert missing.returncode == 127
    assert "command not found" in missing.stderr
    assert tow.json("show", job)["state"] == "running"


def test_exec_that_is_interrupted_leaves_nothing_running(tow: Tow, hosts: Hosts, job: str) -> None:
    beside = tow.popen("exec", job, "sh", "-c", "echo on; exec sleep 303")
    read_line_with(beside, "on")
    beside.send_signal(signal.SIGINT)
    beside.communicate(timeout=20)
    wait_until(lambda: "sleep 303" not in hosts.run("h1", ["ps", "-eo", "args"]).stdout, every=0.2)
    assert tow.json("show", job)["state"] == "running"


def test_port_of_a_job_is_reached_from_here(tow: Tow, job: str) -> None:
    served = tow.popen("exec", job, "sh", "-c", SERVE.replace("$PORT", "8123"))
    forwarded = tow.popen("forward", job, "8123")
    local = read_line_with(forwarded, "http://localhost:").split()[0]

    def body() -> bytes:
        try:
            with urllib.request.urlopen(f"{local}/raw.bin", timeout=10) as answer:
                return bytes(answer.read())
        except OSError:
            return b""

    assert wait_until(body, every=0.1) == b"a\0b\xff"
    port = int(local.rpartition(":")[2])
    assert tow.json("forward", "--list")["forwards"][0]["local"] == port
    assert "already in use" in complaint(tow("forward", "--local", str(port), job, "8124"), 2)
    forwarded.send_signal(signal.SIGINT)
    assert forwarded.wait(timeout=20) == 0
    assert tow.json("forward", "--list")["forwards"] == []
    served.send_signal(signal.SIGINT)


def test_forward_in_the_background_stays_until_it_is_stopped(tow: Tow, job: str) -> None:
    said = tow("forward", "-d", job, "8125").stdout
    port = said.split()[0].rpartition(":")[2]
    assert tow("forward", "--stop", port).returncode == 0
    complaint(tow("forward", "--stop", port), 2)
    tow("forward", "-d", job, "8125")
    tow("stop", job)
    wait_until(lambda: tow.json("forward", "--list")["forwards"] == [], every=0.2)


def test_a_connection_to_a_port_of_a_job_travels_in_one_request(tow: Tow, job: str) -> None:
    served = tow.popen("exec", job, "sh", "-c", SERVE.replace("$PORT", "8127"))
    wanted = b"GET /raw.bin HTTP/1.0\r\n\r\n"

    def said() -> bytes:
        status, answer = ask(tow.home, "POST", f"/v1/jobs/{job}/connect?port=8127", raw=wanted)
        assert status == 200
        return answer if isinstance(answer, bytes) else b""

    assert wait_until(said, every=0.1).endswith(b"\r\n\r\na\0b\xff")
    assert ask(tow.home, "POST", f"/v1/jobs/{job}/connect?port=8127&process=1")[0] == 404
    assert ask(tow.home, "POST", f"/v1/jobs/{job}/connect")[0] == 400
    served.send_signal(signal.SIGINT)


def test_each_process_of_a_job_has_its_files_and_what_it_keeps(tow: Tow, hosts: Hosts) -> None:
    configure(tow, "h1", "h2")
    command = 'echo "kept $PROCESS_INDEX" > $KEEP_DIR/state; echo $PROCESS_INDEX > made'
    assert (
        tow("run", "-c", "lab", "-r", "2:[]", "--no-results", "sh", "-c", command).returncode == 0
    )
    for process in ("0", "1"):
        where = f"/v1/jobs/1/file?process={process}"
        assert ask(tow.home, "GET", f"{where}&path=made") == (200, int(process))
        assert ask(tow.home, "GET", f"{where}&path=state&kept=1")[1] == f"kept {process}\n".encode()
        assert ask(tow.home, "GET", f"{where}&path=state")[0] == 404
    listed = ask(tow.home, "GET", "/v1/jobs/1/files?kept=1")[1]["entries"]
    assert [entry["name"] for entry in listed] == ["state"]
    assert ask(tow.home, "GET", "/v1/jobs/1/files?process=2")[0] == 404


def test_files_of_an_ended_job_are_still_there(tow: Tow, hosts: Hosts, tmp_path: Path) -> None:
    configure(tow, "h1")
    assert tow("run", "-c", "lab", "sh", "-c", "echo made > made; exit 1").returncode == 1
    assert tow("cat", "1", "made").stdout == "made\n"
    assert tow("pull", "last", ".", str(tmp_path / "all")).returncode == 0
    assert (tmp_path / "all" / "made").read_text() == "made\n"


def test_broken_pipe_ends_quietly(tow: Tow, job: str) -> None:
    line = f"{' '.join(tow.program)} exec {job} yes | head -n 1"
    done = subprocess.run(
        ["sh", "-c", line], env=tow.env, cwd=tow.folder, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("y\n", "")
