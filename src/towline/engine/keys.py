"""Submissions under way, by what their senders call them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Keys:
    """Whoever asks again before the first answer came waits for it, and is given the same."""

    def __init__(self) -> None:
        #: Whose they are, and what that one calls them.
        self._under_way: dict[tuple[str, str], asyncio.Event] = {}

    @asynccontextmanager
    async def alone(self, owner: str, key: str) -> AsyncIterator[None]:
        """While this lasts, nobody else submits under the key; without one, everybody may."""
        mine = (owner, key)
        while mine in self._under_way:
            await self._under_way[mine].wait()
        over = asyncio.Event()
        if key:
            self._under_way[mine] = over
        try:
            yield
        finally:
            if key:
                del self._under_way[mine]
            over.set()
