"""What a snapshot needs goes to a machine once, be it ahead of it or after an interruption."""

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.waiting import wait_until
from towline.agent.link import Link
from towline.backends.staging.eager import EagerUpload
from towline.backends.staging.stage import Sending, stage
from towline.config.settings import SnapshotSettings
from towline.errors import AgentError
from towline.hosts.local import LocalHost
from towline.snapshot.blobs import BlobStore
from towline.snapshot.take import HashCache, Snapshot, take_snapshot

MB = 1 << 20


class Lab:
    """A folder, a store, and an agent on this machine that counts what it is sent."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "project"
        self.folder.mkdir()
        self.root = tmp_path / "root"
        self.store = BlobStore(str(tmp_path / "blobs"))
        self.sent: list[tuple[str, int]] = []

    async def open(self) -> Link:
        link = await Link.open(LocalHost(), str(self.root), lambda *_: None, lambda _: None)
        real = link.ask_soon

        def ask_soon(op: str, blob: Any = b"", **fields: Any) -> Any:
            self.sent.append((op, len(blob)))
            return real(op, blob, **fields)

        link.ask_soon = ask_soon  # type: ignore[method-assign]
        return link

    async def leave(self, link: Link) -> None:
        link.close()
        process = link._process
        assert process is not None
        await asyncio.to_thread(wait_until, lambda: process.get_returncode() is not None)

    def take(self, *offer: Any) -> Snapshot:
        return take_snapshot(str(self.folder), SnapshotSettings(), HashCache(), self.store, *offer)

    def bytes_sent(self) -> int:
        return sum(size for op, size in self.sent if op in ("blob", "blobs"))

    def there(self, snapshot: Snapshot) -> bool:
        return (self.root / "snapshots" / f"{snapshot.id}.json").exists()


Scenario = Callable[[Lab], Awaitable[None]]


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Scenario], None]:
    return lambda scenario: asyncio.run(scenario(Lab(tmp_path)))  # type: ignore[arg-type]


def fill(folder: Path, count: int = 300, size: int = 20_000) -> None:
    for number in range(count):
        (folder / f"file{number}").write_bytes(os.urandom(size))


def test_contents_travel_while_the_snapshot_is_taken(play: Callable[[Scenario], None]) -> None:
    async def scenario(lab: Lab) -> None:
        fill(lab.folder)
        (lab.folder / "large").write_bytes(os.urandom(3 * MB))
        link = await lab.open()
        try:
            ahead = EagerUpload(link)
            snapshot = await asyncio.to_thread(lab.take, ahead.offer)
            await stage(link, lab.store, snapshot.id)
            assert lab.there(snapshot)
            assert lab.bytes_sent() == snapshot.bytes
            answer, _ = await link.ask("missing", hashes=list(snapshot.sizes))
            assert answer["missing"] == []
        finally:
            await lab.leave(link)

    play(scenario)


def test_what_the_machine_has_does_not_travel_ahead(play: Callable[[Scenario], None]) -> None:
    async def scenario(lab: Lab) -> None:
        fill(lab.folder)
        link = await lab.open()
        try:
            await stage(link, lab.store, lab.take().id)
            lab.sent.clear()
            snapshot = await asyncio.to_thread(lab.take, EagerUpload(link).offer)
            await stage(link, lab.store, snapshot.id)
            assert lab.bytes_sent() == 0
        finally:
            await lab.leave(link)

    play(scenario)


def test_a_connection_that_breaks_meanwhile_does_not_harm_the_snapshot(
    play: Callable[[Scenario], None],
) -> None:
    async def scenario(lab: Lab) -> None:
        fill(lab.folder)
        link = await lab.open()
        ahead = EagerUpload(link)
        await lab.leave(link)
        snapshot = await asyncio.to_thread(lab.take, ahead.offer)
        other = await lab.open()
        try:
            await stage(other, lab.store, snapshot.id)
            assert lab.there(snapshot)
        finally:
            await lab.leave(other)

    play(scenario)


def test_a_file_that_was_cut_off_goes_on_where_it_was(play: Callable[[Scenario], None]) -> None:
    async def scenario(lab: Lab) -> None:
        content = os.urandom(20 * MB)
        (lab.folder / "large").write_bytes(content)
        snapshot, name = lab.take(), hashlib.sha256(content).hexdigest()
        link = await lab.open()
        await link.ask("blob", content[: 8 * MB], hash=name, offset=0, last=False)
        await lab.leave(link)
        lab.sent.clear()
        other = await lab.open()
        sending = Sending()
        try:
            await stage(other, lab.store, snapshot.id, sending)
            assert lab.bytes_sent() == 12 * MB
            assert (sending.sent, sending.total) == (20 * MB, 20 * MB)
            assert (lab.root / "blobs" / name[:2] / name[2:]).read_bytes() == content
        finally:
            await lab.leave(other)

    play(scenario)


def test_a_cut_off_file_that_was_damaged_is_sent_again(play: Callable[[Scenario], None]) -> None:
    async def scenario(lab: Lab) -> None:
        content = os.urandom(5 * MB)
        (lab.folder / "large").write_bytes(content)
        snapshot, name = lab.take(), hashlib.sha256(content).hexdigest()
        link = await lab.open()
        try:
            await link.ask("blob", bytes(2 * MB), hash=name, offset=0, last=False)
            lab.sent.clear()
            await stage(link, lab.store, snapshot.id)
            assert lab.bytes_sent() == 3 * MB + 5 * MB
            assert lab.there(snapshot)
            with pytest.raises(AgentError):
                await link.ask("blob", b"x", hash=name, offset=7)
        finally:
            await lab.leave(link)

    play(scenario)
