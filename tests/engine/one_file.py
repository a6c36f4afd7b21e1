"""An Engine with jobs that made one file each, on a machine that is made up."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

from towline.backends.base import Fleet
from towline.backends.terms import FoundFile, Part, WantedFile
from towline.engine.engine import Engine
from towline.engine.results.results import ResultsHome
from towline.model.job import Attempt, Ending, Job, JobSpec, State
from towline.model.machine import Slot
from towline.model.results import PENDING
from towline.snapshot.blobs import BlobStore
from towline.store.store import Store
from towline.workspace.receiver import FolderReceiver


class OneFileThere:
    """The files of a job that made one, and printed nothing."""

    async def gathered(self, of: str) -> AsyncIterator[list[FoundFile]]:
        assert of == "changed"
        entry = {"name": "made", "kind": "file", "size": 3, "mtime": 0.0, "mode": 0o644}
        yield [FoundFile(entry, b"new")]

    async def read_all(self, wanted: list[WantedFile]) -> AsyncIterator[Part]:
        for nothing in wanted:
            raise AssertionError(nothing)
            yield

    async def output(self, stream: str) -> AsyncIterator[bytes]:
        for nothing in ():
            yield nothing


class OneFile:
    """A machine on which a job made one file."""

    @property
    def present(self) -> "OneFile":
        return self

    async def reach(self, job: Job) -> None:
        """It answers."""

    def files(self, job: Job, rank: int) -> OneFileThere:
        return OneFileThere()


def receiver_in(folder: Path) -> FolderReceiver:
    return FolderReceiver(str(folder), BlobStore(str(folder / "blobs")))


class Home:
    def __init__(self, folder: Path, machines: OneFile | None = None) -> None:
        self.folder = folder
        self.engine = Engine(Store(str(folder / "store.db")))
        fleet = cast("Fleet", machines or OneFile())
        self.results = ResultsHome(self.engine, fleet, receiver_in(folder), str(folder))

    async def job(self, machine: str = "gpu1") -> Job:
        [number] = self.engine.store.new_ids(1)
        job = self.ended(number, 1, machine)
        self.engine.store.commit({number: job}, {number}, (), 1.0)
        return job

    def ended(self, number: int, attempt: int, machine: str = "gpu1") -> Job:
        """A job whose nth attempt has ended, with results that are to come home."""
        spec = JobSpec(argv=("true",), cluster="lab", owner="me", folder=str(self.folder))
        endings = {0: Ending(code=0, started=1.0, made=1)}
        there = Attempt(attempt, (Slot(machine, ()),), endings=endings)
        return Job(number, spec, State.DONE, ended=attempt, results=PENDING, attempt=there)

    async def close(self) -> None:
        self.results.close()
        self.engine.close()
