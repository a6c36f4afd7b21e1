"""Run a command beside a job, with its folder and environment."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

from towline.agent.endings import read_ending
from towline.agent.link import Link
from towline.agent.messages import Clock
from towline.backends.terms import Printed
from towline.errors import AgentError, HostError
from towline.model.job import Ending

#: What is heard of such a command: its output, and last how it ended.
Said = Printed | Ending

_READ = 256 * 1024
#: Files of one `exec` are told apart from those of the next, also after a restart.
_EXEC_NUMBERS = itertools.count(1)


async def run_in_job(
    link: Link, key: str, argv: list[str], handed: bool = False
) -> AsyncIterator[Said]:
    """Its output as it comes, and last its ending; `handed`: what runs the job there is asked."""
    start, stop = ("exec_handed", "dismiss") if handed else ("exec", "stop")
    side = f"{key}.x{next(_EXEC_NUMBERS)}.{id(link) % 10**6}"
    await link.ask(start, key=key, new_key=side, argv=argv, env={})
    queue: asyncio.Queue[Printed | BaseException | None] = asyncio.Queue(8)

    async def pump(stream: str) -> None:
        offset = 0
        try:
            while True:
                header, blob = await link.ask(
                    "read", key=side, stream=stream, offset=offset, limit=_READ, wait=True
                )
                if blob:
                    await queue.put(Printed(stream, offset, blob))
                    offset += len(blob)
                if header["eof"]:
                    return await queue.put(None)
        except (HostError, AgentError) as error:
            await queue.put(error)

    pumps = [asyncio.create_task(pump(stream)) for stream in ("out", "err")]
    try:
        finished = 0
        while finished < len(pumps):
            item = await queue.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                finished += 1
            else:
                yield item
        answer, _ = await link.ask("observe", keys=[side])
        yield read_ending(answer["states"].get(side, {}).get("ending"), Clock())
    finally:
        for task in pumps:
            task.cancel()
        if not link.closed:
            await _settled(link.ask(stop, keys=[side], grace_s=1.0))
            await _settled(link.ask("forget", keys=[side]))


async def _settled(awaitable: Any) -> None:
    try:
        await awaitable
    except (HostError, AgentError):
        pass
