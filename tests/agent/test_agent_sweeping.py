"""Job folders are measured, and contents go once nothing refers to them and nobody uses them."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from testbed.waiting import wait_until

from .conftest import NewAgent
from .driver import HEAD, REMOTE, AgentError, Driver
from .test_agent_handing import KEY, hand_over
from .test_agent_pythons import pythons
from .test_agent_trees import digest, give, snapshot

WEEK_S = 7 * 86400


def make_old(root: Path, days: float = 30) -> None:
    """As if nothing of the store had been used for long."""
    then = time.time() - days * 86400
    for folder in ("blobs", "snapshots"):
        for path in (root / folder).rglob("*"):
            if path.is_file():
                os.utime(path, (then, then))


def stored(root: Path) -> set[str]:
    """The contents that are there."""
    shelves = (path for path in (root / "blobs").iterdir() if len(path.name) == 2)
    return {shelf.name + path.name for shelf in shelves for path in shelf.iterdir()}


def packed(**header: Any) -> bytes:
    text = json.dumps(header).encode()
    return HEAD.pack(len(text), 0) + text


def sweep(agent: Driver, **more: Any) -> tuple[int, int]:
    gone = agent.call("sweep", unused_s=WEEK_S, **more)
    return gone["snapshots"], gone["blobs"]


def test_folders_are_measured_by_what_they_take_on_disk(agent: Driver) -> None:
    agent.run("e1-1-1-0", "sh", "-c", "mkdir deep; head -c 300000 /dev/zero > deep/file")
    agent.run("e2-1-1-0", "true")
    agent.start("e1-2-1-0", "sleep", "60")
    agent.wait_for(lambda: "e1-2-1-0" in agent.started)
    found = agent.call("sizes", prefix="e1-")
    ((first, size, ended), (second, _, second_ended)) = found["folders"]
    assert (first, ended, second, second_ended) == ("e1-1-1-0", True, "e1-2-1-0", False)
    assert 300_000 <= size < 500_000
    assert not found["more"]
    agent.call("stop", keys=["e1-2-1-0"], grace_s=0)
    agent.end_of("e1-2-1-0")


def test_many_folders_come_in_parts(agent: Driver, root: Path) -> None:
    for number in range(2500):
        (root / "jobs" / f"e1-{number}-1-0").mkdir()
    first = agent.call("sizes", prefix="e1-")
    rest = agent.call("sizes", prefix="e1-", after=first["folders"][-1][0])
    assert (first["more"], rest["more"]) == (True, False)
    keys = [folder[0] for folder in first["folders"] + rest["folders"]]
    assert keys == sorted(keys) and len(set(keys)) == 2500


def test_sizes_without_an_engine_are_refused(agent: Driver) -> None:
    for prefix in ("", "../", None):
        with pytest.raises(AgentError):
            agent.call("sizes", prefix=prefix)


def test_the_agent_answers_others_while_it_measures(agent: Driver, root: Path) -> None:
    folder = root / "jobs" / "e1-1-1-0"
    folder.mkdir()
    for number in range(20_000):
        (folder / str(number)).touch()
    # In one write, so that the agent has both before it begins.
    agent.send_raw(packed(id=1, op="sizes", prefix="e1-") + packed(id=2, op="observe", keys=["x"]))
    agent.wait_for(lambda: len(agent.frames) == 2)
    assert [header["re"] for header, _ in agent.frames] == [2, 1]
    assert agent.reply(1)[0]["folders"][0][0] == "e1-1-1-0"


def test_what_no_job_folder_refers_to_goes(agent: Driver, root: Path) -> None:
    shared, used, unused = (give(agent, text) for text in (b"shared", b"used", b"unused"))
    kept = snapshot(agent, ["a", "f", shared], ["b", "x", used])
    snapshot(agent, ["a", "f", shared], ["c", "f", unused])
    loose = give(agent, b"never part of a snapshot")
    agent.run("e1-1-1-0", "true", snapshot=kept)
    make_old(root)
    assert sweep(agent) == (1, 2)
    assert stored(root) == {shared, used}
    assert [path.stem for path in (root / "snapshots").iterdir()] == [kept]
    assert loose not in stored(root)


def test_what_a_job_was_given_to_continue_from_stays(agent: Driver, root: Path) -> None:
    kept = snapshot(agent, ["state", "f", give(agent, b"epoch 3")])
    agent.run("e1-1-1-0", "true", keep=kept)
    make_old(root)
    assert sweep(agent) == (0, 0)
    agent.call("forget", keys=["e1-1-1-0"])
    assert sweep(agent) == (1, 1)


def test_what_was_used_lately_stays(agent: Driver, root: Path) -> None:
    snapshot(agent, ["a", "f", give(agent, b"one")])
    make_old(root, days=6)
    assert sweep(agent) == (0, 0)


def test_looking_for_a_snapshot_or_a_content_makes_it_used(agent: Driver, root: Path) -> None:
    asked = snapshot(agent, ["a", "f", give(agent, b"one")])
    content = give(agent, b"two")
    make_old(root)
    agent.call("sweep", unused_s=100 * 86400)  # from now on nothing counts as named before
    agent.call("have_snapshot", snapshot=asked)
    agent.call("missing", hashes=[content, digest(b"not here")])
    assert sweep(agent) == (0, 0)


def test_a_job_that_is_on_its_way_has_its_snapshot(agent: Driver, root: Path) -> None:
    name = snapshot(agent, ["a", "f", give(agent, b"one")])
    agent.call("sweep", unused_s=100 * 86400)
    make_old(root)
    starting = agent.ask(
        "start", jobs=[{"key": "e1-1-1-0", "argv": ["cat", "a"], "snapshot": name}]
    )
    assert sweep(agent) == (0, 0)
    agent.reply(starting)
    assert agent.end_of("e1-1-1-0")["code"] == 0


def test_dry_run_counts_and_removes_nothing(agent: Driver, root: Path) -> None:
    name = snapshot(agent, ["a", "f", give(agent, b"one")])
    agent.run("e1-1-1-0", "true", snapshot=name)
    make_old(root)
    assert sweep(agent, dry=True) == (0, 0)
    assert sweep(agent, dry=True, without=["e1-1-1-0"]) == (1, 1)
    assert len(stored(root)) == 1
    assert agent.run("e1-2-1-0", "cat", "a", snapshot=name)["code"] == 0


def test_jobs_of_every_engine_count(agent: Driver, new_agent: NewAgent, root: Path) -> None:
    name = snapshot(agent, ["a", "f", give(agent, b"one")])
    agent.run("e1-1-1-0", "true", snapshot=name)
    make_old(root)
    assert sweep(new_agent()) == (0, 0)


def test_a_forgotten_job_makes_room_for_good(agent: Driver, root: Path) -> None:
    name = snapshot(agent, ["a", "f", give(agent, b"one")])
    agent.run("e1-1-1-0", "true", snapshot=name)
    make_old(root)
    assert agent.call("forget", keys=["e1-1-1-0"])["forgotten"] == ["e1-1-1-0"]
    assert sweep(agent) == (1, 1)
    assert agent.call("sizes", prefix="e1-")["folders"] == []
    assert not agent.call("have_snapshot", snapshot=name)["have"]
    wait_until(lambda: not list((root / "trash").iterdir()))


def test_a_sweep_without_a_time_is_refused(agent: Driver) -> None:
    for unused_s in (None, -1, "7"):
        with pytest.raises(AgentError):
            agent.call("sweep", unused_s=unused_s)


@pytest.mark.parametrize("python", pythons().values(), ids=pythons().keys())
def test_measuring_and_sweeping_work_on_every_python(
    new_agent: NewAgent, root: Path, python: str
) -> None:
    agent = new_agent(python=python, LC_ALL="C")
    name = snapshot(agent, ["ü\udcff", "f", give(agent, b"one")])
    agent.run("e1-1-1-0", "true", snapshot=name)
    make_old(root)
    assert agent.call("sizes", prefix="e1-")["folders"][0][0] == "e1-1-1-0"
    assert sweep(agent) == (0, 0)
    agent.call("forget", keys=["e1-1-1-0"])
    assert sweep(agent) == (1, 1)


def test_a_difference_to_what_was_swept_away_is_refused(agent: Driver, root: Path) -> None:
    base = snapshot(agent, ["a", "f", give(agent, b"one")])
    agent.call("sweep", unused_s=100 * 86400)
    make_old(root)
    assert sweep(agent) == (1, 1)
    with pytest.raises(AgentError) as refused:
        agent.call("snapshot", snapshot=digest(b""), base=base, entries=[], removed=[])
    assert refused.value.code == "no_base"


def test_what_a_difference_needs_is_in_use(agent: Driver, root: Path) -> None:
    base = snapshot(agent, ["a", "f", give(agent, b"one")])
    again = give(agent, b"two")
    agent.call("sweep", unused_s=100 * 86400)
    make_old(root)
    wrong = {"snapshot": digest(b""), "entries": [["b", "f", again]], "removed": []}
    with pytest.raises(AgentError):
        agent.call("snapshot", base=base, **wrong)
    assert sweep(agent) == (0, 0)


def test_contents_go_earlier_when_they_take_too_much(agent: Driver, root: Path) -> None:
    snapshot(agent, ["a", "f", give(agent, os.urandom(100_000))])
    make_old(root, days=2)
    wish = {"full_s": 3600, "keep": 1_000_000}
    assert sweep(agent, **wish) == (0, 0)
    assert sweep(agent, **{**wish, "keep": 10_000, "dry": True}) == (1, 1)
    assert sweep(agent, **{**wish, "keep": 10_000}) == (1, 1)
    fresh = give(agent, os.urandom(100_000))
    assert sweep(agent, **{**wish, "keep": 0}) == (0, 0)
    assert stored(root) == {fresh}


def test_versions_of_the_agent_that_nobody_starts_go(agent: Driver, root: Path) -> None:
    for name in ("old", "queued", "recent"):
        (root / "agent" / name / "towline_agent").mkdir(parents=True)
        (root / "agent" / name / "towline_agent" / "main.py").write_text("#\n" * 500)
        if name != "recent":
            os.utime(root / "agent" / name, (1.0, 1.0))
    # What waits in a queue is started by the version that handed it over.
    hand_over(agent, "true")
    version = root / "handed" / KEY / "agent"
    assert Path(os.readlink(version)) == REMOTE
    version.unlink()
    version.symlink_to(root / "agent" / "queued")
    assert agent.call("sweep", unused_s=WEEK_S, dry=True)["bytes"] == 1000
    assert agent.call("sweep", unused_s=WEEK_S)["bytes"] == 1000
    assert sorted(path.name for path in (root / "agent").iterdir()) == ["queued", "recent"]
    assert not list((root / "trash").iterdir())
