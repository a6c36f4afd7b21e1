"""A damaged row of the store harms what it is about, is named in words, and harms nothing else."""

import sqlite3
from pathlib import Path

import pytest

from e2e.api import ask
from testbed.tow import Tow

DAMAGES = (b"\xff", b"{}", 5)


def spoil(tow: Tow, change: str, value: object) -> None:
    """While no Engine has it."""
    assert tow("engine", "stop").returncode == 0
    db = sqlite3.connect(tow.home / "store.db")
    with db:
        assert db.execute(change, (value,)).rowcount == 1
    db.close()
    assert tow("run", "true").returncode == 0


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_batch_is_named_and_all_else_goes_on(tow: Tow, damage: object) -> None:
    (tow.folder / "sweep.txt").write_text("echo one\necho two\n")
    assert tow("batch", "sweep.txt").returncode == 0
    spoil(tow, "UPDATE batches SET body=? WHERE name='sweep'", damage)
    for target in ("/v1/batches/sweep", "/v1/named?name=sweep", "/v1/named?name=sweep.1"):
        status, answer = ask(tow.home, "GET", target)
        assert (status, answer["error"]["code"]) == (410, "damaged"), answer
        assert "the record of the batch 'sweep' cannot be read" in answer["error"]["text"]
    for target, body in (("stop", {}), ("retry", {"states": ["failed"]}), ("results", {})):
        assert ask(tow.home, "POST", f"/v1/batches/sweep/{target}", body)[0] == 410
    assert ask(tow.home, "GET", "/v1/jobs/1")[0] == 410
    assert ask(tow.home, "GET", "/v1/batches?all=1")[1]["batches"] == []
    done = tow("batch", "show", "sweep")
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert "the record of the batch 'sweep' cannot be read" in done.stderr
    assert tow("status", "--all").returncode == 0


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_earlier_attempt_does_not_keep_from_the_present_one(
    tow: Tow, tmp_path: Path, damage: object
) -> None:
    script = f"echo ran; [ -e {tmp_path}/well ] || exit 3"
    assert tow("run", "sh", "-c", script).returncode == 3
    (tmp_path / "well").touch()
    assert tow("retry", "1").returncode == 0
    assert tow("attach", "1").returncode == 0
    spoil(tow, "UPDATE attempts SET body=? WHERE job=1", damage)
    for target in ("/v1/jobs/1", "/v1/jobs/1/log", "/v1/jobs/1/why"):
        assert ask(tow.home, "GET", target)[0] == 200
    assert tow("log", "1").stdout == "ran\n"
    assert tow("attach", "1").returncode == 0
    assert tow("gc", "--dry-run").returncode == 0
    assert tow("rm", "1").returncode == 0
