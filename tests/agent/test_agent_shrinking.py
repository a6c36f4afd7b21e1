"""The folder of a job that has ended shrinks to what the job made."""

from pathlib import Path

from .driver import Driver
from .test_agent_trees import give, snapshot


def left(root: Path, key: str = "a") -> list[str]:
    """Everything in the job's tree, folders included."""
    top = root / "jobs" / key / "src"
    return sorted(str(path.relative_to(top)) for path in top.rglob("*"))


def tree(agent: Driver) -> str:
    one, large = give(agent, b"one"), give(agent, bytes(3_000_000))
    return snapshot(
        agent,
        ["deep/er/large", "f", large],
        ["link", "l", "one"],
        ["one", "f", one],
        ["sub/touched", "f", one],
        ["sub/work/two", "f", one],
        ["tool", "x", one],
    )


def test_what_a_job_made_or_changed_stays_and_what_it_was_sent_goes(
    agent: Driver, root: Path
) -> None:
    script = "echo 2 > one; echo 3 > sub/work/made; touch sub/touched; mkdir empty; echo out"
    agent.run("a", "sh", "-c", script + "; echo 7 > $KEEP_DIR/kept", snapshot=tree(agent))
    assert agent.call("shrink", keys=["a"])["bytes"] >= 3_000_000
    assert left(root) == ["empty", "one", "sub", "sub/work", "sub/work/made"]
    assert (root / "jobs/a/keep/kept").read_text() == "7\n"
    assert agent.output("a") == b"out\n"
    assert [entry["name"] for entry in agent.call("changed", key="a")["files"]] != []
    # Once is enough.
    (root / "jobs/a/src/tool").write_text("one")
    assert agent.call("shrink", keys=["a"])["bytes"] == 0


def test_a_change_outside_the_working_folder_is_the_jobs_own_too(agent: Driver, root: Path) -> None:
    agent.run("a", "sh", "-c", "echo 2 > ../../one", snapshot=tree(agent), cwd="sub/work")
    agent.call("shrink", keys=["a"])
    # The folder that it ran in is still there, for those who look into it.
    assert left(root) == ["one", "sub", "sub/work"]
    assert agent.call("list", key="a", path="")["entries"] == []


def test_what_runs_or_is_worked_in_stays_as_it_is(agent: Driver, root: Path) -> None:
    given = tree(agent)
    agent.start("a", "sh", "-c", "until [ -e go ]; do sleep 0.05; done", snapshot=given)
    agent.wait_for(lambda: "a" in agent.started)
    assert agent.call("shrink", keys=["a", "nobody"])["bytes"] == 0
    beside = ["sh", "-c", "until [ -e on ]; do sleep 0.05; done"]
    agent.call("exec", key="a", new_key="a.x1", argv=beside)
    agent.wait_for(lambda: "a.x1" in agent.started)
    (root / "jobs/a/src/go").touch()
    agent.end_of("a")
    assert agent.call("shrink", keys=["a"])["bytes"] == 0
    assert "one" in left(root)
    (root / "jobs/a/src/on").touch()
    agent.end_of("a.x1")
    assert agent.call("shrink", keys=["a"])["bytes"] > 0
    assert left(root) == ["go", "on"]


def test_a_folder_of_the_users_own_is_never_touched(
    agent: Driver, root: Path, tmp_path: Path
) -> None:
    (tmp_path / "one").write_text("one")
    agent.run("a", "true", snapshot=tree(agent), folder=str(tmp_path))
    agent.call("shrink", keys=["a"])
    assert (tmp_path / "one").read_text() == "one"


def test_it_is_told_how_much_there_is(agent: Driver) -> None:
    before = agent.call("disk")
    agent.run("a", "sh", "-c", "head -c 2000000 /dev/zero > made", snapshot=tree(agent))
    after = agent.call("disk")
    assert after["folders"] == before["folders"] + 1
    assert after["jobs"] - before["jobs"] >= 5_000_000
    assert after["contents"] - before["contents"] >= 3_000_000
    assert after["free"] > 0
