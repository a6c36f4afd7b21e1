"""What ended jobs left behind goes, and nothing else does."""

import os
import re
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from e2e.jobs import complaint, configure, ended, show, submit, wait_for
from testbed.hosts import Hosts
from testbed.tow import Tow
from testbed.waiting import wait_until

MONTH_S = 30 * 86400
#: Where a machine keeps what was sent.
STORED = ("blobs", "snapshots")


def let_a_month_pass(tow: Tow, *roots: Path) -> None:
    """For the jobs that have ended, and for what is stored on machines and here."""
    with closing(sqlite3.connect(tow.home / "store.db", timeout=30)) as db, db:
        db.execute("UPDATE jobs SET ended = ended - ? WHERE ended IS NOT NULL", (MONTH_S,))
    then = time.time() - MONTH_S
    for folder in [tow.home / "blobs", *(root / part for root in roots for part in STORED)]:
        for path in folder.rglob("*"):
            if path.is_file():
                os.utime(path, (then, then))


def folders(root: Path) -> list[str]:
    """The job folders on a machine, without the Engine's and the random part of their names."""
    names = (path.name.partition("-")[2] for path in (root / "jobs").iterdir())
    return sorted(re.sub(r"-[0-9a-f]{8}-", "-", name) for name in names)


def contents(root: Path) -> int:
    return len(list((root / "blobs").glob("??/*")))


def test_nothing_goes_before_its_time(tow: Tow) -> None:
    (tow.folder / "main.sh").write_text("echo made > made")
    assert tow("run", "sh", "main.sh").returncode == 0
    assert tow.json("gc")["machines"][0]["folders"] == 0
    assert tow("gc").stdout.splitlines()[-1] == "nothing went"
    assert len(list((tow.home / "machine" / "jobs").rglob("src/made"))) == 1
    assert folders(tow.home / "machine") == ["1-1-0"]
    assert contents(tow.home / "machine") == 1


def test_an_old_job_goes_from_its_machine_and_stays_remembered(tow: Tow) -> None:
    machine = tow.home / "machine"
    (tow.folder / "main.sh").write_text("echo hello; head -c 2000000 /dev/zero > made")
    assert tow("run", "sh", "main.sh").returncode == 0
    let_a_month_pass(tow, machine)
    planned = tow.json("gc", "--dry-run")
    assert folders(machine) == ["1-1-0"] and contents(machine) == 1
    done = tow.json("gc")
    assert planned["machines"] == done["machines"]
    (told,) = done["machines"]
    assert (told["machine"], told["jobs"], told["folders"], told["snapshots"], told["blobs"]) == (
        "this",
        [1],
        1,
        1,
        1,
    )
    assert told["bytes"] > 2_000_000
    assert folders(machine) == [] and contents(machine) == 0
    assert show(tow, 1)["state"] == "done"
    assert (tow.folder / "job_results" / "1" / "made").stat().st_size == 2_000_000
    for command in (["log"], ["log", "-f"], ["log", "--tail", "2"], ["attach"]):
        told = tow(*command, "1").stderr
        assert "its output is no longer on its machine" in told and "job_results/1" in told
    wait_until(lambda: not list((machine / "trash").iterdir()))


def test_whoever_asks_for_files_that_were_cleaned_up_is_told_what_remains(tow: Tow) -> None:
    (tow.folder / "main.sh").write_text("echo 1 > made")
    assert tow("run", "sh", "main.sh").returncode == 0
    let_a_month_pass(tow, tow.home / "machine")
    tow("gc")
    for words in (["ls", "1"], ["results", "1"], ["cat", "1", "made"], ["exec", "1", "ls"]):
        told = complaint(tow(*words), 2)
        assert "the folder of job 1 was cleaned up on 20" in told
        assert f"{tow.folder}/job_results/1" in told and "tow checkout 1" in told
    assert tow("show", "1").returncode == 0


def test_a_folder_that_somebody_removed_over_there_is_told_in_words(tow: Tow) -> None:
    assert tow("run", "sh", "-c", "echo 1 > made").returncode == 0
    for part in ("jobs", "records"):
        shutil.rmtree(tow.home / "machine" / part)
    for words in (["ls", "1"], ["exec", "1", "ls"], ["results", "1"]):
        told = complaint(tow(*words), 2)
        assert "the folder of job 1 is not on its machine" in told
        assert f"{tow.folder}/job_results/1" in told


def test_an_old_job_can_be_run_again_over_the_same_connection(tow: Tow) -> None:
    machine = tow.home / "machine"
    (tow.folder / "main.sh").write_text("echo hello")
    assert tow("run", "sh", "main.sh").stdout == "hello\n"
    let_a_month_pass(tow, machine)
    tow("gc")
    assert contents(machine) == 0
    assert tow("run", "sh", "main.sh").stdout == "hello\n"
    assert tow("retry", "1").returncode == 0
    assert ended(tow, 1)["state"] == "done"
    assert tow("log", "1").stdout == "hello\n"


def test_what_has_not_ended_or_is_not_home_stays(tow: Tow) -> None:
    machine = tow.home / "machine"
    running = submit(tow, "sleep", "300")
    wait_for(tow, running, "running")
    assert tow("run", "sh", "-c", "echo precious > made").returncode == 0
    with closing(sqlite3.connect(tow.home / "store.db", timeout=30)) as db, db:
        db.execute("UPDATE jobs SET results='failed', results_why='no space left' WHERE id=2")
    let_a_month_pass(tow, machine)
    (tow.home / "config.toml").write_text("[cleanup]\nkeep_mb = 0\n")
    assert tow.json("gc")["machines"][0]["folders"] == 0
    assert folders(machine) == ["1-1-0", "2-1-0"]
    assert tow("stop", str(running)).returncode == 0


def test_people_see_what_would_go_and_what_went(tow: Tow) -> None:
    assert tow("run", "true").returncode == 0
    let_a_month_pass(tow, tow.home / "machine")
    shown = tow("gc", "--dry-run").stdout.splitlines()
    assert shown[0].split() == ["MACHINE", "JOB", "FOLDERS", "SNAPSHOTS", "SIZE"]
    assert shown[1].startswith("this     1 of 1 job")
    assert shown[-1].endswith("would go")
    assert tow("gc").stdout.splitlines()[-1].endswith(" went")
    assert tow("gc").stdout.splitlines()[-1] == "nothing went"


def test_a_wrong_setting_is_told(tow: Tow) -> None:
    assert tow("run", "true").returncode == 0
    (tow.home / "config.toml").write_text("[cleanup]\nafter_day = 3\n")
    assert "did you mean `after_days`" in complaint(tow("gc"), 2)


@pytest.mark.real
def test_machines_are_cleaned_and_a_silent_one_is_named(tow: Tow, hosts: Hosts) -> None:
    (tow.folder / "main.sh").write_text("hostname")
    for host in ("h1", "h2"):
        configure(tow, host)
        assert tow("run", "-c", "lab", "sh", "main.sh").returncode == 0
    configure(tow, "h1", "h2")
    assert len(tow.json("machines")["machines"]) >= 2
    roots = [hosts.home(name) / ".towline" for name in ("h1", "h2")]
    let_a_month_pass(tow, *roots)
    hosts.kill("h2")
    done = tow("gc", "--json", timeout=90)
    assert done.returncode == 1 and '"h2"' in done.stdout
    assert folders(roots[0]) == []
    assert "h2" in tow("gc", timeout=90).stderr
    hosts.boot("h2")
    root = hosts.home("h2") / ".towline"
    assert folders(root) == ["2-1-0"]
    wait_until(lambda: tow("gc", timeout=90).returncode == 0, timeout=60)
    assert folders(root) == []


def room(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_the_room_that_went_is_there_again_for_others(tow: Tow) -> None:
    """Contents that were sent stay for the next jobs: those are what is on the machine then."""
    machine = tow.home / "machine"
    (tow.folder / "input").write_bytes(os.urandom(1_000_000))
    for _ in range(3):
        done = tow("run", "sh", "-c", "cat input input > made")
        assert done.returncode == 0, done.stderr
    # Its agent empties the trash once after it started, whoever left something there.
    (machine / "trash/old").mkdir()
    wait_until(lambda: not (machine / "trash/old").exists())
    before = room(machine)
    told = tow.json("gc", "--all")["machines"][0]
    assert told["bytes"] >= 6_000_000
    wait_until(lambda: not list((machine / "trash").iterdir()))
    assert room(machine / "jobs") == room(machine / "records") == 0
    assert room(machine) <= before - 6_000_000
    (disk,) = tow.json("machines", "--disk")["machines"]
    assert (disk["jobs"], disk["folders"]) == (0, 0)


@pytest.mark.real
def test_what_a_job_forbade_to_look_into_is_told_and_goes_all_the_same(
    tow: Tow, hosts: Hosts
) -> None:
    configure(tow, "h1")
    inner = "mkdir -p shut/in; echo 1 > shut/in/file; chmod 000 shut; echo 2 > open"
    done = tow("run", "-c", "lab", "sh", "-c", f"{inner}; chmod 000 $JOB_DIR; exit 3")
    assert done.returncode == 3, done.stderr
    done = tow("run", "-c", "lab", "sh", "-c", inner)
    assert "left out shut: it leads out of the folder, or cannot be read" in done.stderr
    home = tow.folder / "job_results/2"
    assert [path.name for path in home.iterdir()] == ["open"]
    done = tow("gc", "--all")
    assert done.returncode == 0, done.stderr
    root = hosts.home("h1") / ".towline"
    assert folders(root) == []
    wait_until(lambda: not list((root / "trash").iterdir()))
