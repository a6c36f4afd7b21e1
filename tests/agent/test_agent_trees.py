"""Contents travel by hash, trees are made from them, and nothing leaves its place."""

import hashlib
import json
import os
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import NewAgent
from .driver import AgentError, Driver


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def give(agent: Driver, data: bytes) -> str:
    agent.call("blob", data, hash=digest(data), offset=0, last=True)
    return digest(data)


def snapshot(agent: Driver, *entries: list[str]) -> str:
    text = json.dumps(list(entries), separators=(",", ":"), ensure_ascii=False)
    name = digest(text.encode("utf-8", "surrogateescape"))
    agent.call("snapshot", snapshot=name, entries=list(entries))
    return name


def refusal(agent: Driver, *args: Any, **fields: Any) -> str:
    with pytest.raises(AgentError) as refused:
        agent.call(*args, **fields)
    return refused.value.code


def test_only_what_is_missing_needs_to_travel(agent: Driver) -> None:
    have, lack = give(agent, b"here"), digest(b"not here")
    assert agent.call("missing", hashes=[have, lack])["missing"] == [lack]


def test_content_comes_in_chunks_compressed_or_not(agent: Driver, root: Path) -> None:
    data = os.urandom(1 << 20) + bytes(1 << 20)
    name = digest(data)
    agent.call("blob", data[: 1 << 20], hash=name, offset=0, last=False)
    packed = zlib.compress(data[1 << 20 :])
    agent.call("blob", packed, hash=name, offset=1 << 20, last=True, z=True)
    stored = root / "blobs" / name[:2] / name[2:]
    assert stored.read_bytes() == data
    assert stored.stat().st_mode & 0o777 == 0o600


def test_corrupt_content_is_refused_and_not_kept(agent: Driver, root: Path) -> None:
    name = digest(b"right")
    assert refusal(agent, "blob", b"wrong", hash=name, offset=0, last=True) == "corrupt"
    assert refusal(agent, "blob", b"not zlib", hash=name, offset=0, z=True) == "corrupt"
    assert refusal(agent, "blob", b"x", hash=name, offset=5) == "bad_offset"
    assert refusal(agent, "blob", b"x", hash="../../x", offset=0) == "bad_hash"
    assert agent.call("missing", hashes=[name])["missing"] == [name]
    assert not list((root / "blobs" / "partial").iterdir())


def test_the_tree_is_as_it_was_snapshot(agent: Driver, root: Path) -> None:
    one, two = give(agent, b"one"), give(agent, b"#!/bin/sh\necho ran\n")
    name = snapshot(
        agent,
        ["a/b/one", "f", one],
        ["empty", "d", ""],
        ["link", "l", "a/b"],
        ["run.sh", "x", two],
        ["ü\udcff", "f", one],
    )
    assert agent.call("have_snapshot", snapshot=name)["have"]
    end = agent.run("a", "./run.sh", snapshot=name)
    assert end["code"] == 0
    assert agent.output("a") == b"ran\n"
    source = root / "jobs/a/src"
    assert (source / "link/one").read_bytes() == b"one"
    assert (source / "empty").is_dir()
    assert (bytes(source) + b"/\xc3\xbc\xff") in [entry.path for entry in os.scandir(bytes(source))]
    assert (source / "run.sh").stat().st_mode & 0o777 == 0o755


def test_a_job_cannot_write_into_the_store(agent: Driver) -> None:
    name = snapshot(agent, ["f", "f", give(agent, b"one")])
    agent.run("a", "sh", "-c", "echo changed > f", snapshot=name)
    agent.run("b", "cat", "f", snapshot=name)
    assert agent.output("b") == b"one"


def test_a_snapshot_with_another_id_is_refused(agent: Driver) -> None:
    assert refusal(agent, "snapshot", snapshot=digest(b""), entries=[]) == "corrupt"


@pytest.mark.parametrize("path", ["/x", "../x", "a/../x", "a//b", "", ".", "a/", "x\0"])
def test_snapshot_paths_outside_the_tree_are_refused(agent: Driver, path: str) -> None:
    assert refusal(agent, "snapshot", snapshot=digest(b""), entries=[[path, "d", ""]]) == "outside"


def test_nothing_is_written_through_a_link_of_the_snapshot(agent: Driver, tmp_path: Path) -> None:
    entries = [["l", "l", str(tmp_path)], ["l/evil", "f", give(agent, b"one")]]
    assert refusal(agent, "snapshot", snapshot=digest(b""), entries=entries) == "outside"


def test_a_missing_snapshot_or_content_is_told_as_the_ending(agent: Driver) -> None:
    end = agent.run("a", "true", snapshot=digest(b"no"))
    assert end["cause"] == "absent" and "not on this machine" in end["text"]
    name = snapshot(agent, ["lost.txt", "f", digest(b"never sent")])
    end = agent.run("b", "true", snapshot=name)
    assert end["cause"] == "absent" and "lost.txt" in end["text"]


@pytest.fixture
def small_disk(root: Path) -> Iterator[Path]:
    root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", root], check=True)
    yield root
    subprocess.run(["umount", "-l", root], check=True)


@pytest.mark.real
def test_a_full_disk_is_told_and_loses_no_exit_code(small_disk: Path, new_agent: NewAgent) -> None:
    agent = new_agent()
    name = snapshot(agent, ["big", "f", give(agent, bytes(700_000))])
    agent.start("a", "sh", "-c", "head -c 9000000 /dev/zero; cat > /dev/null; exit 9")
    end = agent.end_of("a")
    assert (end["code"], end["cause"]) == (9, "")
    assert agent.run("b", "true", snapshot=name)["cause"] == "no_space"
    assert agent.call("observe", keys=["a"])["states"]["a"]["ending"]["code"] == 9
