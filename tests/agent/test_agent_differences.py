"""A snapshot may come as its difference from another, and many contents in one message."""

import hashlib
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from .conftest import NewAgent
from .driver import AgentError, Driver
from .test_agent_pythons import python  # noqa: F401

MANY = 900


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def id_of(entries: list[list[str]]) -> str:
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False)
    return digest(text.encode("utf-8", "surrogateescape"))


def give(agent: Driver, *contents: bytes, packed: bool = False) -> list[str]:
    body = b"".join(contents)
    names = [[digest(content), len(content)] for content in contents]
    agent.call("blobs", zlib.compress(body) if packed else body, contents=names, z=packed)
    return [name for name, _ in names]


def refusal(agent: Driver, op: str, blob: bytes = b"", **fields: Any) -> str:
    with pytest.raises(AgentError) as refused:
        agent.call(op, blob, **fields)
    return refused.value.code


def test_many_contents_come_in_one_message(agent: Driver) -> None:
    names = give(agent, b"one", b"", b"three") + give(agent, b"four" * 1000, packed=True)
    assert agent.call("missing", hashes=names)["missing"] == []


def test_of_a_bad_message_nothing_false_is_kept(agent: Driver, root: Path) -> None:
    good, bad = digest(b"good"), digest(b"bad")
    contents = [[good, 4], [bad, 3]]
    assert refusal(agent, "blobs", b"goodBAD", contents=contents) == "corrupt"
    assert refusal(agent, "blobs", b"good", contents=contents) == "corrupt"
    assert refusal(agent, "blobs", b"x", contents=[["../x", 1]]) == "bad_hash"
    assert refusal(agent, "blobs", b"good", contents=[[good, 5], [bad, -1]]) == "corrupt"
    assert agent.call("missing", hashes=[good, bad])["missing"] == [bad]
    assert not list((root / "blobs" / "partial").iterdir())


def test_a_difference_makes_the_same_tree(new_agent: NewAgent, root: Path, python: str) -> None:  # noqa: F811
    agent = new_agent(python=python)
    one, two = give(agent, b"one", b"two")
    before = sorted([f"{n % 7}/{n}", "f", one] for n in range(MANY))
    agent.call("snapshot", snapshot=id_of(before), entries=before)
    after = sorted([*before[1:], ["new/file", "x", two], ["-link", "l", "new"]])
    fields = {"entries": [["new/file", "x", two], ["-link", "l", "new"]]}
    removed = [before[0][0]]
    agent.call("snapshot", snapshot=id_of(after), base=id_of(before), removed=removed, **fields)
    assert agent.run("a", "cat", "./-link/file", snapshot=id_of(after))["code"] == 0
    assert agent.output("a") == b"two"
    made = [path for path in (root / "jobs/a/src").rglob("*") if path.is_file()]
    assert len(made) == len(after) - 1
    assert agent.call("have_snapshot", snapshot=id_of(after), recent=True)["recent"][0]


def test_a_difference_that_does_not_fit_is_refused(agent: Driver) -> None:
    (one,) = give(agent, b"one")
    before = [["a", "f", one]]
    agent.call("snapshot", snapshot=id_of(before), entries=before)
    base = {"base": id_of(before), "snapshot": digest(b"")}
    assert refusal(agent, "snapshot", entries=[], removed=["b"], **base) == "bad_request"
    assert refusal(agent, "snapshot", entries=[], removed=[], **base) == "corrupt"
    assert refusal(agent, "snapshot", entries=[["a/b", "d", ""]], removed=[], **base) == "outside"
    assert refusal(agent, "snapshot", entries=[["../b", "d", ""]], removed=[], **base) == "outside"
    lacking = [["b", "f", digest(b"never sent")]]
    assert refusal(agent, "snapshot", entries=lacking, removed=[], **base) == "no_content"
    base["base"] = digest(b"unknown")
    assert refusal(agent, "snapshot", entries=[], removed=[], **base) == "no_base"
