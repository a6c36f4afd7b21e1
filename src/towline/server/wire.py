"""How things travel: JSON bodies, frame streams, errors in one shape."""

import asyncio
import hashlib
import logging
import sqlite3
from collections.abc import AsyncIterator
from typing import Any, TypeVar

import msgspec
from litestar import Request, Response
from litestar.response import Stream

from towline.agent.frames import decode_json, encode_json, pack
from towline.engine.follow import error_frame
from towline.engine.output import Frame
from towline.errors import EngineError, TowlineError, UsageError
from towline.version import __version__

log = logging.getLogger("towline")

VERSION_HEADER = "Towline-Version"
T = TypeVar("T")


def answer(body: Any, status: int = 200) -> Response[bytes]:
    return Response(
        encode_json(body),
        status_code=status,
        media_type="application/json",
        headers={VERSION_HEADER: __version__},
    )


def error_body(error: TowlineError) -> bytes:
    header, _ = error_frame(error)
    return encode_json(header)


async def body_as(request: Request[Any, Any, Any], kind: type[T]) -> T:
    """The body, checked; what is wrong with it is the sender's to mend."""
    raw = await request.body()
    try:
        return msgspec.convert(decode_json(raw or b"{}"), kind, strict=False)
    except RecursionError:
        raise UsageError("the request's body is nested too deeply") from None
    except (msgspec.ValidationError, ValueError) as error:
        raise UsageError(f"the request's body is wrong: {error}") from None


def number(request: Request[Any, Any, Any], name: str, default: int) -> int:
    typed = request.query_params.get(name)
    try:
        return default if typed in (None, "") else int(typed)
    except ValueError:
        raise UsageError(f"`{name}` takes a whole number, not {typed!r}") from None


def limit(request: Request[Any, Any, Any]) -> int | None:
    """At most so many, if that was said."""
    if not request.query_params.get("limit"):
        return None
    most = number(request, "limit", 0)
    if most < 1:
        raise UsageError(f"a list has at least 1 entry, not {most}")
    return min(most, 1 << 31)


def idempotency_key(request: Request[Any, Any, Any]) -> str:
    """What the sender calls this submission, so that asking again is safe."""
    key = str(request.headers.get("Idempotency-Key") or "")
    # Two long keys that begin alike are two keys.
    return key if len(key) <= 100 else "sha256:" + hashlib.sha256(key.encode()).hexdigest()


def frames(source: AsyncIterator[Frame]) -> Stream:
    """Frames as they come; an error becomes the last one. Closing the stream ends the source."""

    async def packed() -> AsyncIterator[bytes]:
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

    return Stream(
        packed(), media_type="application/x-towline-frames", headers={VERSION_HEADER: __version__}
    )
