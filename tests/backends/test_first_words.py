"""Meeting a machine takes no longer than connecting: what is asked of it travels behind that."""

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import pytest

from testbed.waiting import wait_until
from towline.agent.link import Link
from towline.backends.machines.driver import Driver
from towline.backends.machines.wanted import WantedProcess
from towline.config.settings import SnapshotSettings
from towline.errors import Unusable
from towline.hosts.local import LocalHost
from towline.snapshot.blobs import BlobStore
from towline.snapshot.take import HashCache, take_snapshot


async def _gone(link: Link) -> None:
    link.close()
    process = link._process
    assert process is not None
    await asyncio.to_thread(wait_until, lambda: process.get_returncode() is not None)


def test_what_is_asked_before_the_greeting_is_answered_also_where_the_agent_has_to_be_sent(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        for is_there in (False, True):
            assert (tmp_path / "root" / "agent").exists() == is_there
            link = await Link.dial(
                LocalHost(), str(tmp_path / "root"), lambda *_: None, lambda _: None
            )
            asked = [link.ask_soon("probe"), link.ask_soon("missing", hashes=["a" * 64])]
            assert not link.hello
            await link.greeted()
            (probed, _), (missing, _) = await asyncio.gather(*asked)
            assert probed["raw"]["meminfo"]
            assert missing["missing"] == ["a" * 64]
            await _gone(link)

    asyncio.run(asyncio.wait_for(scenario(), 30))


class Corked(LocalHost):
    """This machine, whose agent hears nothing on its stdin before there is a file."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file

    def channel(self, boot: str, *arguments: str) -> list[str]:
        waits = '{ until [ -e "$0" ]; do sleep 0.02; done; cat; } | "$@"'
        return ["sh", "-c", waits, str(self.file), *super().channel(boot, *arguments)]


def test_what_is_asked_first_needs_no_second_word_over_ssh(tmp_path: Path) -> None:
    """A server of ssh lets nobody write to a program before that was started."""
    root, word = str(tmp_path / "root"), tmp_path / "word"
    asked: list[asyncio.Future[Any]] = []
    digests = [hashlib.sha256(b"%d" % number).hexdigest() for number in range(1000)]

    async def dialled(size: int) -> Link:
        return await Link.dial(
            Corked(word), root, lambda *_: None, lambda _: None,
            lambda link: asked.append(link.ask_soon("missing", hashes=digests[:size])),
        )  # fmt: skip

    async def scenario() -> None:
        await _gone(await Link.open(LocalHost(), root, lambda *_: None, lambda _: None))
        link = await dialled(1)
        await link.greeted()
        assert (await asked.pop())[0]["missing"] == digests[:1]
        again = link.ask_soon("probe")
        word.touch()
        assert (await again)[0]["raw"]["meminfo"]
        await _gone(link)
        # What is too long for a command follows it.
        link = await dialled(1000)
        assert (await asked.pop())[0]["missing"] == digests
        await _gone(link)

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_what_was_asked_of_a_machine_that_cannot_be_called_is_answered_with_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[asyncio.Future[Any]] = []
    monkeypatch.setattr(LocalHost, "channel", lambda *_: [str(tmp_path / "nothing")])

    async def scenario() -> None:
        with pytest.raises(Unusable, match="cannot run"):
            await Link.dial(
                LocalHost(), str(tmp_path), lambda *_: None, lambda _: None,
                lambda link: asked.append(link.ask_soon("probe")),
            )  # fmt: skip
        with pytest.raises(Unusable, match="cannot run"):
            await asked[0]

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_a_machine_that_has_the_snapshot_is_told_to_start_the_moment_it_has_greeted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    ask_soon, received = Link.ask_soon, Link._received

    def asking(link: Link, op: str, blob: Any = b"", **fields: Any) -> Any:
        said.append(op)
        return ask_soon(link, op, blob, **fields)

    def hearing(link: Link, header: dict[str, Any], blob: bytes) -> None:
        if header.get("event") == "hello":
            said.append("hello")
        received(link, header, blob)

    monkeypatch.setattr(Link, "ask_soon", asking)
    monkeypatch.setattr(Link, "_received", hearing)
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "file").write_text("content")
    blobs = BlobStore(str(tmp_path / "blobs"))
    snapshot = take_snapshot(str(tmp_path / "project"), SnapshotSettings(), HashCache(), blobs).id

    def a_driver(probes: list[Any]) -> Driver:
        return Driver(
            LocalHost(), str(tmp_path / "root"), blobs, lambda fact: None, lambda wanted: None,
            lambda driver, raw: probes.append(raw), 60.0, 60.0,
        )  # fmt: skip

    async def scenario() -> None:
        for is_there in (False, True):
            said.clear()
            probes: list[Any] = []
            driver = a_driver(probes)
            driver.expect(snapshot)
            link = await driver.reach()
            assert probes
            wanted = WantedProcess(
                "e-1-1-0", 1, 1, 0, order=lambda: AN_ORDER, snapshots=(snapshot,)
            )
            driver.want(wanted)
            while "start" not in said:
                await asyncio.sleep(0.01)
            meeting, starting = said[: said.index("hello")], said[said.index("hello") + 1 :]
            assert meeting == ["probe", "watch", "have_snapshot"]
            # What it lacks is sent first; then nothing is asked any more.
            assert (starting == ["start"]) == is_there
            await driver.close()
            await _gone(link)

    asyncio.run(asyncio.wait_for(scenario(), 30))


AN_ORDER: dict[str, Any] = {
    "key": "e-1-1-0", "argv": ["true"], "env": {}, "environ": None, "cwd": "", "snapshot": "",
    "setup": "", "time_s": None, "grace_s": 1.0, "hold": False, "links": {}, "keep": "",
    "folder": "", "claim": None, "services": [],
}  # fmt: skip
