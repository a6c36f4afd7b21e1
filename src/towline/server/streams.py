"""Answers that come bit by bit: frames, bytes and events."""

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator

from starlette.responses import StreamingResponse

from towline.agent.frames import pack
from towline.engine.following.follow import error_frame
from towline.engine.following.output import Frame
from towline.errors import EngineError, TowlineError
from towline.server.endpoints import VERSION_HEADER
from towline.version import __version__

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


class Events(StreamingResponse):
    """Server-sent events."""

    media_type = "text/event-stream"

    def __init__(self, lines: AsyncIterator[bytes], headers: dict[str, str]) -> None:
        own = {VERSION_HEADER: __version__, "Cache-Control": "no-store"}
        super().__init__(lines, headers={**own, **headers})


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
