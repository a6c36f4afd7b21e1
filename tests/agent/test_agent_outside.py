"""What a job writes outside of its folder comes home with what it made, whoever is killed."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.waiting import wait_until

from .conftest import NewAgent
from .driver import START, Driver
from .test_agent_faults import UNTIL_TOLD, end_it, supervisor_of
from .test_agent_handing import KEY, run, state

#: Whoever collects shows it, and goes on once the file `go` is there.
HELD_UP = """
import os, sys, time
sys.path.insert(0, {folder!r})
from remote.content import outside
real_collect = outside.Collection.collect
def collect(self):
    open({root!r} + "/collects", "w").write(str(os.getpid()))
    while not os.path.exists({root!r} + "/go"):
        time.sleep(0.02)
    real_collect(self)
outside.Collection.collect = collect
"""
#: Who collects for a job `kN` is killed at the Nth thing that he does, once.
KILLER = """
import os, signal, sys
sys.path.insert(0, {folder!r})
from remote.run import supervisor
left, killed = [-1], [""]
def step():
    left[0] -= 1
    if left[0] == 0 and not os.path.exists(killed[0]):
        os.mkdir(killed[0])
        os.kill(os.getpid(), signal.SIGKILL)
def counted(real):
    def call(*args, **named):
        step()
        try:
            return real(*args, **named)
        finally:
            step()
    return call
real_collect = supervisor.Supervisor.collect
def collect(self, key):
    killed[0] = {root!r} + "/killed-" + key
    left[0] = int(key[1:])
    real_collect(self, key)
    left[0] = -1
supervisor.Supervisor.collect = collect
for name in ("open", "close", "mkdir", "unlink", "rename", "pwrite", "utime", "rmdir", "lstat"):
    setattr(os, name, counted(getattr(os, name)))
"""
#: So many at a time.
MANY = 12
WRITES = 'mkdir -p "$OUT/deep"; echo one > "$OUT/one"; echo two > "$OUT/deep/two"; exit 3'


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def about(out: Path) -> dict[str, Any]:
    return {"env": {"OUT": str(out)}, "links": {"OUT": "$OUT"}}


def collected(agent: Driver, key: str = "a") -> dict[str, Any]:
    """Once it is."""

    def answer() -> dict[str, Any] | None:
        told = agent.call("collect", key=key)
        return told if told["done"] else None

    found: dict[str, Any] = wait_until(answer)
    return found


def made(agent: Driver, key: str = "a") -> list[str]:
    return sorted(entry["name"] for entry in agent.call("changed", key=key)["files"])


def started(agent: Driver, out: Path, script: str) -> None:
    agent.start("a", "sh", "-c", script, **about(out))
    agent.wait_for(lambda: "a" in agent.started)


def test_what_a_job_writes_where_a_variable_leads_is_among_what_it_made(
    agent: Driver, out: Path
) -> None:
    end = agent.run("a", "sh", "-c", WRITES, **about(out))
    assert (end["code"], end["made"]) == (3, -1)
    told = collected(agent)
    assert (told["left_out"], told["count"]) == ([], 0)
    assert set(made(agent)) >= {"OUT/one", "OUT/deep/two"}
    assert agent.call_blob("get", key="a", path="OUT/deep/two")[1] == b"two\n"
    assert (out / "one").exists()


def test_an_end_is_told_before_a_large_folder_is_collected_and_the_next_job_does_not_wait(
    new_agent: NewAgent, root: Path, out: Path
) -> None:
    agent = new_agent(code=HELD_UP + START)
    assert agent.run("a", "sh", "-c", WRITES, **about(out))["code"] == 3
    wait_until((root / "collects").exists)
    assert agent.state("a") == "ended" and not agent.call("collect", key="a")["done"]
    assert agent.run("b", "true")["code"] == 0
    (root / "go").touch()
    assert collected(agent)["count"] == 0
    assert set(made(agent)) >= {"OUT/one", "OUT/deep/two"}


def test_a_supervisor_that_is_killed_while_it_collects_is_followed_by_another(
    new_agent: NewAgent, root: Path, out: Path
) -> None:
    agent = new_agent(code=HELD_UP + START)
    assert agent.run("a", "sh", "-c", WRITES, **about(out))["code"] == 3
    wait_until(lambda: (root / "collects").exists() and (root / "collects").read_text())
    os.kill(int((root / "collects").read_text()), signal.SIGKILL)
    agent.kill()
    # As if it had been copying just then.
    (root / "jobs/a/collected").mkdir()
    (root / "jobs/a/collected/half").write_text("half")
    again = new_agent()
    assert collected(again)["count"] == 0
    assert set(made(again)) >= {"OUT/one", "OUT/deep/two"} and "OUT/half" not in made(again)


def test_whoever_collects_may_be_killed_at_any_point(
    new_agent: NewAgent, root: Path, tmp_path: Path
) -> None:
    agent = new_agent(code=KILLER + START)
    first = 1
    while True:
        keys = [f"k{number}" for number in range(first, first + MANY)]
        for key in keys:
            agent.start(key, "sh", "-c", WRITES, **about(tmp_path / key))
        agent.end_of(*keys)
        for key in keys:
            assert agent.ended[key]["code"] == 3
            assert collected(agent, key)["count"] == 0
            assert made(agent, key) == ["OUT/deep/two", "OUT/one"], key
            assert not (root / f"jobs/{key}/collected").exists()
        if not all((root / f"killed-{key}").exists() for key in keys):
            break
        first += MANY
    assert first > MANY


@pytest.mark.parametrize("stays", ["its agent stays", "its agent leaves", "its agent is killed"])
def test_what_a_job_wrote_is_collected_though_its_supervisor_was_killed(
    new_agent: NewAgent, root: Path, out: Path, stays: str
) -> None:
    agent = new_agent()
    started(agent, out, UNTIL_TOLD.replace("exit 5", WRITES))
    os.kill(supervisor_of(agent, "a"), signal.SIGKILL)
    wait_until(lambda: supervisor_of(agent, "a") == agent.process.pid)
    if stays == "its agent leaves":
        agent.stdin.close()
        guardian = Path(f"/proc/{agent.process.pid}/cmdline")
        wait_until(lambda: b"guardian" in guardian.read_bytes())
    if stays == "its agent is killed":
        agent.kill()
    end_it(root, "a")
    if stays == "its agent stays":
        assert agent.end_of("a")["code"] == 3
        # By itself, before anybody asks.
        wait_until((root / "jobs/a/src/OUT/deep/two").is_file)
        wait_until(lambda: not (root / "jobs/a/src/OUT").is_symlink())
    if stays == "its agent leaves":
        assert agent.process.wait(30) == 0
        assert not (root / "jobs/a/src/OUT").is_symlink()
    if stays != "its agent stays":
        agent = new_agent()
        agent.wait_for(lambda: agent.state("a") == "ended")
    assert collected(agent)["count"] == 0
    assert set(made(agent)) >= {"OUT/one", "OUT/deep/two"}


def test_a_runner_that_is_killed_before_it_collects_leaves_that_to_the_access_node(
    new_agent: NewAgent, root: Path, out: Path
) -> None:
    quick = "from remote.jobs import collecting; collecting.QUIET_S = 0.0\nmain({root!r})"
    agent = new_agent(code=START.replace("main({root!r})", quick))
    script = WRITES.replace("exit 3", 'echo $$ > "$OUT/.pid"; mv "$OUT/.pid" "$OUT/pid"; sleep 60')
    order = {"processes": 1, "parts": [], "ranks": [[0, 0]], "gpus": [0], "given": []}
    specs = [{"key": f"{KEY}-0", "argv": ["sh", "-c", script], **about(out)}]
    agent.call("hand_over", key=KEY, order=order, specs=specs, script="", argv=["echo", "7"])
    runner = run(agent)
    wait_until((out / "pid").exists)
    runner.kill()
    runner.wait()
    os.killpg(int((out / "pid").read_text()), signal.SIGKILL)
    agent.call("conclude_handed", keys=[], lost={f"{KEY}-0": "nobody knows"})
    assert state(agent)["ending"]["cause"] == "lost"
    assert collected(agent, f"{KEY}-0")["count"] == 0
    assert set(made(agent, f"{KEY}-0")) >= {"OUT/one", "OUT/deep/two", "OUT/pid"}


def test_a_job_may_remove_the_link_and_what_was_there_before_comes_home_only_if_it_changed(
    agent: Driver, out: Path
) -> None:
    (out / "older").write_text("not this job's")
    agent.run("before", "true")
    agent.run("a", "sh", "-c", "rm OUT; " + WRITES, **about(out))
    collected(agent)
    assert made(agent) == ["OUT/deep/two", "OUT/one"]


@pytest.fixture
def small_disk(root: Path) -> Iterator[Path]:
    root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", root], check=True)
    yield root
    subprocess.run(["umount", "-l", root], check=True)


@pytest.mark.real
def test_what_does_not_fit_on_the_disk_is_named(
    small_disk: Path, new_agent: NewAgent, out: Path
) -> None:
    agent = new_agent()
    script = 'for n in $(seq 30); do head -c 200000 /dev/zero > "$OUT/n$n"; done'
    end = agent.run("a", "sh", "-c", script, **about(out))
    assert (end["code"], end["cause"]) == (0, "")
    told = collected(agent)
    assert told["count"] > len(told["left_out"]) == 10
    assert {why for _, why in told["left_out"]} == {"ENOSPC"}
    came = {name for name in made(agent) if name.startswith("OUT/n")}
    assert len(came) + told["count"] == 30
    assert not came & {name for name, _ in told["left_out"]}
