"""Files of a job can be seen, fetched and put, and nothing outside its folder."""

from pathlib import Path
from typing import Any

import pytest

from .driver import AgentError, Driver


@pytest.fixture
def job(agent: Driver, root: Path) -> Path:
    """An ended job `a` whose working folder is src/sub."""
    script = "mkdir d; printf 12345 > d/f; ln -s d/f link; ln -s /etc out; mkfifo pipe; touch ü"
    assert agent.run("a", "sh", "-c", script, cwd="sub")["code"] == 0
    return root / "jobs/a/src/sub"


def refusal(agent: Driver, op: str, path: str, **fields: Any) -> str:
    with pytest.raises(AgentError) as refused:
        agent.call(op, key="a", path=path, **fields)
    return refused.value.code


def test_listing_shows_names_kinds_and_sizes(agent: Driver, job: Path) -> None:
    entries = {entry["name"]: entry for entry in agent.call("list", key="a", path="")["entries"]}
    assert {name: entry["kind"] for name, entry in entries.items()} == {
        "d": "dir",
        "link": "link",
        "out": "link",
        "pipe": "other",
        "ü": "file",
    }
    inside = agent.call("list", key="a", path="d")["entries"]
    assert [(entry["name"], entry["size"]) for entry in inside] == [("f", 5)]


def test_stat_and_get_follow_links_inside(agent: Driver, job: Path) -> None:
    assert agent.call("stat", key="a", path="link")["size"] == 5
    header, data = agent.call_blob("get", key="a", path="link", offset=1, limit=3)
    assert (header["size"], header["eof"], data) == (5, False, b"234")


def test_walk_names_every_file(agent: Driver, job: Path) -> None:
    files = agent.call("walk", key="a", path="..")["files"]
    assert "sub/d/f" in [entry["name"] for entry in files]


def test_output_of_the_job_is_a_file_too(agent: Driver, job: Path) -> None:
    assert agent.call("stat", key="a", path="../../out")["kind"] == "file"


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../../../b", "out/passwd", "d/../../../../../x", "../../../a2"]
)
def test_paths_that_leave_the_folder_are_refused(agent: Driver, job: Path, path: str) -> None:
    (job.parents[2] / "a2").mkdir()
    for op in ("list", "stat", "get", "walk", "put"):
        assert refusal(agent, op, path) == "outside"


def test_of_many_paths_at_once_those_that_leave_the_folder_are_refused(
    agent: Driver, job: Path
) -> None:
    (job / "leads").symlink_to("/etc/passwd")
    out = ["/etc/passwd", "../../../b", "out/passwd", "d/../../../../../x", "leads", "out"]
    good = ["d/f", "link", "./d/f", "d/../d/f"]
    header, blob = agent.call_blob("get_many", key="a", paths=[*out, *good, "a\0b", "d"])
    told = [entry.get("error", {}).get("code", "") for entry in header["files"]]
    assert told == ["outside"] * 6 + [""] * 4 + ["bad_request", "is_folder"]
    assert blob == b"12345" * 4
    for path in out:
        with pytest.raises(AgentError) as refused:
            agent.call("put_many", b"x", key="a", files=[["d/g", 0, 0o600], [path, 1, 0o600]])
        assert refused.value.code == "outside"


def test_a_list_with_contents_leads_nowhere_else(agent: Driver, job: Path) -> None:
    (job / "leads").symlink_to("/etc/passwd")
    header, blob = agent.call_blob("gather", key="a", path="", of="walk", flow=1, first=True)
    told = [(entry["name"], entry["kind"], entry.get("got")) for entry in header["files"]]
    assert told == [
        ("leads", "link", None),
        ("link", "link", None),
        ("out", "link", None),
        ("pipe", "other", None),
        ("ü", "file", 0),
        ("d/f", "file", 5),
    ]
    assert (blob, header["more"]) == (b"12345", False)
    for path, code in (("out", "outside"), ("nope", "no_such_file"), ("pipe", "denied")):
        assert refusal(agent, "gather", path, of="walk", flow=2, first=True) == code
    # It was told to its end, so that nothing follows.
    assert refusal(agent, "gather", "", of="walk", flow=1) == "bad_request"


def test_of_what_a_job_made_only_what_is_still_there_comes_with_its_contents(
    agent: Driver, job: Path
) -> None:
    """A folder that was replaced by a link after the job had ended leads nowhere."""
    (job / "d/f").unlink()
    (job / "d").rmdir()
    (job / "d").symlink_to("/etc")
    header, blob = agent.call_blob("gather", key="a", of="changed", flow=1, first=True)
    told = {entry["name"]: entry.get("got") for entry in header["files"]}
    assert (told, blob) == ({"d/f": None, "link": None, "out": None, "ü": 0}, b"")


def test_problems_have_names(agent: Driver, job: Path) -> None:
    assert refusal(agent, "get", "nope") == "no_such_file"
    assert refusal(agent, "list", "nope") == "no_such_file"
    assert refusal(agent, "list", "d/f") == "no_such_file"
    assert refusal(agent, "get", "d") == "is_folder"
    assert refusal(agent, "put", "d") == "is_folder"
    assert refusal(agent, "get", "pipe") == "denied"
    assert refusal(agent, "get", "a\0b") == "bad_request"


def test_put_appears_whole_and_with_its_mode(agent: Driver, job: Path) -> None:
    fields = {"key": "a", "path": "new/er/file"}
    agent.call("put", b"abc", offset=0, last=False, **fields)
    assert not (job / "new/er/file").exists()
    agent.call("put", b"def", offset=3, last=True, mode=0o755, **fields)
    assert (job / "new/er/file").read_bytes() == b"abcdef"
    assert (job / "new/er/file").stat().st_mode & 0o777 == 0o755
    assert refusal(agent, "put", "other", offset=7) == "bad_offset"


def test_put_over_a_link_that_leads_outside_is_refused(agent: Driver, job: Path) -> None:
    (job / "evil").symlink_to("/tmp/not-there")
    assert refusal(agent, "put", "evil") == "outside"
    assert not Path("/tmp/not-there").exists()


@pytest.mark.parametrize("key", ["", ".", "..", ".a", "a/b", "../a", "a" * 101, "a\n", 5, None])
def test_keys_that_are_no_names_are_refused(agent: Driver, key: object) -> None:
    for op, fields in (
        ("void", {"keys": [key]}),
        ("list", {"key": key, "path": ""}),
    ):
        with pytest.raises(AgentError) as refused:
            agent.call(op, **fields)
        assert refused.value.code == "bad_key"
    answer = agent.call("start", jobs=[{"key": key, "argv": ["true"]}])
    assert [refusal["code"] for refusal in answer["refused"].values()] == ["bad_key"]
    assert answer["accepted"] == []
