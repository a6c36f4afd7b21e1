"""Ports of a machine's loopback, reachable here: each connection travels over the agent's channel.

The local port stays open while the channel breaks and comes back; only connections that were open
at that moment end. Flow control: each side has at most one window unacknowledged, so memory is
bounded. A side that is held up by it says so, and gets a larger one where what came so far was
taken quickly: it is the way that is long then, and not whoever reads that is slow.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

from towline.agent.link import Link
from towline.errors import AgentError, HostError, TowlineError

#: What the agent is to dial: `port`, or `key` and `service` of a job.
Where = dict[str, Any]
#: Joins a connection to where it leads, until it is over; TowlineError where it cannot be reached.
Carry = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

WINDOW = 1024 * 1024
MOST_WINDOW = 16 * WINDOW
_CHUNK = 256 * 1024
_OPENING_S = 30
_numbers = itertools.count(1)


async def answers(link: Link, where: Where) -> bool:
    """Whether something over there takes connections."""
    number = next(_numbers)
    try:
        await link.ask("dial", stream=number, **where)
    except AgentError:
        return False
    link.send({"stream": number, "close": True})
    return True


class ForwardTunnel:
    """One connection: a local socket here, a dialled port over there."""

    def __init__(
        self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.link = link
        self.number = next(_numbers)
        self.reader = reader
        self.writer = writer
        self._credit = WINDOW
        self._may_send = asyncio.Event()
        self._may_send.set()
        #: What the other side may have sent without our having taken it, and how much that is.
        self._window = WINDOW
        self._unread = 0
        self._inbox: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def run(self, where: Where) -> None:
        self.link.streams[self.number] = self._received
        try:
            await self._dial(where)
            up = asyncio.create_task(self._upwards())
            try:
                await self._downwards()
            finally:
                up.cancel()
        except (HostError, AgentError, ConnectionError):
            pass
        finally:
            self.link.streams.pop(self.number, None)
            self.link.send({"stream": self.number, "close": True})
            self.writer.close()

    async def _dial(self, where: Where) -> None:
        """The way to a node inside a cluster may have to be opened first."""
        for _ in range(_OPENING_S):
            try:
                await self.link.ask("dial", stream=self.number, **where)
                return
            except AgentError as error:
                if error.code != "opening":
                    raise
            await asyncio.sleep(1.0)

    def _received(self, header: dict[str, Any], blob: bytes) -> None:
        self._unread += len(blob)
        if self._unread > self._window + WINDOW:
            # It does not keep to what was agreed, so it is not heard any more.
            header, blob = {"close": True}, b""
        if blob:
            self._inbox.put_nowait(blob)
        if "credit" in header:
            self._credit += header["credit"]
            self._may_send.set()
        if header.get("more"):
            self._widen()
        if header.get("eof") or header.get("close"):
            self._inbox.put_nowait(None)

    def _widen(self) -> None:
        """Let more be on its way, if it is not us who hold it up."""
        more = min(self._window, MOST_WINDOW - self._window)
        if more and self._unread <= self._window // 2:
            self._window += more
            self.link.send({"stream": self.number, "credit": more})

    async def _upwards(self) -> None:
        while True:
            data = await self.reader.read(_CHUNK)
            if not data:
                self.link.send({"stream": self.number, "eof": True})
                return
            while self._credit <= 0:
                self._may_send.clear()
                self.link.send({"stream": self.number, "more": True})
                await self._may_send.wait()
            self._credit -= len(data)
            self.link.send({"stream": self.number}, data)
            await self.link.writable()

    async def _downwards(self) -> None:
        while (data := await self._inbox.get()) is not None:
            self.writer.write(data)
            await self.writer.drain()
            self._unread -= len(data)
            self.link.send({"stream": self.number, "credit": len(data)})


class Forward:
    """A local port that leads to a port of a job's machine for as long as it is kept."""

    def __init__(self, job: int, port: int, carry: Carry) -> None:
        self.job = job
        self.port = port
        self._carry = carry
        self._server: asyncio.Server | None = None
        self.local = 0

    async def open(self, local: int) -> int:
        """Listen on loopback only; 0 means any free port."""
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", local, limit=2 * _CHUNK
        )
        self.local = self._server.sockets[0].getsockname()[1]
        return self.local

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._carry(reader, writer)
        except TowlineError:
            writer.close()
