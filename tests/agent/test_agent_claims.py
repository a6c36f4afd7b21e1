"""Claims: what one user's job was granted, every other agent on the machine sees at once."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.waiting import wait_until
from towline.agent.remote.share import grants

from .conftest import processes_of
from .driver import Driver

ANN, BOB = 7711, 7712
#: A claim, as a start order carries it, for a GPU that nobody else shall use.
GPU_0 = {"cpus": 1, "gpus": [0], "reserved": True, "room_mb": [8192]}
#: All is imported first: the user may not be allowed to read this Python.
START = """
import os, pwd, resource, socket, sys, traceback
sys.path.insert(0, {folder!r})
from remote.share import grants
from remote.main import main
grants.BASE = {base!r}
os.setgid({uid}); os.setuid({uid})
main({root!r})
"""
NewUser = Callable[[int], Driver]


@pytest.fixture
def agent_of(base: Path) -> Iterator[NewUser]:
    """Starts an agent as another user, with a root folder of its own each time."""
    drivers: list[Driver] = []

    def start(uid: int) -> Driver:
        root = base / f"root-{uid}-{len(drivers)}"
        root.mkdir()
        os.chown(root, uid, uid)
        drivers.append(Driver(root, code=START, base=str(base), uid=uid))
        return drivers[-1]

    try:
        yield start
        for driver in drivers:
            driver.leave()
            wait_until(lambda driver=driver: not processes_of(driver.root))  # type: ignore[misc]
    finally:
        for driver in drivers:
            for pid in processes_of(driver.root):
                os.kill(pid, signal.SIGKILL)
            driver.kill()


def seen_by(agent: Driver) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = agent.call("probe")["raw"]["claims"]
    return found


def run_long(agent: Driver, key: str, claim: dict[str, Any] | None) -> None:
    agent.start(key, "sleep", "300", claim=claim)
    agent.wait_for(lambda: key in agent.started or key in agent.ended)


def stop(agent: Driver, *keys: str) -> None:
    agent.call("stop", keys=list(keys), grace_s=5)
    agent.end_of(*keys)


def test_others_see_a_claim_while_the_job_lives_and_not_longer(agent_of: NewUser) -> None:
    ann, bob = agent_of(ANN), agent_of(BOB)
    run_long(ann, "e-1-1-0", {"cpus": 2, "mem_mb": 3000, "gpus": [1], "gpu_mem_mb": 500})
    (claim,) = seen_by(bob)
    assert claim["user"] == str(ANN)
    assert not claim["mine"]
    assert (claim["cpus"], claim["mem_mb"], claim["gpus"], claim["gpu_mem_mb"]) == (
        2,
        3000,
        [1],
        500,
    )
    assert claim["use"]["pids"] == [ann.started["e-1-1-0"][0]]
    assert "pid" not in claim
    stop(ann, "e-1-1-0")
    assert seen_by(bob) == []


def test_a_job_with_no_gpu_is_seen_once_it_has_lived_for_a_moment(agent_of: NewUser) -> None:
    ann, bob = agent_of(ANN), agent_of(BOB)
    assert ann.run("e-1-1-0", "true", claim={"cpus": 1})["code"] == 0
    run_long(ann, "e-2-1-0", {"cpus": 1, "exclusive": True})
    wait_until(lambda: [claim["key"] for claim in seen_by(bob)] == ["e-2-1-0"])
    assert seen_by(bob)[0]["exclusive"] is True
    # Its own agent knows of it anyway.
    assert seen_by(ann) == []
    stop(ann, "e-2-1-0")


def test_an_order_without_a_claim_claims_nothing(agent_of: NewUser, base: Path) -> None:
    ann = agent_of(ANN)
    run_long(ann, "e-1-1-0", None)
    assert list(base.glob(f"{grants.PREFIX}*")) == []
    stop(ann, "e-1-1-0")


def test_a_gpu_reserved_by_another_user_is_refused_as_void_and_the_claim_told_first(
    agent_of: NewUser,
) -> None:
    ann, bob = agent_of(ANN), agent_of(BOB)
    assert seen_by(bob) == []
    run_long(ann, "e-1-1-0", GPU_0)
    bob.start("f-1-1-0", "touch", "began", claim={"cpus": 1, "gpus": [0], "gpu_mem_mb": 10})
    end = bob.end_of("f-1-1-0")
    assert end["cause"] == "void"
    assert end["text"] == f"GPU 0 was given to a job of {ANN} meanwhile"
    assert "f-1-1-0" not in bob.started
    told, _ = bob.wait_for(lambda: bob.pop(lambda header: header.get("event") == "probe"))
    assert [claim["key"] for claim in told["raw"]["claims"]] == ["e-1-1-0"]
    stop(ann, "e-1-1-0")
    assert bob.run("f-1-2-0", "true", claim=GPU_0)["code"] == 0


def test_two_engines_of_one_user_are_kept_apart_like_two_users(agent_of: NewUser) -> None:
    laptop, desktop = agent_of(ANN), agent_of(ANN)
    run_long(laptop, "e-1-1-0", GPU_0)
    assert [(claim["key"], claim["mine"]) for claim in seen_by(desktop)] == [("e-1-1-0", True)]
    assert desktop.run("f-1-1-0", "true", claim=GPU_0)["cause"] == "void"
    stop(laptop, "e-1-1-0")


def test_a_gpu_is_shared_until_its_memory_is_granted(agent_of: NewUser) -> None:
    ann, bob = agent_of(ANN), agent_of(BOB)
    part = {"cpus": 1, "gpus": [0], "gpu_mem_mb": 3000, "room_mb": [8192]}
    run_long(ann, "e-1-1-0", part)
    run_long(bob, "f-1-1-0", part)
    assert "f-1-1-0" in bob.started
    end = ann.run("e-2-1-0", "true", claim=part)
    assert end["cause"] == "void"
    assert "memory of GPU 0" in end["text"]
    assert ann.run("e-3-1-0", "true", claim=GPU_0)["cause"] == "void"
    assert ann.run("e-4-1-0", "true", claim={**part, "gpus": [1]})["code"] == 0
    stop(ann, "e-1-1-0")
    stop(bob, "f-1-1-0")


def test_of_many_that_want_one_gpu_at_once_exactly_one_gets_it(agent_of: NewUser) -> None:
    agents = [agent_of(uid) for uid in (ANN, BOB, ANN)]
    for number, agent in enumerate(agents):
        jobs = [
            {"key": f"e{number}-{job}-1-0", "argv": ["sleep", "300"], "claim": GPU_0}
            for job in range(4)
        ]
        agent.ask("start", jobs=jobs)
    for agent in agents:
        agent.wait_for(lambda agent=agent: len(agent.started) + len(agent.ended) == 4)
    running = [(agent, key) for agent in agents for key in agent.started]
    assert len(running) == 1
    assert {end["cause"] for agent in agents for end in agent.ended.values()} == {"void"}
    stop(running[0][0], running[0][1])


def test_nobody_gets_a_gpu_twice_while_someone_sits_on_the_lock(
    agent_of: NewUser, base: Path
) -> None:
    ann, bob = agent_of(ANN), agent_of(BOB)
    lock = os.open(base, os.O_RDONLY)
    try:
        grants.fcntl.flock(lock, grants.fcntl.LOCK_EX)
        run_long(ann, "e-1-1-0", GPU_0)
        assert "e-1-1-0" in ann.started
        assert bob.run("f-1-1-0", "true", claim=GPU_0)["cause"] == "void"
    finally:
        os.close(lock)
    stop(ann, "e-1-1-0")


def test_a_claim_is_over_when_its_supervisor_was_killed_with_its_job(agent_of: NewUser) -> None:
    ann, bob = agent_of(ANN), agent_of(BOB)
    run_long(ann, "e-1-1-0", GPU_0)
    pid = ann.started["e-1-1-0"][0]
    for victim in (ann.process.pid, parent_of(pid), pid):
        os.kill(victim, signal.SIGKILL)
    wait_until(lambda: seen_by(bob) == [])
    assert bob.run("f-1-1-0", "true", claim=GPU_0)["code"] == 0


def test_a_job_that_lost_its_supervisor_keeps_its_gpu(agent_of: NewUser) -> None:
    ann, bob = agent_of(ANN), agent_of(BOB)
    run_long(ann, "e-1-1-0", GPU_0)
    pid = ann.started["e-1-1-0"][0]
    # Nobody who could hold its claim is left.
    for victim in (ann.process.pid, parent_of(pid)):
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda victim=victim: not lives(victim))  # type: ignore[misc]
    (claim,) = seen_by(bob)
    assert claim["use"]["pids"] == [pid]
    assert bob.run("f-1-1-0", "true", claim=GPU_0)["cause"] == "void"
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: seen_by(bob) == [])


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize("squat", ["folder", "file", "link"])
def test_nobody_hides_the_claims_of_another_by_taking_the_name_of_their_folder(
    agent_of: NewUser, base: Path, squat: str
) -> None:
    ann, bob = agent_of(ANN), agent_of(BOB)
    own = base / f"{grants.PREFIX}{ANN}"
    assert ann.call("probe")["raw"]["in_the_way"] is None
    if squat == "folder":
        own.mkdir()
    elif squat == "file":
        own.touch()
    else:
        own.symlink_to(base)
    os.chown(own, BOB, BOB, follow_symlinks=False)
    run_long(ann, "e-1-1-0", GPU_0)
    assert [(claim["user"], claim["key"]) for claim in seen_by(bob)] == [(str(ANN), "e-1-1-0")]
    assert bob.run("f-1-1-0", "true", claim=GPU_0)["cause"] == "void"
    # Her next job, and her other Engine, use the same folder.
    other = agent_of(ANN)
    run_long(ann, "e-2-1-0", {"cpus": 1, "gpus": [1]})
    run_long(other, "g-1-1-0", {"cpus": 1, "gpus": [2]})
    (folder,) = base.glob(f"{grants.PREFIX}{ANN}-*")
    assert len(list(folder.iterdir())) == 3
    told = {"path": str(own), "user": str(BOB)}
    assert ann.call("probe")["raw"]["in_the_way"] == told
    assert bob.call("probe")["raw"]["in_the_way"] is None
    stop(ann, "e-1-1-0", "e-2-1-0")
    stop(other, "g-1-1-0")
    assert seen_by(bob) == []


def test_the_command_does_not_inherit_the_claim(agent_of: NewUser) -> None:
    ann = agent_of(ANN)
    ann.run("e-1-1-0", "ls", "-l", "/proc/self/fd", claim=GPU_0)
    assert grants.PREFIX.encode() not in ann.output("e-1-1-0")


def test_a_wrong_claim_in_an_order_is_refused(agent_of: NewUser) -> None:
    ann = agent_of(ANN)
    for claim in ({"cpus": -1}, {"gpus": ["0"]}, {"room_mb": 1}, {"gpus": [0], "room_mb": ["x"]}):
        with pytest.raises(Exception, match="job e-1-1-0"):
            ann.start("e-1-1-0", "true", claim=claim)
