"""An Engine with jobs that made one file each, on a machine that is made up."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

from towline.backends.machines import Machines
from towline.backends.transfer.files import Part, Wanted
from towline.engine.engine import Engine
from towline.engine.results.results import Results
from towline.model.job import WANTED, Attempt, Ending, Job, JobSpec, State
from towline.model.machine import Slot
from towline.store.store import Store


class OneFileThere:
    """The files of a job that made one, and printed nothing."""

    async def read_all(self, wanted: list[Wanted]) -> AsyncIterator[Part]:
        yield Part(0, 0, b"new", last=True)

    async def output(self, stream: str) -> AsyncIterator[bytes]:
        for nothing in ():
            yield nothing


class OneFile:
    """A machine on which a job made one file."""

    def files(self, job: Job, rank: int) -> OneFileThere:
        return OneFileThere()

    async def file_operation(self, job: Job, rank: int, op: str, **fields: Any) -> Any:
        assert op == "changed"
        entry = {"name": "made", "kind": "file", "size": 3, "mtime": 0.0, "mode": 0o644}
        return {"files": [entry], "next": None}, b""


class Home:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.engine = Engine(Store(str(folder / "store.db")))
        self.results = Results(self.engine, cast("Machines", OneFile()), str(folder))

    async def job(self) -> Job:
        [number] = self.engine.store.new_ids(1)
        job = self.ended(number, attempt=1)
        self.engine.store.commit({number: job}, {number}, (), 1.0)
        return job

    def ended(self, number: int, attempt: int) -> Job:
        """A job whose nth attempt has ended, with results that are to come home."""
        spec = JobSpec(argv=("true",), cluster="lab", owner="me", folder=str(self.folder))
        endings = {0: Ending(code=0, started=1.0, made=1)}
        there = Attempt(attempt, (Slot("gpu1", ()),), endings=endings)
        return Job(number, spec, State.DONE, ended=attempt, results=WANTED, attempt=there)

    async def close(self) -> None:
        self.results.close()
        self.engine.close()
