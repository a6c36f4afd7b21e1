"""Submissions under way, by what their senders call them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Keys:
    """Whoever asks again before the first answer came waits for it, and is given the same."""

    def __init__(self) -> None:
        self._under_way: dict[str, asyncio.Event] = {}

    @asynccontextmanager
    async def alone(self, key: str) -> AsyncIterator[None]:
        """While this lasts, nobody else submits under the key; without one, everybody may."""
        while key in self._under_way:
            await self._under_way[key].wait()
        over = asyncio.Event()
        if key:
            self._under_way[key] = over
        try:
            yield
        finally:
            self._under_way.pop(key, None)
            over.set()
