"""Answers that come bit by bit: frames, bytes and events."""

import asyncio
import logging
import socket
import sqlite3
from collections.abc import AsyncIterator

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from towline.agent.frames import pack
from towline.engine.following.follow import error_frame
from towline.engine.following.output import Frame
from towline.errors import EngineError, TowlineError
from towline.forward.tunnels import Carry
from towline.server.endpoints import VERSION_HEADER
from towline.version import __version__

_PIECE = 65536
log = logging.getLogger("towline")


class Frames(StreamingResponse):
    """Frames as they come; an error becomes the last one. Closing the stream ends the source."""

    media_type = "application/x-towline-frames"

    def __init__(self, source: AsyncIterator[Frame]) -> None:
        super().__init__(_packed(source), headers={VERSION_HEADER: __version__})


class Bytes(StreamingResponse):
    """The bytes of a file."""

    media_type = "application/octet-stream"

    def __init__(self, pieces: AsyncIterator[bytes], headers: dict[str, str]) -> None:
        super().__init__(pieces, headers={VERSION_HEADER: __version__, **headers})


class Connected(Response):
    """A connection, both ways at once: what is sent goes to it, and what it says is the answer."""

    media_type = Bytes.media_type

    def __init__(self, carry: Carry) -> None:
        super().__init__(headers={VERSION_HEADER: __version__})
        # Its end is that of the connection, which nobody knows before.
        del self.headers["content-length"]
        self._carry = carry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        ours, theirs = socket.socketpair()
        there = await asyncio.open_connection(sock=theirs)
        reader, writer = await asyncio.open_connection(sock=ours)
        head = {"type": "http.response.start", "status": self.status_code}
        await send({**head, "headers": self.raw_headers})
        carrying = asyncio.create_task(_closed_after(self._carry, *there))
        up = asyncio.create_task(_upwards(receive, writer))
        try:
            while piece := await reader.read(_PIECE):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            writer.close()
            for task in (up, carrying):
                task.cancel()
            await asyncio.gather(up, carrying, return_exceptions=True)


async def _closed_after(
    carry: Carry, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    try:
        await carry(reader, writer)
    finally:
        writer.close()


async def _upwards(receive: Receive, writer: asyncio.StreamWriter) -> None:
    """What is sent, until its sender has no more to say, or is gone."""
    more = True
    while (message := await receive())["type"] != "http.disconnect":
        if not more:
            continue  # from here on there is only its leaving to be heard
        writer.write(message.get("body", b""))
        await writer.drain()
        more = message.get("more_body", False)
        if not more:
            writer.write_eof()
    writer.close()


class Events(StreamingResponse):
    """Server-sent events."""

    media_type = "text/event-stream"

    def __init__(self, lines: AsyncIterator[bytes], headers: dict[str, str]) -> None:
        own = {VERSION_HEADER: __version__, "Cache-Control": "no-store"}
        super().__init__(lines, headers={**own, **headers})


class Text(Response):
    """Text for programs."""

    media_type = "text/plain; version=0.0.4"

    def __init__(self, text: bytes) -> None:
        super().__init__(text, headers={VERSION_HEADER: __version__})


async def _packed(source: AsyncIterator[Frame]) -> AsyncIterator[bytes]:
    try:
        async for header, blob in source:
            yield pack(header, blob)
    except TowlineError as error:
        yield pack(*error_frame(error))
    except (OSError, sqlite3.Error) as error:
        log.exception("a stream")
        yield pack(*error_frame(EngineError(f"the Engine failed: {error}", "tow engine log")))
    except (asyncio.CancelledError, GeneratorExit):
        raise
    finally:
        close = getattr(source, "aclose", None)
        if close is not None:
            await close()
