"""Files of jobs come and go as they are, however many, and whatever breaks on the way."""

import asyncio
import hashlib
import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from testbed.waiting import wait_until
from towline.agent.link import Link
from towline.backends.terms import SHORT, UploadPiece, WantedFile
from towline.backends.transfer.flow import PIECE
from towline.backends.transfer.job_files import JobFiles
from towline.backends.transfer.listing import pages
from towline.errors import AgentError, HostError, TowlineError, Unreachable
from towline.hosts.local import LocalHost

KEY = "transfer-1-1-0"
MB = 1 << 20


class Lab:
    """An ended job on this machine, and a connection to it that can be cut."""

    def __init__(self, tmp_path: Path) -> None:
        self.root = tmp_path / "root"
        self.folder = self.root / "jobs" / KEY / "src"
        self.link: Link | None = None
        self.dialled = 0
        self.ended = asyncio.Event()
        self.asked: list[str] = []

    async def reach(self) -> tuple[Link, str]:
        if self.link is None or self.link.closed:
            self.dialled += 1
            if self.link is not None and self.link._process is not None:
                self.link._process.close()
            self.link = await Link.open(LocalHost(), str(self.root), self._heard, lambda _: None)
            real = self.link.ask_soon

            def ask_soon(op: str, blob: Any = b"", **fields: Any) -> Any:
                self.asked.append(op)
                return real(op, blob, **fields)

            self.link.ask_soon = ask_soon  # type: ignore[method-assign]
        return self.link, KEY

    def _heard(self, header: dict[str, Any], _: bytes) -> None:
        if header.get("ended"):
            self.ended.set()

    async def run_job(self) -> None:
        link, _ = await self.reach()
        await link.ask("start", jobs=[{"key": KEY, "argv": ["true"]}])
        await self.ended.wait()

    def cut(self) -> None:
        """As the network does: what was not passed on is lost."""
        assert self.link is not None and self.link._process is not None
        if self.link._process.get_returncode() is None:
            self.link._process.kill()

    async def leave(self) -> None:
        assert self.link is not None and self.link._process is not None
        process = self.link._process
        self.link.close()
        await asyncio.to_thread(wait_until, lambda: process.get_returncode() is not None)


Scenario = Callable[[Lab], Awaitable[None]]
Play = Callable[[Scenario], None]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    async def whole(scenario: Scenario) -> None:
        lab = Lab(tmp_path)
        await lab.run_job()
        try:
            await scenario(lab)
        finally:
            await lab.leave()

    return lambda scenario: asyncio.run(whole(scenario))


def fill(folder: Path, sizes: list[int]) -> dict[str, bytes]:
    contents = {f"d{i % 7}/f{i}": os.urandom(size) for i, size in enumerate(sizes)}
    for name, content in contents.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    return contents


async def read_all(
    files: JobFiles, wanted: list[WantedFile], between: Callable[[], None] = lambda: None
) -> dict[str, bytes]:
    """What comes of each file; its parts must come in order."""
    found: dict[int, bytes] = {}
    over: set[int] = set()
    async for part in files.read_all(wanted):
        assert part.error is None and part.index not in over
        assert part.offset == wanted[part.index].offset + len(found.get(part.index, b""))
        found[part.index] = found.get(part.index, b"") + bytes(part.data)
        if part.last:
            over.add(part.index)
        between()
    assert over == set(range(len(wanted)))
    return {wanted[index].path: data for index, data in found.items()}


SIZES = [*range(12), SHORT - 1, SHORT, SHORT + 1, PIECE - 1, PIECE, PIECE + 1, 3 * MB, *[900] * 700]


def test_many_files_come_in_few_messages_and_as_they_are(play: Play) -> None:
    async def scenario(lab: Lab) -> None:
        contents = fill(lab.folder, SIZES)
        wanted = [WantedFile(name, len(content)) for name, content in contents.items()]
        assert await read_all(JobFiles(lab.reach), wanted) == contents
        assert lab.asked.count("get_many") <= 5

    play(scenario)


async def gather(files: JobFiles, between: Callable[[], None] = lambda: None) -> dict[str, bytes]:
    """What is in every file below the job's folder; the long ones come behind the others."""
    found: dict[str, bytes] = {}
    later: list[WantedFile] = []
    async for some in files.gathered("walk", path=""):
        for one in some:
            name = one.entry["name"]
            assert name not in found
            if one.content is None:
                later.append(WantedFile(name, one.entry["size"]))
            else:
                found[name] = bytes(one.content)
        between()
    return {**found, **await read_all(files, later, between)}


def test_a_folder_comes_with_its_contents_without_being_asked_twice(play: Play) -> None:
    async def scenario(lab: Lab) -> None:
        contents = fill(lab.folder, [size for size in SIZES if size <= SHORT])
        lab.asked.clear()
        assert await gather(JobFiles(lab.reach)) == contents
        assert set(lab.asked) == {"gather"}

    play(scenario)


@pytest.mark.parametrize("seed", range(4))
def test_a_folder_comes_whole_over_a_connection_that_breaks(play: Play, seed: int) -> None:
    random = Random(seed)

    async def scenario(lab: Lab) -> None:
        contents = fill(lab.folder, SIZES)

        def between() -> None:
            if random.random() < 0.2 and lab.dialled < 6:
                lab.cut()

        assert await gather(JobFiles(lab.reach), between) == contents

    play(scenario)


def test_the_next_page_of_a_list_is_asked_for_while_this_one_is_used() -> None:
    asked: list[int] = []

    async def ask(after: int) -> Any:
        asked.append(after)
        return {"files": [{"name": str(after)}], "next": after + 1 if after < 3 else None}

    async def scenario() -> None:
        used: list[tuple[str, int]] = []
        async for found in pages(ask):
            await asyncio.sleep(0)
            used.append((found[0]["name"], len(asked)))
        assert used == [("0", 2), ("1", 3), ("2", 4), ("3", 4)]

    asyncio.run(scenario())


def test_files_that_grew_or_shrank_since_they_were_listed_come_as_they_are_now(play: Play) -> None:
    async def scenario(lab: Lab) -> None:
        contents = fill(lab.folder, [0, 10, 100_000, PIECE, 2 * MB])
        told = [2 * MB, 0, 5, 3 * MB, PIECE]
        wanted = [WantedFile(name, size) for name, size in zip(contents, told, strict=True)]
        assert await read_all(JobFiles(lab.reach), wanted) == contents

    play(scenario)


def test_what_is_gone_or_may_not_be_had_is_told_and_the_others_come(play: Play) -> None:
    async def scenario(lab: Lab) -> None:
        (lab.folder / "here").write_text("x")
        wanted = [WantedFile(path, 1) for path in ("gone", "../../../up", ".", "here")]
        wanted.append(WantedFile("also gone", 10 * MB))
        found = [part async for part in JobFiles(lab.reach).read_all(wanted)]
        codes = {part.index: part.error.code for part in found if part.error}
        assert codes == {0: "no_such_file", 1: "outside", 2: "is_folder", 4: "no_such_file"}
        assert [bytes(part.data) for part in found if part.index == 3] == [b"x"]

    play(scenario)


def test_a_file_that_is_said_to_be_endless_is_read_to_its_end_and_no_further(play: Play) -> None:
    async def scenario(lab: Lab) -> None:
        (lab.folder / "short").write_text("x")
        wanted = [
            WantedFile(path, 1 << 62, offset) for path in ("gone", "short") for offset in (0, 1)
        ]
        found = [part async for part in JobFiles(lab.reach).read_all(wanted)]
        assert {part.index for part in found if part.error} == {0, 1}
        assert [(part.index, bytes(part.data)) for part in found if not part.error] == [
            (2, b"x"),
            (3, b""),
        ]

    play(scenario)


@pytest.mark.parametrize(
    ("offset", "end"), [(0, None), (5, None), (0, 0), (MB, MB + 7), (9 * MB, None)]
)
def test_a_range_of_a_file_is_read_and_no_more(play: Play, offset: int, end: int | None) -> None:
    async def scenario(lab: Lab) -> None:
        content = os.urandom(3 * MB)
        (lab.folder / "big").write_bytes(content)
        pieces = [piece async for piece in JobFiles(lab.reach).read("big", offset, end)]
        assert b"".join(data for _, data in pieces) == content[offset:end]
        assert {size for size, _ in pieces} == {3 * MB}

    play(scenario)


def test_a_file_that_is_not_there_is_told_at_once(play: Play) -> None:
    async def scenario(lab: Lab) -> None:
        with pytest.raises(AgentError, match="no such file"):
            [piece async for piece in JobFiles(lab.reach).read("nothing")]

    play(scenario)


@pytest.mark.parametrize("seed", range(4))
def test_reading_goes_on_after_every_cut_in_the_middle_of_files_too(play: Play, seed: int) -> None:
    async def scenario(lab: Lab) -> None:
        random = Random(seed)
        contents = fill(lab.folder, [5 * MB, *[2000] * 300, 4 * MB, PIECE + 1])
        wanted = [WantedFile(name, len(content)) for name, content in contents.items()]
        parts = itertools.count(seed)

        def cut_now_and_then() -> None:
            if next(parts) == 10 or random.random() < 0.02:
                lab.cut()

        found = await read_all(JobFiles(lab.reach), wanted, between=cut_now_and_then)
        assert found == contents
        assert lab.dialled > 1

    play(scenario)


async def pieces_of(
    contents: dict[str, bytes], lab: Lab, random: Random
) -> AsyncIterator[UploadPiece]:
    """As a client sends them; the connection breaks at any moment."""
    for name, content in contents.items():
        for offset in range(0, max(1, len(content)), PIECE):
            data = content[offset : offset + PIECE]
            if random.random() < 0.05:
                lab.cut()
            yield UploadPiece(name, 0o640, offset, data, last=offset + PIECE >= len(content))


@pytest.mark.parametrize("seed", range(4))
def test_writing_goes_on_after_every_cut_and_leaves_nothing_half_made(
    play: Play, seed: int
) -> None:
    async def scenario(lab: Lab) -> None:
        random = Random(seed)
        sizes = [0, 5 * MB, *[2000] * 300, 4 * MB, PIECE, PIECE + 1, SHORT + 1]
        contents = {f"up/f{i}": random.randbytes(size) for i, size in enumerate(sizes)}
        total = await JobFiles(lab.reach).write_all(pieces_of(contents, lab, random))
        assert total == sum(sizes)
        there = {f"up/{path.name}": path for path in (lab.folder / "up").iterdir()}
        assert {name: path.read_bytes() for name, path in there.items()} == contents
        assert {path.stat().st_mode & 0o777 for path in there.values()} == {0o640}
        assert lab.dialled > 1

    play(scenario)


def test_a_file_that_may_not_be_written_is_told(play: Play) -> None:
    async def scenario(lab: Lab) -> None:
        for sizes in ([10], [3 * MB]):
            contents = {"../../../out": bytes(sizes[0])}
            with pytest.raises(AgentError, match="outside"):
                await JobFiles(lab.reach).write_all(pieces_of(contents, lab, Random(1)))

    play(scenario)


def test_a_way_that_breaks_all_the_time_is_given_up_in_words(play: Play) -> None:
    async def scenario(lab: Lab) -> None:
        (lab.folder / "big").write_bytes(bytes(MB))

        async def broken() -> tuple[Link, str]:
            link, key = await lab.reach()
            link.ask_soon = lambda *_, **__: failed  # type: ignore[method-assign]
            failed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            failed.set_exception(Unreachable("gpu1: the connection broke"))
            return link, key

        with pytest.raises(HostError, match="the connection broke"):
            [piece async for piece in JobFiles(broken).read("big")]

    play(scenario)


@pytest.mark.parametrize("op", ["get", "get_many"])
def test_a_piece_that_was_damaged_on_its_way_is_not_taken(play: Play, op: str) -> None:
    async def scenario(lab: Lab) -> None:
        fill(lab.folder, [10])
        link, _ = await lab.reach()
        real = link._hear_answer

        def damaged(header: dict[str, Any], blob: bytes) -> None:
            wrong = hashlib.sha256(blob + b"!").hexdigest()
            real({**header, "sha256": wrong} if "sha256" in header else header, blob)

        link._hear_answer = damaged  # type: ignore[method-assign]
        files = JobFiles(lab.reach)
        with pytest.raises(TowlineError, match="arrived damaged"):
            if op == "get":
                [piece async for piece in files.read("d0/f0")]
            else:
                [part async for part in files.read_all([WantedFile("d0/f0", 10)])]

    play(scenario)


def test_what_is_urgent_does_not_wait_behind_what_is_large(play: Play) -> None:
    """While a client that takes nothing has asked for all of a large file, others are served."""

    async def scenario(lab: Lab) -> None:
        (lab.folder / "big").write_bytes(bytes(64 * MB))
        link, _ = await lab.reach()
        order: list[str] = []
        large = [
            link.ask_soon("get", key=KEY, path="big", offset=n * PIECE, limit=PIECE, flow=1)
            for n in range(256)
        ]
        large[-1].add_done_callback(lambda _: order.append("large"))
        urgent = link.ask_soon("stat", key=KEY, path="big")
        urgent.add_done_callback(lambda _: order.append("urgent"))
        await asyncio.gather(*large, urgent)
        assert order == ["urgent", "large"]

    play(scenario)


def test_transfers_take_turns(play: Play) -> None:
    async def scenario(lab: Lab) -> None:
        (lab.folder / "big").write_bytes(bytes(32 * MB))
        link, _ = await lab.reach()
        came: list[int] = []

        def ask(flow: int, number: int) -> "asyncio.Future[Any]":
            answer = link.ask_soon(
                "get", key=KEY, path="big", offset=number * PIECE, limit=PIECE, flow=flow
            )
            answer.add_done_callback(lambda _: came.append(flow))
            return answer

        await asyncio.gather(*(ask(flow, n) for flow in (1, 2, 3) for n in range(40)))
        first = came[:60]
        assert min(first.count(flow) for flow in (1, 2, 3)) >= 15, first

    play(scenario)
