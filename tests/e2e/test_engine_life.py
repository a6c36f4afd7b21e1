"""The Engine comes and goes by itself; whoever uses it need not notice."""

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import towline
from e2e.engines import engine_pid, engines, kill_engine, serves
from e2e.jobs import show, submit, wait_for
from testbed.leftovers import stop_all
from testbed.tow import Tow
from testbed.waiting import wait_until
from towline.version import __version__

pytestmark = pytest.mark.slow

#: Prints one line for every line of the file `more`; ends once there is `more.end`.
COUNTING = (
    "n=0; while :; do [ -e {more}.end ]; last=$?; "
    "while [ $n -lt $(wc -l < {more}) ]; do n=$((n+1)); echo line $n; done; "
    "[ $last = 0 ] && exit 7; sleep 0.05; done"
)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def running_engine(tow: Tow) -> int:
    assert tow("status").returncode == 0
    pid = engine_pid(tow.home)
    assert wait_until(lambda: serves(tow.home, pid))
    return pid


def test_of_many_engines_started_at_once_one_stays_and_every_command_works(tow: Tow) -> None:
    with ThreadPoolExecutor(6) as pool:
        done = list(pool.map(lambda _: tow("status"), range(6)))
    assert [(d.returncode, d.stderr) for d in done] == [(0, "")] * 6
    wait_until(lambda: engines(tow.home) == [engine_pid(tow.home)])


def test_an_engine_that_is_started_for_a_job_calls_its_machine_before_it_is_asked(
    tow: Tow,
) -> None:
    words = [sys.executable, "-m", "towline.server.laptop", str(tow.folder), ""]
    engine = subprocess.Popen(words, env=tow.env, stdin=subprocess.DEVNULL)
    try:
        wait_until(lambda: serves(tow.home, engine.pid))
        wait_until(
            lambda: _about(tow)["machines"] == {"this": "online"}, on_timeout=lambda: _about(tow)
        )
    finally:
        engine.terminate()
        engine.wait(timeout=20)


def _about(tow: Tow) -> Any:
    return tow.json("engine")


def test_an_engine_with_nothing_to_do_goes_and_leaves_nothing_behind(tow: Tow) -> None:
    (tow.home / "config.toml").write_text("[engine]\nidle_exit_s = 0.2\n")
    assert tow("run", "true").returncode == 0
    wait_until(lambda: not engines(tow.home))
    left = {path.name for path in tow.home.iterdir()}
    assert not left & {"engine.sock", "engine.pid"}
    assert (tow.home / "engine.log").read_text() == ""
    assert tow.json("status")["jobs"][0]["state"] == "done"


def test_an_engine_stays_as_long_as_a_job_runs(tow: Tow, tmp_path: Path) -> None:
    (tow.home / "config.toml").write_text("[engine]\nidle_exit_s = 0.2\n")
    script = f"sleep 2; until [ -e '{tmp_path}/end' ]; do sleep 0.1; done"
    number = submit(tow, "sh", "-c", script)
    pid = engine_pid(tow.home)
    # Ten times as long as it would stay with nothing to do.
    longer = tow.popen("run", "sh", "-c", "sleep 2")
    assert longer.wait(timeout=30) == 0
    assert engine_pid(tow.home) == pid
    (tmp_path / "end").touch()
    wait_until(lambda: not engines(tow.home))
    assert show(tow, number)["state"] == "done"


def test_an_engine_goes_with_its_home_and_leaves_the_next_one_alone(tow: Tow) -> None:
    submit(tow, "sleep", "300")
    first = running_engine(tow)
    away = tow.home.with_name(f"{tow.home.name}-away")
    tow.home.rename(away)
    tow.home.mkdir(mode=0o700)
    try:
        second = running_engine(tow)
        assert second != first
        wait_until(lambda: engines(tow.home) == [second], timeout=30)
        assert tow("status").returncode == 0
        assert running_engine(tow) == second
    finally:
        shutil.rmtree(away)


def test_what_the_engine_makes_is_closed_to_others(tow: Tow) -> None:
    tow.home.rmdir()
    running_engine(tow)
    assert tow("run", "true").returncode == 0
    assert mode(tow.home) == 0o700
    assert mode(tow.home / "engine.sock") == 0o600
    folders = [path for path in tow.home.iterdir() if path.is_dir()]
    assert {path.name: mode(path) for path in folders} == {path.name: 0o700 for path in folders}
    files = [path for path in tow.home.iterdir() if path.is_file()]
    assert {path.name: mode(path) for path in files} == {path.name: 0o600 for path in files}


def test_sigterm_ends_the_engine_cleanly_and_its_jobs_go_on(tow: Tow, tmp_path: Path) -> None:
    number = submit(tow, "sh", "-c", f"until [ -e '{tmp_path}/end' ]; do sleep 0.1; done; exit 5")
    wait_for(tow, number, "running")
    os.kill(engine_pid(tow.home), signal.SIGTERM)
    wait_until(lambda: not engines(tow.home))
    assert not (tow.home / "engine.sock").exists()
    assert not (tow.home / "engine.pid").exists()
    (tmp_path / "end").touch()
    assert wait_for(tow, number, "failed")["exit_code"] == 5
    assert (tow.home / "engine.log").read_text() == ""


def test_a_home_with_a_long_path_works(tow: Tow, tmp_path: Path) -> None:
    home = tmp_path / ("long" * 30) / ("longer" * 20)
    try:
        done = tow("run", "echo", "fits", env={"TOWLINE_HOME": str(home)})
        assert (done.returncode, done.stdout) == (0, "fits\n"), done.stderr
        assert mode(home) == 0o700
        about = tow("engine", env={"TOWLINE_HOME": str(home)}).stdout
        path = Path(about.rpartition("socket ")[2].strip())
        assert (mode(path), mode(path.parent)) == (0o600, 0o700)
    finally:
        stop_all(home)


def test_a_relative_home_is_one_of_this_folder(tow: Tow) -> None:
    home = tow.folder / "my state"
    try:
        done = tow("run", "--no-results", "sh", "-c", "ls", env={"TOWLINE_HOME": "my state"})
        assert done.returncode == 0, done.stderr
        assert (home / "store.db").exists()
        assert [
            str(job["id"]) for job in tow.json("status", env={"TOWLINE_HOME": str(home)})["jobs"]
        ]
        assert not Path("/my state").exists()
    finally:
        stop_all(home)


def test_a_socket_left_by_a_dead_engine_is_replaced(tow: Tow) -> None:
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(tow.home / "engine.sock"))
    assert tow("status").returncode == 0
    kill_engine(tow.home)
    assert (tow.home / "engine.sock").exists()
    assert tow("status").returncode == 0


def test_a_store_of_a_newer_version_is_refused_and_untouched(tow: Tow) -> None:
    running_engine(tow)
    assert tow("engine", "stop").returncode == 0
    with contextlib.closing(sqlite3.connect(tow.home / "store.db")) as store:
        store.execute("PRAGMA user_version = 999")
    done = tow("status")
    assert done.returncode == 1
    assert "newer Towline" in done.stderr and "upgrade Towline" in done.stderr
    assert "Traceback" not in done.stderr
    with contextlib.closing(sqlite3.connect(tow.home / "store.db")) as store:
        assert store.execute("PRAGMA user_version").fetchone() == (999,)


@pytest.mark.parametrize(
    "damage", [b"this is no database" * 500, b"SQLite format 3\0" + b"x" * 9000]
)
def test_a_damaged_store_is_named_and_kept(tow: Tow, damage: bytes) -> None:
    (tow.home / "store.db").write_bytes(damage)
    done = tow("status")
    assert done.returncode == 1
    assert "store.db" in done.stderr and "move it away" in done.stderr
    assert "Traceback" not in done.stderr
    assert (tow.home / "store.db").read_bytes() == damage


def test_a_followed_job_is_shown_whole_and_once_though_the_engine_is_killed(
    tow: Tow, tmp_path: Path
) -> None:
    more = tmp_path / "more"
    more.write_text("")
    follower = tow.popen("run", "sh", "-c", COUNTING.format(more=more))
    assert follower.stdout
    shown = ""
    for round in range(4):
        more.write_text("\n" * 3 * (round + 1))
        for _ in range(3):
            shown += follower.stdout.readline()
        kill_engine(tow.home)
    Path(f"{more}.end").touch()
    rest, said = follower.communicate(timeout=60)
    assert shown + rest == "".join(f"line {n}\n" for n in range(1, 13)), said
    assert follower.returncode == 7


def another_version(tow: Tow, folder: Path) -> Tow:
    """The `tow` of another version of Towline, in the same home."""
    source = Path(towline.__file__).parent
    shutil.copytree(source, folder / "towline", ignore=shutil.ignore_patterns("__pycache__"))
    version = folder / "towline" / "version.py"
    version.write_text(version.read_text().replace(__version__, "99.0.0"))
    other = Tow(tow.home, Path("/dev/null"), tow.folder)
    other.env["PYTHONPATH"] = str(folder)
    return other


def test_an_upgrade_replaces_the_engine_while_jobs_and_followers_go_on(
    tow: Tow, tmp_path: Path
) -> None:
    more = tmp_path / "more"
    more.write_text("\n")
    follower = tow.popen("run", "sh", "-c", COUNTING.format(more=more))
    assert follower.stdout and follower.stdout.readline() == "line 1\n"
    before = tow.json("engine")
    other = another_version(tow, tmp_path / "newer")
    (running,) = other.json("status")["jobs"]
    after = other.json("engine")
    assert (before["version"], after["version"]) == (__version__, "99.0.0")
    assert before["pid"] != after["pid"]
    assert running["state"] == "running"
    more.write_text("\n\n")
    Path(f"{more}.end").touch()
    rest, said = follower.communicate(timeout=60)
    assert (rest, follower.returncode) == ("line 2\n", 7), said
    wait_until(lambda: len(engines(tow.home)) == 1)


def test_a_forward_is_back_on_its_port_after_the_engine_was_killed(
    tow: Tow, tmp_path: Path
) -> None:
    served = tmp_path / "served"
    serve = (
        "import socket\n"
        "s = socket.create_server(('127.0.0.1', 0))\n"
        f"open({str(served)!r}, 'w').write(str(s.getsockname()[1]) + '\\n')\n"
        "while True:\n    c, _ = s.accept(); c.sendall(b'hello'); c.close()\n"
    )
    number = submit(tow, "python3", "-c", serve)
    wait_until(lambda: served.exists() and served.read_text().endswith("\n"))
    port = served.read_text().strip()
    local = tow.json("forward", "-d", str(number), port)["local"]
    assert _greeting(local) == b"hello"
    kill_engine(tow.home)
    assert tow("status").returncode == 0
    assert _greeting(local) == b"hello"
    assert tow.json("forward", "--list")["forwards"] == [
        {"job": number, "port": int(port), "local": local}
    ]
    assert tow("stop", str(number)).returncode == 0


def _greeting(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        return connection.recv(100)


def test_an_engine_on_another_machine_with_the_same_folder_is_named_at_once(tow: Tow) -> None:
    lock = tow.home / "engine.lock"
    lock.write_text('{"host": "ws1", "pid": 7, "boot": "another"}')
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = tow("status", timeout=20)
    assert done.returncode == 1
    assert done.stderr == (
        "tow: an Engine runs on ws1, with the same folder of state\n"
        "  use tow there, or set TOWLINE_HOME to a folder of this machine\n"
    )
    # It went without a good-bye, and long ago.
    os.utime(lock, (1.0, 1.0))
    assert tow("run", "echo", "here").stdout == "here\n"
