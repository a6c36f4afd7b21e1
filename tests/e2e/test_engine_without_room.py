"""An Engine that cannot write says so at once."""

import contextlib
import sqlite3
import subprocess
from pathlib import Path

import pytest

from testbed.tow import Tow
from testbed.waiting import wait_until
from towline.server import serving


def test_a_damaged_store_is_said_in_words(tow: Tow, tow_home: Path) -> None:
    assert tow("run", "true").returncode == 0
    assert tow("engine", "stop").returncode == 0
    store = tow_home / "store.db"
    with sqlite3.connect(store) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    store.write_bytes(store.read_bytes()[:100] + b"\xff" * 8000)
    done = tow("status")
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "store.db" in done.stderr and "move it away" in done.stderr


def test_a_log_that_has_become_long_is_put_aside(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_bytes(b"x" * (serving._MOST_LOG + 1))
    serving.trim_log(str(log))
    assert log.stat().st_size == 0
    assert (tmp_path / "engine.log.1").stat().st_size > serving._MOST_LOG
    log.write_text("new")
    serving.trim_log(str(log))
    assert log.read_text() == "new"


@pytest.mark.real
def test_with_a_full_disk_a_job_is_refused_at_once_and_a_running_one_keeps_its_end(
    tow: Tow, tow_home: Path
) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", tow_home], check=True)
    try:
        tow_home.chmod(0o700)
        assert tow("run", "true").returncode == 0
        go = tow.folder / "go"
        words = f"while ! [ -e {go} ]; do sleep 0.1; done; exit 3"
        assert tow("run", "-d", "sh", "-c", words).returncode == 0
        wait_until(lambda: tow.json("show", "2")["state"] == "running")
        filled = tow_home / "fill"
        with contextlib.suppress(OSError), filled.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(65536))
        done = tow("run", "true")
        assert done.returncode == 1
        assert "cannot write to" in done.stderr and "full" in done.stderr
        go.touch()
        filled.unlink()
        wait_until(lambda: tow.json("show", "2")["exit_code"] == 3)
        assert tow("run", "true").returncode == 0
    finally:
        tow("engine", "stop")
        subprocess.run(["umount", "-l", tow_home], check=True)
