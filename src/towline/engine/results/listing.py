"""Lists of files that a machine tells in pages."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from towline.backends.machines import Machines
from towline.errors import Nonsense
from towline.model.job import Job


async def pages(
    machines: Machines, job: Job, rank: int, op: str, **fields: Any
) -> AsyncIterator[list[dict[str, Any]]]:
    """All files that `op` lists, some at a time."""

    def ask(after: int) -> "asyncio.Task[Any]":
        asking = machines.file_operation(job, rank, op, after=after, **fields)
        return asyncio.get_running_loop().create_task(asking)

    after = 0
    page = ask(after)
    try:
        while True:
            header, _ = await page
            following = header.get("next")
            if following is not None:
                if following <= after:
                    raise Nonsense(
                        "a list of files has no end", hint="is Towline over there damaged?"
                    )
                # The next one is on its way while this one is used.
                after, page = following, ask(following)
            yield header["files"]
            if following is None:
                return
    finally:
        page.cancel()
        await asyncio.gather(page, return_exceptions=True)
