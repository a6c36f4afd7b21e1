"""Contents that travel while the snapshot they belong to is still being taken.

Where a job's machine is known beforehand and near, hashing and sending go on at the same time.
Nothing relies on it: what did not go ahead is sent when the snapshot is staged.
"""

import asyncio
import logging
import threading
import time
from weakref import WeakKeyDictionary

from towline.agent.link import Link
from towline.errors import AgentError, HostError

log = logging.getLogger("towline")

#: Contents travel in groups of so many bytes, and no more groups than this at the same time.
_GROUP = 1 << 20
_MOST_GROUPS = 12
#: A machine that takes longer to answer is not near: there the hashing is not what takes time.
_NEAR_S = 0.025

Contents = dict[str, bytes]
#: What is on its way, by channel.
_under_way: "WeakKeyDictionary[Link, set[asyncio.Task[None]]]" = WeakKeyDictionary()


class EagerUpload:
    """Sends what is offered, as long as the connection has room for it."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._room = threading.Semaphore(_MOST_GROUPS)
        self._group: Contents = {}
        self._bytes = 0
        self._is_near = False
        self._over = False

    def offer(self, digest: str, content: bytes) -> None:
        """One content that was read; called in the snapshot's thread, and never waits."""
        if self._over:
            return
        self._group[digest] = content
        self._bytes += len(content)
        if self._bytes >= _GROUP:
            if self._room.acquire(blocking=False):
                self._loop.call_soon_threadsafe(self._begin, self._group)
            self._group, self._bytes = {}, 0

    def _begin(self, group: Contents) -> None:
        task = self._loop.create_task(self._send(group))
        under_way = _under_way.setdefault(self._link, set())
        under_way.add(task)
        task.add_done_callback(under_way.discard)

    async def _send(self, group: Contents) -> None:
        try:
            if not self._over:
                await self._send_missing(group)
        except Exception as error:
            self._over = True  # staging says what is wrong
            if not isinstance(error, HostError | AgentError):
                log.exception("sending ahead")
        finally:
            self._room.release()

    async def _send_missing(self, group: Contents) -> None:
        asked = time.monotonic()
        answer, _ = await self._link.ask("missing", hashes=list(group))
        self._is_near = self._is_near or time.monotonic() - asked < _NEAR_S
        self._over = not self._is_near
        missing = [digest for digest in answer["missing"] if digest in group]
        if self._is_near and missing:
            names = [(digest, len(group[digest])) for digest in missing]
            body = b"".join(group[digest] for digest, _ in names)
            await self._link.ask("blobs", body, contents=names)


async def settle(link: Link) -> None:
    """Until what is on its way to a machine by now has arrived."""
    if under_way := _under_way.get(link):
        await asyncio.wait(set(under_way))
