"""One Engine for one folder, also where several machines see it."""

import errno
import fcntl
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from testbed.waiting import wait_until
from towline.config import lock as locking
from towline.config.lock import check_holder, leave, take
from towline.config.paths import Paths
from towline.errors import EngineError

ELSEWHERE = {"host": "ws1", "pid": 7, "boot": "another"}
REFUSED = "an Engine runs on ws1"


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(str(tmp_path), str(tmp_path / "config.toml"), str(tmp_path / "engine.sock"))


def held_by(paths: Paths, holder: Any, touched_s_ago: float = 0.0) -> None:
    Path(paths.lock_file).write_text(holder if isinstance(holder, str) else json.dumps(holder))
    then = os.stat(paths.lock_file).st_mtime - touched_s_ago
    os.utime(paths.lock_file, (then, then))


def test_the_lock_says_who_holds_it_until_it_is_left(paths: Paths) -> None:
    lock = take(paths)
    assert lock is not None
    told = json.loads(Path(paths.lock_file).read_text())
    assert (told["host"], told["pid"]) == (os.uname().nodename, os.getpid())
    check_holder(paths)
    assert take(paths) is None
    leave(lock)
    os.close(lock)
    assert Path(paths.lock_file).read_text() == ""


def is_locked(path: str) -> bool:
    """Asked without trying: whoever tries has it for a moment."""
    if not os.path.exists(path):
        return False
    return f":{os.stat(path).st_ino} " in Path("/proc/locks").read_text()


def test_the_next_one_takes_the_lock_the_moment_the_last_that_left_is_gone(paths: Paths) -> None:
    last = take(paths)
    assert last is not None
    leave(last)
    with ThreadPoolExecutor(1) as pool:
        taking = pool.submit(take, paths)
        wait_until(lambda: is_locked(f"{paths.lock_file}.next"))
        # One is enough.
        wait_until(lambda: take(paths) is None)
        assert not taking.done()
        os.close(last)
        lock = taking.result(timeout=10)
    assert lock is not None
    assert json.loads(Path(paths.lock_file).read_text())["pid"] == os.getpid()
    os.close(lock)


def test_an_engine_elsewhere_is_named_at_once_where_locks_reach_that_far(paths: Paths) -> None:
    held_by(paths, ELSEWHERE, touched_s_ago=9999)
    with open(paths.lock_file) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        for ask in (check_holder, take):
            with pytest.raises(EngineError, match=REFUSED) as refused:
                ask(paths)
            assert "set TOWLINE_HOME to a folder of this machine" in refused.value.hint


def test_where_locks_do_not_reach_an_engine_that_lives_is_left_alone(paths: Paths) -> None:
    held_by(paths, ELSEWHERE)
    for ask in (check_holder, take):
        with pytest.raises(EngineError, match=REFUSED):
            ask(paths)
    assert json.loads(Path(paths.lock_file).read_text()) == ELSEWHERE
    assert os.listdir(os.path.dirname(paths.lock_file)) == ["engine.lock"]


def test_an_engine_elsewhere_that_is_gone_is_no_hindrance(paths: Paths) -> None:
    held_by(paths, ELSEWHERE, touched_s_ago=9999)
    check_holder(paths)
    lock = take(paths)
    assert lock is not None
    os.close(lock)


@pytest.mark.parametrize("holder", ["", "[]", "no json", "{}", '{"host": 0}'])
def test_a_lock_without_a_holder_is_free(paths: Paths, holder: str) -> None:
    held_by(paths, holder)
    check_holder(paths)
    lock = take(paths)
    assert lock is not None
    os.close(lock)


@pytest.mark.parametrize("same", ["host", "boot"])
def test_this_machine_after_a_restart_or_with_a_new_name_is_not_elsewhere(
    paths: Paths, same: str
) -> None:
    held_by(paths, {**ELSEWHERE, same: locking._here()[same]})
    check_holder(paths)


def test_a_file_system_without_locks_is_a_clear_error(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(file: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(EngineError, match=r"cannot lock .*engine.lock: No locks available"):
        take(paths)
