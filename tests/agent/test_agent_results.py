"""What a job made or changed is listed by its supervisor, and nothing the snapshot brought."""

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from .driver import AgentError, Driver
from .test_agent_trees import give, snapshot


def changed(agent: Driver, key: str = "a") -> dict[str, dict[str, Any]]:
    return {entry["name"]: entry for entry in agent.call("changed", key=key)["files"]}


@pytest.fixture
def tree(agent: Driver) -> str:
    """A snapshot with files at the top and in `sub`, and a link."""
    one, two = give(agent, b"one"), give(agent, b"two")
    return snapshot(
        agent,
        ["link", "l", "one"],
        ["one", "f", one],
        ["sub/two", "f", two],
        ["tool", "x", one],
    )


def test_a_job_that_only_reads_made_nothing(agent: Driver, tree: str, root: Path) -> None:
    end = agent.run("a", "sh", "-c", "cat one sub/two > /dev/null", snapshot=tree)
    assert (end["made"], end["out_size"], end["err_size"]) == (0, 0, 0)
    assert changed(agent) == {}


def test_made_and_changed_files_are_listed_with_size_and_mode(agent: Driver, tree: str) -> None:
    script = "printf 12345 > sub/new; chmod 750 sub/new; printf One > one; echo out; echo err >&2"
    end = agent.run("a", "sh", "-c", script, snapshot=tree)
    assert (end["made"], end["out_size"], end["err_size"]) == (2, 4, 4)
    found = changed(agent)
    assert sorted(found) == ["one", "sub/new"]
    assert (found["sub/new"]["size"], found["sub/new"]["mode"]) == (5, 0o750)
    assert found["one"]["kind"] == "file"


@pytest.mark.parametrize(
    "script",
    ["touch one", "printf one > one", "cp -p one x && mv x one", "ln -sfn one link"],
)
def test_what_is_the_same_as_before_is_not_listed(agent: Driver, tree: str, script: str) -> None:
    assert agent.run("a", "sh", "-c", script, snapshot=tree)["made"] == 0
    assert changed(agent) == {}


@pytest.mark.parametrize(
    ("script", "name"),
    [
        ("mv one other", "other"),
        ("chmod 755 one", "one"),
        ("chmod 600 one", "one"),
        ("chmod 644 tool", "tool"),
        ("ln -sfn sub/two link", "link"),
        ("rm one && ln -s sub/two one", "one"),
        ("rm link && printf one > link", "link"),
        ("ln one second", "second"),
        ("ln -s sub folder", "folder"),
    ],
)
def test_moved_replaced_and_linked_files_are_listed(
    agent: Driver, tree: str, script: str, name: str
) -> None:
    assert agent.run("a", "sh", "-c", script, snapshot=tree)["made"] == 1
    assert list(changed(agent)) == [name]


def test_only_the_working_folder_counts(agent: Driver, tree: str) -> None:
    script = "echo 1 > here; echo 2 > ../above; echo 3 > two; echo 4 > $KEEP_DIR/kept"
    agent.run("a", "sh", "-c", script, snapshot=tree, cwd="sub")
    assert sorted(changed(agent)) == ["here", "two"]


def test_what_nobody_wants_is_not_listed(agent: Driver) -> None:
    folders = "__pycache__ .git job_results deep/__pycache__"
    script = f"for d in {folders}; do mkdir -p $d; > $d/x; done; mkfifo pipe; mkdir empty"
    agent.run("a", "sh", "-c", script)
    assert changed(agent) == {}


def test_names_that_are_not_text_are_listed(agent: Driver, root: Path) -> None:
    program = (
        r"import os; [open(name, 'w').close() for name in (b'\xff', b'new\nline', '雪'.encode())]"
    )
    agent.run("a", "python3", "-c", program)
    assert sorted(changed(agent)) == sorted(["\udcff", "new\nline", "雪"])
    header, data = agent.call_blob("get", key="a", path="\udcff", offset=0, limit=10)
    assert (header["eof"], data) == (True, b"")


def test_what_a_running_job_has_made_so_far_is_listed(agent: Driver, root: Path) -> None:
    agent.start("a", "sh", "-c", "echo 1 > first; until [ -e go ]; do sleep 0.05; done; > second")
    agent.wait_for(lambda: "a" in agent.started)
    agent.wait_for(lambda: list(changed(agent)) == ["first"])
    (root / "jobs/a/src/go").touch()
    agent.end_of("a")
    assert sorted(changed(agent)) == ["first", "go", "second"]


def test_the_list_stays_as_it_was_when_the_job_ended(agent: Driver, root: Path) -> None:
    agent.run("a", "sh", "-c", "echo 1 > made")
    (root / "jobs/a/src/later").touch()
    assert list(changed(agent)) == ["made"]


def test_a_job_in_a_folder_of_the_users_own_has_nothing_to_bring(
    agent: Driver, tmp_path: Path
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    end = agent.run("a", "sh", "-c", "echo 1 > made; pwd", folder=str(folder))
    assert (end["code"], end["made"]) == (0, 0)
    assert agent.output("a") == bytes(folder) + b"\n"
    assert (folder / "made").exists()
    assert changed(agent) == {}


def test_links_to_what_is_here_already_are_no_results(
    agent: Driver, tree: str, tmp_path: Path
) -> None:
    (tmp_path / "rows").write_text("1\n")
    near_home = os.path.relpath(tmp_path, os.path.expanduser("~"))
    links = {"data": str(tmp_path), "sub/rows": f"~/{near_home}/rows"}
    script = "cat data/rows sub/rows; echo 2 > data/beside"
    end = agent.run("a", "sh", "-c", script, snapshot=tree, links=links)
    assert (end["code"], end["made"]) == (0, 0), end
    assert agent.output("a") == b"1\n1\n"


def test_a_link_that_cannot_be_made_is_told_as_the_ending(agent: Driver, tree: str) -> None:
    end = agent.run("a", "true", snapshot=tree, links={"data": "/no/such"})
    assert end["cause"] == "snapshot" and "which is not on this machine" in end["text"]
    end = agent.run("b", "true", snapshot=tree, links={"sub": "/tmp"})
    assert end["cause"] == "snapshot" and "both a file that was sent and a link" in end["text"]
    with pytest.raises(AgentError) as refused:
        agent.start("c", "true", links={"../x": "/tmp"})
    assert refused.value.code == "outside"


def test_what_was_kept_is_read_by_itself_and_nothing_beside_it(agent: Driver) -> None:
    agent.run(
        "a", "sh", "-c", "mkdir $KEEP_DIR/d; printf 7 > $KEEP_DIR/d/x; echo 1 > no", cwd="sub"
    )
    files = agent.call("walk", key="a", path="", kept=True)["files"]
    assert [entry["name"] for entry in files] == ["d/x"]
    _, data = agent.call_blob("get", key="a", path="d/x", kept=True, offset=0, limit=9)
    assert data == b"7"
    for path in ("../src/sub/no", "/etc/passwd", "../exit"):
        with pytest.raises(AgentError) as refused:
            agent.call("get", key="a", path=path, kept=True, offset=0, limit=9)
        assert refused.value.code == "outside"


def test_a_job_starts_with_the_snapshot_of_what_was_kept(agent: Driver) -> None:
    kept = snapshot(agent, ["d/x", "x", give(agent, b"7")])
    end = agent.run("a", "sh", "-c", "cat $KEEP_DIR/d/x; test -x $KEEP_DIR/d/x", keep=kept)
    assert (end["code"], end["made"]) == (0, 0)
    assert agent.output("a") == b"7"


def test_every_piece_of_a_file_tells_its_hash(agent: Driver, tree: str) -> None:
    agent.run("a", "sh", "-c", "printf 12345 > new", snapshot=tree)
    for offset, piece in ((0, b"123"), (3, b"45")):
        header, data = agent.call_blob("get", key="a", path="new", offset=offset, limit=3)
        assert data == piece and header["sha256"] == hashlib.sha256(piece).hexdigest()
