"""Lists of files that a machine tells in pages."""

from collections.abc import AsyncIterator
from typing import Any

from towline.backends.machines import Machines
from towline.errors import Nonsense
from towline.model.job import Job


async def pages(
    machines: Machines, job: Job, rank: int, op: str, **fields: Any
) -> AsyncIterator[list[dict[str, Any]]]:
    """All files that `op` lists, some at a time."""
    after = 0
    while True:
        header, _ = await machines.file_operation(job, rank, op, after=after, **fields)
        yield header["files"]
        following = header.get("next")
        if following is None:
            return
        if following <= after:
            raise Nonsense("a list of files has no end", hint="is Towline over there damaged?")
        after = following
