"""The Engine hands results over as names and bytes: who receives them need not have a folder."""

from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from engine.bench import play_on
from towline.backends.base import Fleet
from towline.backends.terms import FileEntry, FoundFile, Part, WantedFile
from towline.engine.engine import Engine
from towline.engine.results import results
from towline.engine.results.results import ResultsHome
from towline.errors import Unreachable
from towline.model.job import Attempt, Ending, Job, JobSpec, State
from towline.model.machine import Slot
from towline.model.results import PENDING, at_home
from towline.model.results import ResultsState as Standing
from towline.store.store import Store
from towline.workspace.base import Item, PlacedResults, Whole

LONG = bytes(range(256)) * 4000
PIECE = 100_000


class Made:
    """A machine on which every process of a job made a short file, a long one and a link."""

    def __init__(self) -> None:
        #: Connections that break after the first piece of the long file.
        self.cuts = 1
        #: How much of the long file was asked for, each time.
        self.offsets: list[int] = []

    @property
    def present(self) -> "Made":
        return self

    async def reach(self, job: Job) -> None:
        """It answers."""

    def files(self, job: Job, rank: int) -> "Made":
        return self

    async def gathered(self, of: str) -> AsyncIterator[list[FoundFile]]:
        facts: dict[str, Any] = {"mtime": 0.0, "mode": 0o644}
        short: FileEntry = {"name": "d/short", "kind": "file", "size": 3, **facts}
        long: FileEntry = {"name": "long", "kind": "file", "size": len(LONG), **facts}
        link: FileEntry = {"name": "latest", "kind": "link", "target": "long"}
        yield [FoundFile(link), FoundFile(short, b"abc"), FoundFile(long)]

    async def read_all(self, wanted: list[WantedFile]) -> AsyncIterator[Part]:
        [one] = wanted
        self.offsets.append(one.offset)
        for at in range(one.offset, len(LONG), PIECE):
            piece = LONG[at : at + PIECE]
            yield Part(0, at, piece, at + len(piece) == len(LONG))
            if self.cuts:
                self.cuts -= 1
                raise Unreachable("cut")

    async def output(self, stream: str, offset: int = 0) -> AsyncIterator[bytes]:
        yield b"printed"[offset:]


class Memory:
    """Receives results far from any folder: a dictionary (`Receiver` and `Delivery`)."""

    def __init__(self) -> None:
        self.things: dict[Item, bytes] = {}
        self.links: dict[Item, str] = {}
        self.parts: dict[str, bytes] = {}
        self.memories: list[bytes | None] = []
        self.finished: list[bool] = []

    def deliver(self, job: Job, memory: bytes | None) -> "Memory":
        self.memories.append(memory)
        return self

    def put_printed(self, job: Job, printed: tuple[bytes, bytes]) -> tuple[Standing, bytes] | None:
        return None  # it takes a way

    def settle_soon(self, job: Job) -> None: ...

    def tidy(self, jobs: Iterable[Job]) -> None: ...

    async def sync(self, jobs: Iterable[Job]) -> None: ...

    def has_output(self, job: Job, streams: Sequence[str]) -> bool:
        return False

    def read_output(self, job: Job, stream: str, offset: int) -> bytes:
        raise AssertionError(stream)

    def close(self) -> None: ...

    async def make_folder(self, process: str) -> bool:
        return True

    async def put(self, files: Sequence[Whole]) -> None:
        self.things.update((file.item, bytes(file.data)) for file in files)

    async def put_link(self, item: Item, target: str) -> None:
        self.links[item] = target

    async def put_output(self, item: Item, content: bytes) -> str:
        self.things[item] = content
        return "somewhere"

    async def sizes(self, items: Sequence[Item]) -> list[int]:
        return [len(self.parts.get(item.content, b"")) for item in items]

    async def write(self, item: Item, offset: int, content: bytes, last: bool) -> str:
        so_far = self.parts.get(item.content, b"")
        assert len(so_far) == offset
        self.parts[item.content] = so_far + content
        if last:
            self.things[item] = self.parts.pop(item.content)
        return "somewhere" if last else ""

    async def let_go(self, items: Sequence[Item], go_on: bool) -> None:
        if not go_on:
            for item in items:
                self.parts.pop(item.content, None)

    async def finish(self, is_all: bool) -> PlacedResults:
        self.finished.append(is_all)
        return PlacedResults("ask the client", memory=b"opaque", files=len(self.things))


class Lab:
    """An Engine whose jobs were submitted from elsewhere: the folder is one of another machine."""

    def __init__(self, home: Path) -> None:
        self.machine, self.memory = Made(), Memory()
        self.engine = Engine(Store(str(home / "store.db")))
        fleet = cast("Fleet", self.machine)
        self.results = ResultsHome(self.engine, fleet, self.memory, str(home))

    async def add(self, processes: int) -> Job:
        [number] = self.engine.store.new_ids(1)
        spec = JobSpec(argv=("true",), cluster="lab", owner="me", folder="//elsewhere/project")
        spec = replace(spec, request=f"{processes}:[]")
        ending = Ending(code=0, started=1.0, made=3, out_size=7, err_size=7)
        endings = dict.fromkeys(range(processes), ending)
        attempt = Attempt(1, (Slot("gpu1", ()),) * processes, endings=endings)
        job = Job(number, spec, State.DONE, ended=1.0, results=PENDING, attempt=attempt)
        self.engine.store.commit({number: job}, {number}, (), 1.0)
        return job

    async def close(self) -> None:
        self.results.close()
        self.engine.close()


def test_results_reach_a_receiver_that_has_no_folder(tmp_path: Path) -> None:
    async def scenario(lab: Lab) -> None:
        lab.machine.cuts = 0
        lab.results.fetch_soon(await lab.add(2))
        await lab.results.settled(1)
        named = {(item.process, item.name or item.stream) for item in lab.memory.things}
        each = ("d/short", "long", "out", "err")
        assert named == {(process, name) for process in ("0.0", "0.1") for name in each}
        assert {len(content) for content in lab.memory.things.values()} == {3, 7, len(LONG)}
        assert sorted(lab.memory.links.values()) == ["long", "long"]
        assert lab.engine.job(1).results == at_home("ask the client")
        assert (lab.memory.memories, lab.memory.finished) == ([None], [True])
        # What it wants to remember comes back to it.
        await lab.results.fetch(lab.engine.job(1))
        assert lab.memory.memories == [None, b"opaque"]

    play_on(lambda: Lab(tmp_path), scenario, seconds=30)
    assert {path.name for path in tmp_path.iterdir()} <= {
        "store.db",
        "store.db-wal",
        "store.db-shm",
    }


def test_after_a_cut_a_receiver_is_given_the_rest_of_a_long_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "_SOON_S", 0.0)

    async def scenario(lab: Lab) -> None:
        lab.results.fetch_soon(await lab.add(1))
        await lab.results.settled(1)
        assert lab.machine.offsets == [0, PIECE]
        [whole] = [content for item, content in lab.memory.things.items() if item.name == "long"]
        assert whole == LONG

    play_on(lambda: Lab(tmp_path), scenario, seconds=30)
