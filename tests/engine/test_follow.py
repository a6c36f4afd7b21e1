"""Following a job over a network that breaks: it is told, and told again when it is back."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from msgspec.structs import replace

from engine.one_file import receiver_in
from towline.backends.base import Fleet
from towline.backends.fake import FakeBackend
from towline.engine.engine import Engine
from towline.engine.following import output
from towline.engine.following.follow import Follower
from towline.engine.results.results import ResultsHome
from towline.errors import Unreachable
from towline.model.events import MachineSeen, ProcessEnded
from towline.model.job import Ending, Job, JobSpec, Queueing, State
from towline.model.machine import Machine
from towline.model.reason import Reason
from towline.model.results import at_home
from towline.store.store import Store


class Cut(FakeBackend):
    """Cannot be reached at first; then there is nothing to read, and at last the end."""

    tries = 0
    waits: list[bool]

    async def read_log(
        self, job: Job, rank: int, stream: str, offset: int, wait: bool
    ) -> tuple[bytes, bool]:
        self.waits = [*getattr(self, "waits", []), wait]
        self.tries += 1
        if self.tries == 1:
            raise Unreachable("gpu1: does not answer")
        if self.tries == 2:
            return b"", False
        if self.tries == 3:
            self.end(job.id, 1, rank, Ending(code=0, ended=1.0))
        return b"", True


class Long(FakeBackend):
    """Has a long output, of which a read gives a piece and `printed` all."""

    TEXT = bytes(range(256)) * 5000
    reads = 0

    async def read_log(
        self, job: Job, rank: int, stream: str, offset: int, wait: bool
    ) -> tuple[bytes, bool]:
        self.reads += 1
        piece = self.TEXT[offset : offset + 256 * 1024]
        return piece, offset + len(piece) == len(self.TEXT)

    async def printed(self, job: Job, rank: int, stream: str, offset: int) -> AsyncIterator[bytes]:
        for at in range(offset, len(self.TEXT), 1000):
            yield self.TEXT[at : at + 1000]


def test_a_long_output_is_read_in_one_go(tmp_path: Path) -> None:
    async def scenario() -> None:
        engine = Engine(Store(str(tmp_path / "store.db")))
        backend = engine.backend = Long(engine.report)
        turning = asyncio.create_task(engine.run())
        engine.report(MachineSeen(Machine("gpu1", cpus=4, mem_mb=16000, clusters=("lab",))))
        [number] = await engine.submit(
            [JobSpec(argv=("true",), cluster="lab", owner="me", request="[]")]
        )
        await engine.job_where(number, lambda job: job.state is State.RUNNING)
        found = b""
        async for header, blob in Follower(engine, backend, number, {}, ("out",)).frames():
            if "stream" in header:
                assert header["offset"] == len(found)
                found += blob
            if found == Long.TEXT and backend.running:
                backend.end(number, 1, 0, Ending(code=0, ended=1.0))
        assert found == Long.TEXT
        assert backend.reads == 2, "the first piece, and that there is no more"
        turning.cancel()
        engine.close()

    asyncio.run(scenario())


def test_what_is_back_is_told_although_there_is_nothing_to_read(tmp_path: Path) -> None:
    async def scenario() -> None:
        engine = Engine(Store(str(tmp_path / "store.db")))
        backend = engine.backend = Cut(engine.report)
        turning = asyncio.create_task(engine.run())
        engine.report(MachineSeen(Machine("gpu1", cpus=4, mem_mb=16000, clusters=("lab",))))
        [number] = await engine.submit(
            [JobSpec(argv=("true",), cluster="lab", owner="me", request="[]")]
        )
        await engine.job_where(number, lambda job: job.state is State.RUNNING)
        follower = Follower(engine, backend, number, {}, ("out",))
        frames = [header async for header, _ in follower.frames()]
        assert [header["broken"] for header in frames if "broken" in header] == [True, False]
        # Whoever waited for output would not hear that it is back.
        assert backend.waits == [True, False, True]
        turning.cancel()
        engine.close()

    asyncio.run(scenario())


class CutAtTheEnd(FakeBackend):
    """The connection breaks in the very moment of the end, and again; the output comes after."""

    tries = 0
    engine: Engine

    async def read_log(
        self, job: Job, rank: int, stream: str, offset: int, wait: bool
    ) -> tuple[bytes, bool]:
        self.tries += 1
        if self.tries == 1:
            self.end(job.id, 1, rank, Ending(code=0, ended=1.0))
            await self.engine.job_where(job.id, lambda job: job.state.final)
        if self.tries <= 2:
            raise Unreachable("gpu1: closed by remote host")
        return b"the last words", True


def test_output_comes_whole_though_the_connection_breaks_as_the_job_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        engine = Engine(Store(str(tmp_path / "store.db")))
        backend = engine.backend = CutAtTheEnd(engine.report)
        backend.engine = engine
        turning = asyncio.create_task(engine.run())
        engine.report(MachineSeen(Machine("gpu1", cpus=4, mem_mb=16000, clusters=("lab",))))
        [number] = await engine.submit(
            [JobSpec(argv=("true",), cluster="lab", owner="me", request="[]", results=False)]
        )
        await engine.job_where(number, lambda job: job.state is State.RUNNING)
        follower = Follower(engine, backend, number, {}, ("out",))
        frames = [(header, blob) async for header, blob in follower.frames()]
        assert b"".join(blob for _, blob in frames) == b"the last words"
        notes = [header["note"] for header, _ in frames if "note" in header]
        assert notes == [
            "gpu1: closed by remote host; the job has ended, trying again",
            "connected again",
        ]
        turning.cancel()
        engine.close()

    asyncio.run(scenario())


class Odd(FakeBackend):
    """Fails over output in a way that nobody expected."""

    async def read_log(
        self, job: Job, rank: int, stream: str, offset: int, wait: bool
    ) -> tuple[bytes, bool]:
        self.end(job.id, 1, rank, Ending(code=0, ended=1.0))
        raise KeyError("odd")


def test_output_that_cannot_be_read_for_whatever_reason_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        engine = Engine(Store(str(tmp_path / "store.db")))
        backend = engine.backend = Odd(engine.report)
        turning = asyncio.create_task(engine.run())
        engine.report(MachineSeen(Machine("gpu1", cpus=4, mem_mb=16000, clusters=("lab",))))
        [number] = await engine.submit(
            [JobSpec(argv=("true",), cluster="lab", owner="me", request="[]")]
        )
        await engine.job_where(number, lambda job: job.state is State.RUNNING)
        follower = Follower(engine, backend, number, {}, ("out",))
        notes = [header["note"] async for header, _ in follower.frames() if "note" in header]
        assert "the rest of its output: the Engine failed over it: KeyError('odd')" in notes
        turning.cancel()
        engine.close()

    asyncio.run(scenario())


def test_network_that_breaks_while_a_job_is_in_a_queue_is_told(tmp_path: Path) -> None:
    silent = iter(["", "cedar: does not answer", "cedar: does not answer", ""])

    async def scenario() -> None:
        engine = Engine(Store(str(tmp_path / "store.db")))
        slurm = Queueing(kind="slurm")
        queued = Job(
            id=1,
            spec=JobSpec(argv=("true",), cluster="cedar", owner="me", request="[]", queue=slurm),
            state=State.STARTING,
            submitted=0.0,
            reason=Reason("queue", "in Slurm's queue"),
        )
        engine.core.jobs[1] = queued

        def silence(job: Job) -> str:
            return next(silent)

        follower = Follower(engine, FakeBackend(engine.report), 1, {}, ("out",), silence=silence)
        told = []
        async for header, _ in follower.frames():
            if "note" in header:
                told.append(header)
            if header.get("broken") is False:
                break
        assert [header.get("broken") for header in told] == [None, True, False]
        engine.close()

    asyncio.run(scenario())


class NeverEnding(FakeBackend):
    """There is some output, and no record of how the job ended: its node is gone."""

    async def read_log(
        self, job: Job, rank: int, stream: str, offset: int, wait: bool
    ) -> tuple[bytes, bool]:
        if wait and offset:
            await asyncio.Event().wait()
        return b"some"[offset:], False


def test_following_ends_with_what_there_is_where_only_the_queue_knows_of_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "_LAST_WORDS_S", 0.1)

    async def scenario() -> None:
        engine = Engine(Store(str(tmp_path / "store.db")))
        backend = engine.backend = NeverEnding(engine.report)
        turning = asyncio.create_task(engine.run())
        queue = Queueing(kind="slurm")
        spec = JobSpec(argv=("true",), cluster="cedar", owner="me", request="[]", queue=queue)
        [number] = await engine.submit([spec])
        await engine.job_where(number, lambda job: job.state is State.RUNNING)
        frames = []
        async with asyncio.timeout(20):
            async for frame in Follower(engine, backend, number, {}, ("out",)).frames():
                frames.append(frame)
                if frame[1]:
                    backend.end(number, 1, 0, Ending(cause="lost", text="its node failed"))
        assert b"".join(blob for _, blob in frames) == b"some"
        assert frames[-1][0]["end"]["state"] == "lost"
        turning.cancel()
        engine.close()

    asyncio.run(scenario())


class Unasked(FakeBackend):
    """Must not be asked for what is here already."""

    asked: list[str]

    async def read_log(
        self, job: Job, rank: int, stream: str, offset: int, wait: bool
    ) -> tuple[bytes, bool]:
        self.asked = [*getattr(self, "asked", []), stream]
        return (b"from its machine", True) if stream == "out" else (b"", True)


@pytest.mark.parametrize(
    ("said", "size", "made", "expected", "asked"),
    [
        ((b"hello\n", b""), 6, 0, b"hello\n", []),
        (None, 0, 0, b"", []),
        (None, 16, 0, b"from its machine", ["out"]),
        # An older agent counts nothing.
        (None, 0, -1, b"from its machine", ["out", "err"]),
    ],
)
def test_output_that_came_with_the_news_of_the_end_is_not_asked_for(
    tmp_path: Path,
    said: tuple[bytes, bytes] | None,
    size: int,
    made: int,
    expected: bytes,
    asked: list[str],
) -> None:
    async def scenario() -> None:
        engine = Engine(Store(str(tmp_path / "store.db")))
        backend = engine.backend = Unasked(engine.report)
        receiver = receiver_in(tmp_path)
        results = ResultsHome(engine, cast("Fleet", backend), receiver, str(tmp_path))
        turning = asyncio.create_task(engine.run())
        engine.report(MachineSeen(Machine("gpu1", cpus=4, mem_mb=16000, clusters=("lab",))))
        spec = JobSpec(argv=("true",), cluster="lab", owner="me", request="[]")
        spec = replace(spec, folder=str(tmp_path), results=said is not None)
        [number] = await engine.submit([spec])
        await engine.job_where(number, lambda job: job.state is State.RUNNING)
        now = time.time()
        ending = Ending(code=0, started=now, ended=now, made=made, out_size=size)
        engine.report(ProcessEnded(number, 1, 0, ending, said))
        await engine.job_where(number, lambda job: job.state.final)
        found = b""
        both = ("out", "err")
        follower = Follower(engine, backend, number, {}, both, receiver=receiver)
        async for _, blob in follower.frames():
            found += blob
        assert (found, getattr(backend, "asked", [])) == (expected, asked)
        turning.cancel()
        results.close()
        engine.close()

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_who_follows_a_job_is_told_how_far_its_results_are(tmp_path: Path) -> None:
    async def scenario() -> None:
        engine = Engine(Store(str(tmp_path / "store.db")))
        backend = engine.backend = Unasked(engine.report)
        turning = asyncio.create_task(engine.run())
        engine.report(MachineSeen(Machine("gpu1", cpus=4, mem_mb=16000, clusters=("lab",))))
        [number] = await engine.submit(
            [JobSpec(argv=("true",), cluster="lab", owner="me", request="[]")]
        )
        await engine.job_where(number, lambda job: job.state is State.RUNNING)
        now = time.time()
        engine.report(ProcessEnded(number, 1, 0, Ending(code=0, started=now, ended=now, made=1)))
        job = await engine.job_where(number, lambda job: job.state.final)
        told: list[dict[str, int]] = []
        follower = Follower(engine, backend, number, {}, ("out",), coming=lambda job: (1, 4))
        async for header, _ in follower.frames():
            if "progress" in header:
                told.append(header["progress"])
                if len(told) == 2:
                    await engine.note_results(job, at_home("/home/me/job_results/1"))
        assert told[0] == told[1] == {"done": 1, "total": 4, "of": "results"}
        turning.cancel()
        engine.close()

    asyncio.run(asyncio.wait_for(scenario(), 20))
