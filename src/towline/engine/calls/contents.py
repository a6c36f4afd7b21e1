"""Contents by their hashes: what somebody sent, and what is still here of it."""

import asyncio
from collections.abc import Collection, Sequence

from towline.engine.parts import EngineParts
from towline.model.principal import Principal
from towline.snapshot.blobs import BlobStore


class ContentCalls:
    """A hash proves nothing: only what somebody sent is that one's to use."""

    def __init__(self, parts: EngineParts) -> None:
        self._engine = parts.engine
        self._blobs = parts.fleet.blobs

    def blobs(self, who: Principal) -> BlobStore:
        """Where contents are put; what of them is somebody's, `note` says."""
        return self._blobs

    def sent(self, who: Principal, hashes: Sequence[str]) -> Collection[str]:
        """Those of some contents that somebody sent."""
        return self._engine.store.contents.sent(who.name, hashes)

    async def missing(self, who: Principal, hashes: Sequence[str]) -> list[str]:
        """Those of some contents that somebody never sent, or that are here no more."""
        sent = self.sent(who, hashes)

        def lacking() -> list[str]:
            return [
                one for one in dict.fromkeys(hashes) if one not in sent or not self._blobs.has(one)
            ]

        return await asyncio.to_thread(lacking)

    async def note(self, who: Principal, hashes: Sequence[str]) -> None:
        """Write down that somebody sent these."""
        contents = self._engine.store.contents
        await self._engine.in_turn(lambda: contents.add(who.name, hashes))
