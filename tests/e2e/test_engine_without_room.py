"""An Engine that cannot write says so at once."""

import sqlite3
from pathlib import Path

from testbed.tow import Tow
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
