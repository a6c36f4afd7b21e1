"""What every backend promises, whatever it runs jobs on; a new one has to do no more than this.

A world (`backends/worlds.py`) makes backends of one kind, and can kill the Engine that uses one and
cut its connections. Each promise is a function of a world; none knows which one it is.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol, TypeVar

from msgspec.structs import replace

from backends.scripts import Await, Exit, Make, Say, Script, Serve
from towline.backends.base import Backend
from towline.backends.terms import Port, Printed, WantedFile
from towline.errors import AgentError, HostError, NotFound
from towline.model.events import Fact, ProcessEnded, ProcessStarted
from towline.model.grammar import parse_request
from towline.model.job import Ending, Job, State

Answer = TypeVar("Answer")
PATIENCE_S = 100.0


class World(Protocol):
    backend: Backend
    #: What the present Engine was told.
    facts: list[Fact]

    def job(self, script: Script, processes: int = 1) -> Job:
        """A job that runs this, with an attempt that was not started yet."""

    async def kill(self) -> None:
        """The Engine is killed, and another one knows nothing but what it was told to find."""

    async def cut(self) -> None:
        """The connections break, where there are any."""


def start(world: World, job: Job) -> None:
    world.backend.start(job, parse_request(job.spec.request))


def find(world: World, job: Job) -> None:
    world.backend.find_again(job, parse_request(job.spec.request))


def endings(world: World, job: Job) -> dict[int, Ending]:
    """How the processes of the job's attempt ended; none of them twice."""
    told = [fact for fact in _facts(world, job) if isinstance(fact, ProcessEnded)]
    assert len({fact.rank for fact in told}) == len(told), told
    return {fact.rank: fact.ending for fact in told}


def started(world: World, job: Job) -> set[int]:
    return {fact.rank for fact in _facts(world, job) if isinstance(fact, ProcessStarted)}


def _facts(world: World, job: Job) -> list[ProcessStarted | ProcessEnded]:
    assert job.attempt is not None
    return [
        fact
        for fact in world.facts
        if isinstance(fact, ProcessStarted | ProcessEnded)
        and (fact.job, fact.attempt) == (job.id, job.attempt.number)
    ]


async def until(condition: Callable[[], Answer]) -> Answer:
    async with asyncio.timeout(PATIENCE_S):
        while not (answer := condition()):
            await asyncio.sleep(0.02)
    return answer


async def runs(world: World, job: Job) -> Job:
    """The job as the Engine knows it once all its processes have started."""
    assert job.attempt is not None
    count = len(job.attempt.placement)
    await until(lambda: len(started(world, job)) == count)
    nodes = {fact.rank: fact.node for fact in _facts(world, job) if _names_node(fact)}
    attempt = replace(job.attempt, started=1.0, nodes=nodes)
    return replace(job, state=State.RUNNING, started=1.0, attempt=attempt)


def _names_node(fact: Fact) -> bool:
    return isinstance(fact, ProcessStarted) and bool(fact.node)


async def ended(world: World, job: Job) -> dict[int, Ending]:
    assert job.attempt is not None
    count = len(job.attempt.placement)
    return await until(lambda: len(found := endings(world, job)) == count and found)


async def put(world: World, job: Job, path: str, rank: int = 0) -> None:
    async def nothing() -> AsyncIterator[bytes]:
        yield b""

    await world.backend.files(job, rank).write(path, 0o644, nothing())


async def content(world: World, job: Job, path: str) -> bytes:
    """What is in a file, once it is there."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                pieces = world.backend.files(job, 0).read(path)
                return b"".join([piece async for _, piece in pieces])
            except AgentError:
                await asyncio.sleep(0.05)


async def printed(world: World, job: Job, rank: int = 0, stream: str = "out") -> bytes:
    """All of it, piece by piece, up to the end."""
    text, over = b"", False
    async with asyncio.timeout(PATIENCE_S):
        while not over:
            piece, over = await world.backend.read_log(job, rank, stream, len(text), wait=True)
            text += piece
    return text


# --- the promises ------------------------------------------------------------------------------


async def a_process_starts_once_and_starting_it_again_changes_nothing(world: World) -> None:
    job = world.job(Script(Say("ran"), Await("go"), Exit(3)))
    start(world, job)
    start(world, job)
    job = await runs(world, job)
    start(world, job)
    await put(world, job, "go")
    assert (await ended(world, job))[0].code == 3
    assert await printed(world, job) == b"ran\n"
    assert len(_facts(world, job)) == 2


async def it_is_found_again_running_after_the_engine_was_killed(world: World) -> None:
    job = world.job(Script(Say("ran"), Await("go")))
    start(world, job)
    job = await runs(world, job)
    await world.kill()
    find(world, job)
    await put(world, job, "go")
    assert (await ended(world, job))[0].code == 0
    assert await printed(world, job) == b"ran\n"


async def it_is_found_again_ended_after_the_engine_was_killed(world: World) -> None:
    job = world.job(Script(Say("ran"), Await("go"), Exit(4)))
    start(world, job)
    job = await runs(world, job)
    await put(world, job, "go")
    await world.kill()
    find(world, job)
    assert (await ended(world, job))[0].code == 4
    assert await printed(world, job) == b"ran\n"


async def it_is_found_to_be_void_where_it_never_began_and_is_to_stop(world: World) -> None:
    job = replace(world.job(Script(Say("ran"))), state=State.STOPPING, stop_asked=True)
    find(world, job)
    [ending] = (await ended(world, job)).values()
    assert ending.code is None and not started(world, job)
    start(world, job)
    other = world.job(Script(Exit(0)))
    start(world, other)
    await ended(world, other)
    assert not started(world, job)


async def it_goes_on_when_the_connection_breaks(world: World) -> None:
    job = world.job(Script(Say("ran"), Await("go")))
    start(world, job)
    job = await runs(world, job)
    await world.cut()
    await put(world, job, "go")
    assert (await ended(world, job))[0].code == 0
    assert await printed(world, job) == b"ran\n"


async def it_is_stopped_before_it_began(world: World) -> None:
    job = world.job(Script(Await("never")))
    start(world, job)
    world.backend.stop(replace(job, stop_asked=True))
    [ending] = (await ended(world, job)).values()
    assert ending.code is None


async def it_is_stopped_while_it_runs(world: World) -> None:
    job = world.job(Script(Await("never")))
    start(world, job)
    job = await runs(world, job)
    world.backend.stop(replace(job, stop_asked=True))
    [ending] = (await ended(world, job)).values()
    assert ending.cause == "stopped", ending


async def stopping_it_after_its_end_changes_nothing(world: World) -> None:
    job, other = world.job(Script(Exit(5))), world.job(Script(Exit(0)))
    start(world, job)
    assert (await ended(world, job))[0].code == 5
    world.backend.stop(replace(job, stop_asked=True))
    start(world, other)
    await ended(world, other)
    assert endings(world, job)[0].code == 5


async def output_is_read_by_offset_and_its_end_is_told_once(world: World) -> None:
    job = world.job(Script(Say("one"), Say("odd", "err"), Await("go"), Say("two")))
    start(world, job)
    job = await runs(world, job)
    text = b""
    while len(text) < 4:
        piece, over = await world.backend.read_log(job, 0, "out", len(text), wait=True)
        assert not over
        text += piece
    assert text == b"one\n"
    assert await world.backend.log_size(job, 0, "out") == 4
    await put(world, job, "go")
    assert await printed(world, job) == b"one\ntwo\n"
    assert await printed(world, job, stream="err") == b"odd\n"
    assert await world.backend.read_log(job, 0, "out", 8, wait=True) == (b"", True)
    rest = [piece async for piece in world.backend.printed(job, 0, "out", 4)]
    assert b"".join(rest) == b"two\n"
    await ended(world, job)


async def its_files_are_listed_read_and_written(world: World) -> None:
    job = world.job(Script(Make("made.txt", "new"), Await("go")))
    start(world, job)
    job = await runs(world, job)
    assert await content(world, job, "made.txt") == b"new"
    files = world.backend.files(job, 0)
    assert (await files.stat("made.txt"))["size"] == 3
    listed = {entry["name"] async for page in files.listed("changed") for entry in page}
    gathered = {one.entry["name"] async for page in files.gathered("walk") for one in page}
    assert "made.txt" in listed and "made.txt" in gathered
    parts = [
        part async for part in files.read_all([WantedFile("made.txt", 3), WantedFile("none", 0)])
    ]
    assert {(part.index, bytes(part.data), part.error is None) for part in parts} == {
        (0, b"new", True),
        (1, b"", False),
    }
    for path in ("../made.txt", "/etc/passwd"):
        try:
            await anext(files.read(path))
        except (AgentError, NotFound):
            continue
        raise AssertionError(f"{path} was read")
    await put(world, job, "go")
    await ended(world, job)


async def processes_of_a_gang_start_together(world: World) -> None:
    job = world.job(Script(Say("ran"), Await("go")), processes=2)
    start(world, job)
    job = await runs(world, job)
    await put(world, job, "go", rank=0)
    await put(world, job, "go", rank=1)
    assert {ending.code for ending in (await ended(world, job)).values()} == {0}
    assert [await printed(world, job, rank) for rank in (0, 1)] == [b"ran\n", b"ran\n"]


async def a_gang_that_is_stopped_ends_whole(world: World) -> None:
    job = world.job(Script(Await("never")), processes=2)
    start(world, job)
    world.backend.stop(replace(job, stop_asked=True))
    assert {ending.code for ending in (await ended(world, job)).values()} == {None}


async def what_is_told_names_the_attempt_that_it_is_about(world: World) -> None:
    job = world.job(Script(Exit(1)))
    assert job.attempt is not None
    start(world, job)
    assert (await ended(world, job))[0].code == 1
    world.backend.conclude(replace(job, attempt=replace(job.attempt, endings=endings(world, job))))
    again = replace(job, attempt=replace(job.attempt, number=2))
    start(world, again)
    assert (await ended(world, again))[0].code == 1
    assert len(endings(world, job)) == 1


async def a_command_runs_beside_it(world: World) -> None:
    job = world.job(Script(Await("go")))
    start(world, job)
    job = await runs(world, job)
    said = [
        item async for item in world.backend.execute(job, 0, ["sh", "-c", "echo beside; exit 4"])
    ]
    lines = [item for item in said if isinstance(item, Printed) and item.stream == "out"]
    assert b"".join(line.data for line in lines) == b"beside\n", said
    assert isinstance(said[-1], Ending) and said[-1].code == 4
    await put(world, job, "go")
    await ended(world, job)


async def a_port_beside_it_can_be_reached(world: World) -> None:
    job = world.job(Script(Serve("hello"), Await("go")))
    start(world, job)
    job = await runs(world, job)
    port = Port(int(await content(world, job, "port")))
    async with asyncio.timeout(PATIENCE_S):
        while not await world.backend.answers(job, 0, port):
            await asyncio.sleep(0.1)

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await world.backend.carry(job, 0, port, reader, writer)
        except HostError:
            writer.close()

    async with await asyncio.start_server(carry, "127.0.0.1", 0) as server:
        async with asyncio.timeout(PATIENCE_S):
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            assert await reader.read() == b"hello"
            writer.close()
    await put(world, job, "go")
    await ended(world, job)


Promise = Callable[[World], Awaitable[None]]
PROMISES: list[Promise] = [
    a_process_starts_once_and_starting_it_again_changes_nothing,
    it_is_found_again_running_after_the_engine_was_killed,
    it_is_found_again_ended_after_the_engine_was_killed,
    it_is_found_to_be_void_where_it_never_began_and_is_to_stop,
    it_goes_on_when_the_connection_breaks,
    it_is_stopped_before_it_began,
    it_is_stopped_while_it_runs,
    stopping_it_after_its_end_changes_nothing,
    output_is_read_by_offset_and_its_end_is_told_once,
    its_files_are_listed_read_and_written,
    processes_of_a_gang_start_together,
    a_gang_that_is_stopped_ends_whole,
    what_is_told_names_the_attempt_that_it_is_about,
    a_command_runs_beside_it,
    a_port_beside_it_can_be_reached,
]
