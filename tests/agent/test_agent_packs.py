"""Many contents of one message lie together in one file; half a content waits for its rest."""

import fcntl
import os
from pathlib import Path

import pytest

from towline.agent.remote.content.blobs import Blobs
from towline.agent.remote.home import Home

from .conftest import NewAgent
from .driver import AgentError, Driver
from .test_agent_differences import digest, give, id_of, refusal
from .test_agent_pythons import python  # noqa: F401
from .test_agent_sweeping import make_old, sweep

COUNT = 40


def contents(count: int = COUNT, word: bytes = b"content") -> list[bytes]:
    return [b"%s %d\n" % (word, number) * number for number in range(count)]


def files(root: Path, ending: str) -> list[Path]:
    return sorted((root / "blobs" / "packs").glob(f"*{ending}"))


def snapshot(agent: Driver, names: list[str]) -> str:
    entries = sorted([f"{number % 5}/{number}", "f", name] for number, name in enumerate(names))
    agent.call("snapshot", snapshot=id_of(entries), entries=entries)
    return id_of(entries)


def check_tree(agent: Driver, key: str, name: str, all_contents: list[bytes]) -> None:
    assert agent.run(key, "true", snapshot=name)["code"] == 0
    for number, content in enumerate(all_contents):
        path = agent.root / "jobs" / key / "src" / f"{number % 5}/{number}"
        assert path.read_bytes() == content


def test_a_tree_is_made_from_packs(new_agent: NewAgent, python: str) -> None:  # noqa: F811
    agent = new_agent(python=python)
    names = give(agent, *contents())
    assert len(files(agent.root, ".pack")) == len(files(agent.root, ".index")) == 1
    assert agent.call("missing", hashes=[*names, digest(b"no")])["missing"] == [digest(b"no")]
    name = snapshot(agent, names)
    check_tree(agent, "a", name, contents())
    for path in files(agent.root, ""):
        assert path.stat().st_mode & 0o777 == 0o600


def test_further_messages_go_into_the_same_pack(agent: Driver, root: Path) -> None:
    names = give(agent, *contents()) + give(agent, *contents(word=b"more"), packed=True)
    assert len(files(root, ".pack")) == 1
    check_tree(agent, "a", snapshot(agent, names), contents() + contents(word=b"more"))


def test_what_changes_in_a_tree_from_a_pack_is_noticed(agent: Driver, root: Path) -> None:
    name = snapshot(agent, give(agent, *contents()))
    agent.run("a", "sh", "-c", "touch 1/1; echo changed > 2/2; rm 3/3", snapshot=name)
    assert [file["name"] for file in agent.call("changed", key="a")["files"]] == ["2/2"]
    check_tree(agent, "b", name, contents())


def test_of_a_pack_with_a_false_content_nothing_is_kept(agent: Driver, root: Path) -> None:
    good = contents()
    named = [[digest(content), len(content)] for content in good]
    body = b"".join(good)
    assert refusal(agent, "blobs", body[:-1] + b"X", contents=named) == "corrupt"
    assert refusal(agent, "blobs", body, contents=[*named, ["../x", 0]]) == "bad_hash"
    odd = [*named[:-1], [named[-1][0], named[-1][1] + 1], [digest(b""), -1]]
    assert refusal(agent, "blobs", body, contents=odd) == "corrupt"
    assert len(agent.call("missing", hashes=[name for name, _ in named])["missing"]) == COUNT
    assert files(root, "") == []


def test_an_agent_that_is_killed_leaves_only_whole_contents(
    agent: Driver, new_agent: NewAgent, root: Path
) -> None:
    names = give(agent, *contents())
    agent.kill()
    (index,) = files(root, ".index")
    with index.open("ab") as file:  # as if it had been killed while it wrote
        file.write(b"torn")
    with files(root, ".pack")[0].open("ab") as file:
        file.write(b"torn")
    other = new_agent()
    assert other.call("missing", hashes=names)["missing"] == []
    more = give(other, *contents(word=b"more"))
    assert len(files(root, ".pack")) == 2
    check_tree(other, "a", snapshot(other, names + more), contents() + contents(word=b"more"))


def test_a_pack_without_its_index_is_removed_later(
    agent: Driver, new_agent: NewAgent, root: Path
) -> None:
    give(agent, *contents())
    (pack,) = files(root, ".pack")
    files(root, ".index")[0].unlink()
    new_agent()
    assert pack.exists()
    os.utime(pack, (1.0, 1.0))
    new_agent()
    assert not pack.exists()


def test_a_pack_goes_once_nothing_refers_to_it(agent: Driver, root: Path) -> None:
    name = snapshot(agent, give(agent, *contents()))
    agent.run("e1-1-1-0", "true", snapshot=name)
    make_old(root)
    assert sweep(agent) == (0, 0)
    agent.call("forget", keys=["e1-1-1-0"])
    assert sweep(agent, dry=True) == (1, COUNT)
    assert len(files(root, "")) == 2
    assert sweep(agent) == (1, COUNT)
    assert files(root, "") == []
    # The same connection begins a new pack.
    check_tree(agent, "e1-2-1-0", snapshot(agent, give(agent, *contents())), contents())


def test_a_pack_that_was_asked_for_lately_stays(agent: Driver, root: Path) -> None:
    names = give(agent, *contents())
    make_old(root)
    agent.call("missing", hashes=names[:1])
    assert sweep(agent) == (0, 0)
    assert agent.call("missing", hashes=names)["missing"] == []


def test_what_is_needed_of_a_pack_stays_when_the_rest_goes(
    agent: Driver, new_agent: NewAgent, root: Path
) -> None:
    names = give(agent, *contents())
    other = new_agent()
    name = snapshot(agent, names[: COUNT // 2])
    agent.run("e1-1-1-0", "true", snapshot=name)
    make_old(root)
    (old,) = files(root, ".pack")
    size = old.stat().st_size
    assert sweep(agent) == (0, COUNT - COUNT // 2)
    (new,) = files(root, ".pack")
    assert new != old and new.stat().st_size < size / 2
    check_tree(other, "e1-2-1-0", name, contents(COUNT // 2))
    assert other.call("missing", hashes=names)["missing"] == names[COUNT // 2 :]


def test_a_pack_that_is_mostly_needed_stays_as_it_is(agent: Driver, root: Path) -> None:
    names = give(agent, *contents())
    agent.run("e1-1-1-0", "true", snapshot=snapshot(agent, names[2:]))
    make_old(root)
    before = files(root, "")
    assert sweep(agent) == (0, 0)
    assert files(root, "") == before


def send_half(agent: Driver, data: bytes) -> str:
    name = digest(data)
    agent.call("blob", data[: 1 << 20], hash=name, offset=0, last=False)
    return name


def rest_of(agent: Driver, data: bytes) -> int:
    """Send what is missing; where it began."""
    answer = {"more": True}
    while answer["more"]:
        answer = agent.call("resume", hash=digest(data))
    start = int(answer["size"])
    agent.call("blob", data[start:], hash=digest(data), offset=start, last=True)
    return start


@pytest.fixture
def large() -> bytes:
    return os.urandom(2 << 20)


def test_half_a_content_goes_on_with_the_next_connection(
    agent: Driver, new_agent: NewAgent, root: Path, large: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = send_half(agent, large)
    agent.kill()
    other = new_agent()
    assert other.call("missing", hashes=[name]) == {
        "missing": [name], "begun": {name: 1 << 20}, "re": 1
    }  # fmt: skip
    assert rest_of(other, large) == 1 << 20
    assert (root / "blobs" / name[:2] / name[2:]).read_bytes() == large
    assert not list((root / "blobs" / "partial").iterdir())


def test_half_a_content_of_a_connection_that_hangs_is_taken_over(
    agent: Driver, new_agent: NewAgent, root: Path, large: bytes
) -> None:
    name = send_half(agent, large)
    other = new_agent()
    assert rest_of(other, large) == 1 << 20
    assert (root / "blobs" / name[:2] / name[2:]).read_bytes() == large
    # The first one was only slow.
    agent.call("blob", large[1 << 20 :], hash=name, offset=1 << 20, last=True)
    assert (root / "blobs" / name[:2] / name[2:]).read_bytes() == large
    assert not list((root / "blobs" / "partial").iterdir())


def test_half_a_content_that_was_damaged_is_refused_and_forgotten(
    agent: Driver, new_agent: NewAgent, root: Path, large: bytes
) -> None:
    name = send_half(agent, large)
    agent.kill()
    with (root / "blobs" / "partial" / name).open("r+b") as file:
        file.write(b"damaged")
    other = new_agent()
    with pytest.raises(AgentError) as refused:
        rest_of(other, large)
    assert refused.value.code == "corrupt"
    assert other.call("missing", hashes=[name])["begun"] == {}


def test_a_content_may_begin_again_from_its_start(
    agent: Driver, new_agent: NewAgent, root: Path, large: bytes
) -> None:
    name = send_half(agent, large)
    agent.kill()
    new_agent().call("blob", large, hash=name, offset=0, last=True)
    assert (root / "blobs" / name[:2] / name[2:]).read_bytes() == large


def test_a_content_that_just_arrived_is_not_written_to(
    agent: Driver, new_agent: NewAgent, root: Path, large: bytes
) -> None:
    """Whoever locks what another one completed in the same moment sees that it is in its place."""
    name = send_half(agent, large)
    partial = root / "blobs" / "partial" / name
    with partial.open("rb") as held, pytest.raises(BlockingIOError):
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    rest_of(agent, large)
    assert rest_of(new_agent(), large) == 0
    assert (root / "blobs" / name[:2] / name[2:]).read_bytes() == large


def test_what_another_agent_completes_meanwhile_does_not_keep_an_agent_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(str(tmp_path))
    home.make()
    partial = Path(home.partial) / digest(b"half")
    partial.write_bytes(b"ha")
    with os.scandir(home.partial) as found:
        seen = list(found)
    partial.unlink()
    monkeypatch.setattr("os.scandir", lambda folder: iter(seen))
    assert Blobs(home).lacking([partial.name]) == [partial.name]
