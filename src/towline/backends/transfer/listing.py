"""Lists of files that a machine tells, page by page or with what is in the short ones."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from towline.agent.link import Link
from towline.backends.terms import FileEntry, FileList, FoundFile
from towline.backends.transfer.flow import Flow
from towline.errors import AgentError, Nonsense

#: One answer brings about so much, and no more than so many are asked for ahead.
_TOGETHER = 256 << 10
_MOST_AHEAD = 64


async def pages(
    ask: Callable[[int], Coroutine[Any, Any, dict[str, Any]]],
) -> AsyncIterator[list[FileEntry]]:
    """All files of a list, some at a time; `ask(after)` asks for the page that begins there."""

    def soon(after: int) -> "asyncio.Task[dict[str, Any]]":
        return asyncio.get_running_loop().create_task(ask(after))

    after = 0
    page = soon(after)
    try:
        while True:
            header = await page
            following = header.get("next")
            if following is not None:
                if following <= after:
                    raise Nonsense(
                        "a list of files has no end", hint="is Towline over there damaged?"
                    )
                # The next one is on its way while this one is used.
                after, page = following, soon(following)
            yield header["files"]
            if following is None:
                return
    finally:
        page.cancel()
        await asyncio.gather(page, return_exceptions=True)


async def gathered(link: Link, of: FileList, **fields: Any) -> AsyncIterator[list[FoundFile]]:
    """All files of a list, some at a time, with the contents of short ones: one round trip."""
    with Flow[None](link) as flow:
        is_first = True
        while True:
            while flow.has_room and len(flow) < _MOST_AHEAD:
                flow.ask(None, _TOGETHER, "gather", of=of, first=is_first, **fields)
                is_first = False
            _, answer = await flow.take()
            if isinstance(answer, AgentError):
                raise answer
            header, blob = answer
            yield _with_contents(link, header["files"], memoryview(blob))
            if not header.get("more"):
                return


def _with_contents(link: Link, entries: list[FileEntry], contents: memoryview) -> list[FoundFile]:
    found, at = [], 0
    for entry in entries:
        size = entry.get("got")
        content = None if size is None else contents[at : at + size]
        if content is not None and len(content) < (size or 0):
            raise Nonsense(f"{link.name}: an answer with less in it than it says")
        at += size or 0
        found.append(FoundFile(entry, content))
    return found
