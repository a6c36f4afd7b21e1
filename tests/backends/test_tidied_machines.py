"""A machine on which somebody removed files of ours is made good again without a word."""

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from backends.hostile import watch_processes
from towline.agent.link import Link
from towline.backends.machines.driver import Driver
from towline.backends.machines.wanted import WantedProcess
from towline.config.settings import SnapshotSettings
from towline.hosts.local import LocalHost
from towline.model.events import ProcessEnded
from towline.model.job import Ending
from towline.snapshot.blobs import BlobStore
from towline.snapshot.take import HashCache, Snapshot, take_snapshot


class Lab:
    """A driver of this machine, whose agent has a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "project"
        self.folder.mkdir()
        self.root = folder / "root"
        self.blobs = BlobStore(str(folder / "blobs"))
        self.facts: list[Any] = []
        self.driver = Driver(
            LocalHost(),
            str(self.root),
            self.blobs,
            self.facts.append,
            on_hold=lambda wanted: None,
            on_probe=lambda driver, raw: None,
            probe_every_s=5.0,
            lost_after_s=86400.0,
        )
        self.jobs = 0

    def take(self) -> Snapshot:
        return take_snapshot(str(self.folder), SnapshotSettings(), HashCache(), self.blobs)

    async def run(self, snapshot: str) -> Ending:
        """How a job ends that counts the files of a snapshot."""
        self.jobs += 1
        job, key = self.jobs, f"e-{self.jobs}-1-0"
        order = {
            "key": key,
            "argv": ["sh", "-c", "test $(ls | wc -l) = 30"],
            "env": {},
            "environ": None,
            "snapshot": snapshot,
        }
        wanted = WantedProcess(
            key, job, 1, 0, order=lambda: order, snapshots=(snapshot,) * bool(snapshot)
        )
        self.driver.want(wanted)
        async with asyncio.timeout(60):
            while not (ends := [f for f in self.facts if isinstance(f, ProcessEnded)][job - 1 :]):
                await asyncio.sleep(0.01)
        ending: Ending = ends[0].ending
        return ending


Scenario = Callable[[Lab], Awaitable[None]]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Scenario], None]:
    processes = watch_processes(monkeypatch)

    def play(scenario: Scenario) -> None:
        async def whole() -> None:
            lab = Lab(tmp_path)
            for at in range(30):
                (lab.folder / f"f{at}").write_text(f"content {at}" * 100)
            try:
                await scenario(lab)
            finally:
                await lab.driver.close()
                while any(process.get_returncode() is None for process in processes):
                    await asyncio.sleep(0.01)

        asyncio.run(whole())

    return play


def remove_contents(root: Path) -> None:
    for place in (root / "blobs").rglob("*"):
        if place.is_file():
            place.unlink()


def test_contents_that_were_removed_are_sent_again_and_the_start_does_not_count(
    play: Callable[[Scenario], None],
) -> None:
    async def scenario(lab: Lab) -> None:
        await lab.driver.reach()
        snapshot = lab.take().id
        assert (await lab.run(snapshot)).code == 0
        remove_contents(lab.root)
        gone = await lab.run(snapshot)
        assert (gone.cause, gone.code) == ("void", None)
        assert "is not on this machine" in gone.text
        assert (await lab.run(snapshot)).code == 0
        # Also what is only a little different from it.
        remove_contents(lab.root)
        (lab.folder / "f0").write_text("changed")
        changed = lab.take().id
        ends = [await lab.run(changed) for _ in range(2)]
        assert ends[-1].code == 0

    play(scenario)


def test_contents_that_vanish_again_and_again_are_a_failure(
    play: Callable[[Scenario], None],
) -> None:
    async def scenario(lab: Lab) -> None:
        await lab.driver.reach()
        snapshot = lab.take().id
        assert (await lab.run(snapshot)).code == 0
        causes = []
        for _ in range(4):
            remove_contents(lab.root)
            causes.append((await lab.run(snapshot)).cause)
            if causes[-1] == "void":
                assert (await lab.run(snapshot)).code == 0
        assert causes == ["void", "void", "void", "snapshot"]

    play(scenario)


def test_jobs_start_though_the_whole_folder_was_removed_while_connected(
    play: Callable[[Scenario], None],
) -> None:
    async def scenario(lab: Lab) -> None:
        await lab.driver.reach()
        snapshot = lab.take().id
        assert (await lab.run(snapshot)).code == 0
        shutil.rmtree(lab.root)
        assert (await lab.run(snapshot)).cause == "void"
        assert (await lab.run(snapshot)).code == 0

    play(scenario)


@pytest.mark.parametrize("spoil", ["remove", "cut", "nonsense"])
def test_an_agent_of_which_files_are_gone_or_damaged_is_sent_again(
    play: Callable[[Scenario], None], spoil: str
) -> None:
    async def scenario(lab: Lab) -> None:
        async def dial() -> Link:
            return await Link.open(LocalHost(), str(lab.root), lambda *_: None, lambda _: None)

        (await dial()).close()
        [file] = lab.root.glob("agent/*/towline_agent/share/grants.py")
        whole = file.read_bytes()
        if spoil == "remove":
            file.unlink()
        elif spoil == "cut":
            file.write_bytes(b"")
        else:
            file.write_bytes(b"(" * len(whole))
            os.utime(file, (1, 1))
        await lab.driver.reach()
        assert file.read_bytes() == whole

    play(scenario)
