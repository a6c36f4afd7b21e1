"""Batches as a user runs them, on this machine and on others, whatever is killed meanwhile."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from e2e.engines import kill_engine
from e2e.jobs import complaint, configure, read_line_with
from e2e.person import CTRL_C, Person
from testbed.hosts import Hosts
from testbed.tow import Tow
from testbed.waiting import wait_until


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """A file to which each command adds a line: what ran, and how often."""
    path = tmp_path / "ran"
    path.touch()
    return path


def write(tow: Tow, *lines: str) -> None:
    (tow.folder / "sweep.txt").write_text("\n".join(lines) + "\n")


def shown(tow: Tow, name: str = "sweep") -> dict[str, Any]:
    view: dict[str, Any] = tow.json("batch", "show", name)["batch"]
    return view


def counts(tow: Tow, name: str = "sweep") -> dict[str, int]:
    return {state: number for state, number in shown(tow, name)["counts"].items() if number}


def test_every_line_runs_and_what_it_wrote_comes_home(tow: Tow) -> None:
    write(tow, "# three", "echo one", "echo two; echo oops >&2", "", "exit 3")
    done = tow("batch", "sweep.txt")
    lines = done.stdout.splitlines()
    assert done.returncode == 1
    assert "started 1 line 2 on this: echo one" in lines
    assert "failed 3 line 5 on this (exit code 3): exit 3 · tow log 3" in lines
    assert lines[-1].startswith("✗ batch sweep: 2 done, 1 failed in ")
    home = tow.folder / "job_results"
    assert (home / "sweep.2.out").read_text() == "one\n"
    assert (home / "sweep.3.err").read_text() == "oops\n"
    [row] = tow.json("status")["batches"]
    assert (row["name"], row["count"]) == ("sweep", 3)
    assert tow.json("status")["jobs"] == []
    assert tow("batch", "log", "sweep").stdout == "one\ntwo\n"
    assert tow("batch", "results", "sweep").stdout.startswith("3 of 3 have ended")


def test_output_in_the_order_of_the_lines(tow: Tow) -> None:
    configure(tow, more="[clusters.here]\nmachines = [{ ssh = 'this', cpus = 32 }]\n")
    write(tow, "sleep 0.5; echo 1", "echo 2; echo err >&2", "sleep 0.2; echo 3", "echo 4")
    done = tow("batch", "-c", "here", "--keep-order", "sweep.txt")
    assert (done.returncode, done.stdout) == (0, "1\n2\n3\n4\n")
    assert done.stderr.startswith("err\n✓ batch sweep: 4 done in ")


def test_a_sweep_gives_each_job_its_values_untouched(tow: Tow) -> None:
    show_words = "import sys; print(sys.argv[1:])"
    axes = ["x=a b,$HOME", 'y="1,2",`id`']
    done = tow(
        "batch", "--keep-order", "--matrix", *axes, "--", "python3", "-c", show_words, "{x}{y}"
    )
    assert done.stdout.splitlines() == [
        "['a b1,2']",
        "['a b`id`']",
        "['$HOME1,2']",
        "['$HOME`id`']",
    ]


def test_only_so_many_run_at_a_time(tow: Tow, ran: Path) -> None:
    configure(tow, more="[clusters.here]\nmachines = [{ ssh = 'this', cpus = 32 }]\n")
    # Each sees how many have begun and not ended.
    line = f"echo + >> {ran}; sleep 0.1; grep -c . {ran}; echo - >> {ran}"
    write(tow, *[line] * 6)
    assert tow("batch", "-c", "here", "--max-parallel", "1", "sweep.txt").returncode == 0
    assert ran.read_text().split() == ["+", "-"] * 6


def test_the_first_failure_stops_the_rest(tow: Tow, ran: Path) -> None:
    write(tow, "false", *[f"sleep 60; echo x >> {ran}"] * 5)
    done = tow("batch", "--fail-fast", "sweep.txt")
    assert done.returncode == 1
    assert counts(tow) == {"failed": 1, "stopped": 5}
    assert ran.read_text() == ""


def test_what_cannot_run_anywhere_is_refused_as_a_whole(tow: Tow) -> None:
    write(tow, "true")
    told = complaint(tow("batch", "--gpus", "7", "sweep.txt"), 2)
    assert "no machine of local can ever take it" in told
    assert tow.json("batch") == {"batches": []}


def test_going_on_runs_only_what_is_not_done(tow: Tow, ran: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    quick, slow = f"echo q >> {ran}", f"echo s >> {ran}; test -e {gate} || sleep 60"
    write(tow, quick, slow, f"echo f >> {ran}; exit 1")
    tow("batch", "--max-parallel", "3", "-d", "sweep.txt")
    wait_until(lambda: sorted(ran.read_text().split()) == ["f", "q", "s"], timeout=30)
    assert tow("batch", "stop", "sweep").returncode == 0
    wait_until(lambda: counts(tow) == {"done": 1, "failed": 1, "stopped": 1}, timeout=30)
    gate.touch()
    done = tow("batch", "--resume", "sweep.txt")
    assert done.returncode == 1
    assert "1 done before, 1 job again" in done.stderr
    assert sorted(ran.read_text().split()) == ["f", "q", "s", "s"]
    assert tow("batch", "--rerun-failed", "sweep.txt").returncode == 1
    assert sorted(ran.read_text().split()) == ["f", "f", "q", "s", "s"]
    write(tow, quick, slow)
    assert "has 2 commands" in complaint(tow("batch", "--resume", "sweep.txt"), 2)
    assert tow("batch", "--resume", "--name", "other", "-d", "sweep.txt").stdout == "batch other\n"


def test_the_same_file_again_is_another_batch_unless_it_goes_on(tow: Tow) -> None:
    write(tow, "true")
    assert [tow("batch", "-d", "sweep.txt").stdout for _ in range(2)] == [
        "batch sweep\n",
        "batch sweep-2\n",
    ]
    assert tow("batch", "--resume", "-d", "sweep.txt").stdout == "batch sweep-2\n"
    elsewhere = tow.folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "sweep.txt").write_text("true\n")
    done = tow("batch", "--resume", "-d", "sweep.txt", cwd=elsewhere)
    assert done.stdout == "batch sweep-3\n"


def test_ctrl_c_on_a_terminal_can_stop_the_batch(tow: Tow) -> None:
    write(tow, *["sleep 60"] * 3)
    with Person(tow, "batch", "sweep.txt") as person:
        person.sees("started 1 line 1")
        person.types(CTRL_C)
        person.sees("[s]top it, [k]eep following, [d]etach?")
        person.types("s\n")
        person.sees("■ batch sweep: 3 stopped")
        assert person.leaves() == 130


def test_json_lines_tell_each_event_once(tow: Tow) -> None:
    write(tow, *["true"] * 50)
    done = tow("batch", "--json", "sweep.txt")
    frames = [json.loads(line) for line in done.stdout.splitlines()]
    events = [frame["event"] for frame in frames if "event" in frame]
    assert len({event["seq"] for event in events}) == len(events)
    ended = sorted(event["line"] for event in events if event["state"] == "done")
    assert ended == list(range(1, 51))
    assert frames[-1]["end"]["counts"]["done"] == 50


@pytest.mark.real
def test_lines_are_spread_over_machines(tow: Tow, hosts: Hosts) -> None:
    configure(tow, "h1", "h2", cpus=2)
    write(tow, *["hostname > name; hostname; sleep 0.3"] * 8)
    done = tow("batch", "-c", "lab", "sweep.txt")
    assert done.returncode == 0, done.stdout + done.stderr
    names = {(tow.folder / f"job_results/sweep.{n}/name").read_text() for n in range(1, 9)}
    assert len(names) == 2
    assert "on h1" in done.stdout and "on h2" in done.stdout


@pytest.mark.real
def test_packed_jobs_share_a_gpu(tow: Tow, hosts: Hosts) -> None:
    hosts.set_gpus("h1", [{"name": "NVIDIA GeForce GTX 1070", "memory_total": 8192}])
    configure(tow, "h1")
    # Each waits until all three run at once, on the one GPU there is.
    wait = "touch ~/$RANK_OF; until [ $(ls ~/of.* | wc -l) = 3 ]; do sleep 0.05; done"
    write(tow, *[f"RANK_OF=of.{n}; {wait}; echo $CUDA_VISIBLE_DEVICES" for n in range(3)])
    done = tow("batch", "-c", "lab", "--pack", "3", "--time", "60", "--keep-order", "sweep.txt")
    assert (done.returncode, done.stdout) == (0, "0\n0\n0\n"), done.stderr


@pytest.mark.real
@pytest.mark.slow
def test_a_batch_is_followed_over_a_killed_engine_and_each_line_runs_once(
    tow: Tow, hosts: Hosts
) -> None:
    configure(tow, "h1", "h2", cpus=8)
    write(tow, *[f"echo {n} >> ~/ran; sleep 0.05" for n in range(200)])
    following = tow.popen("batch", "-c", "lab", "sweep.txt")
    read_line_with(following, "done 20 ")
    kill_engine(tow.home)
    read_line_with(following, "done 100 ")
    kill_engine(tow.home)
    rest, _ = following.communicate(timeout=100)
    assert rest.splitlines()[-1].startswith("✓ batch sweep: 200 done"), rest
    assert following.returncode == 0
    on_hosts = "".join((hosts.home(name) / "ran").read_text() for name in ("h1", "h2"))
    assert sorted(map(int, on_hosts.split())) == list(range(200))


def test_a_client_that_was_killed_goes_on_by_resuming(tow: Tow, ran: Path) -> None:
    write(tow, *[f"echo {n} >> {ran}; sleep 0.05" for n in range(30)])
    following = tow.popen("batch", "sweep.txt")
    read_line_with(following, "done 2 ")
    following.send_signal(signal.SIGKILL)
    following.wait(10)
    done = tow("batch", "--resume", "sweep.txt")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].startswith("✓ batch sweep: 30 done")
    assert sorted(map(int, ran.read_text().split())) == list(range(30))


def test_a_pipe_that_closes_leaves_the_batch_running(tow: Tow, ran: Path) -> None:
    write(tow, *[f"sleep 0.1; echo {n} >> {ran}" for n in range(10)])
    words = subprocess.list2cmdline([*tow.program, "batch", "sweep.txt"])
    piped = subprocess.run(
        ["bash", "-c", f"{words} | head -1"],
        cwd=tow.folder,
        env=os.environ | tow.env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert piped.stdout.startswith("started ")
    wait_until(lambda: counts(tow) == {"done": 10}, timeout=60)
