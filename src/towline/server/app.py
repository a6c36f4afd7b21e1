"""The HTTP application: version check, errors in one shape, and the routes."""

import logging
from typing import Any

from litestar import Litestar, Request, Response
from litestar.datastructures import State
from litestar.enums import ScopeType
from litestar.exceptions import HTTPException
from litestar.openapi.config import OpenAPIConfig
from litestar.types import ASGIApp, Receive, Scope, Send

from towline.agent.frames import encode_json
from towline.engine.desk import Desk
from towline.errors import TowlineError, UsageError
from towline.server.routes import (
    batches,
    clusters,
    engine,
    events,
    files,
    housekeeping,
    jobs,
    limits,
    services,
    snapshots,
    transfers,
    trust,
)
from towline.server.wire import VERSION_HEADER, error_body
from towline.version import __version__

log = logging.getLogger("towline")
_OWN_VERSION = (VERSION_HEADER.lower().encode(), __version__.encode())


def make_app(desk: Desk, retire: Any) -> Litestar:
    return Litestar(
        route_handlers=[
            *engine.ROUTES,
            *jobs.ROUTES,
            *batches.ROUTES,
            *events.ROUTES,
            *files.ROUTES,
            *transfers.ROUTES,
            *clusters.ROUTES,
            *snapshots.ROUTES,
            *housekeeping.ROUTES,
            *limits.ROUTES,
            *services.ROUTES,
            *trust.ROUTES,
        ],
        state=State({"desk": desk, "retire": retire}),
        exception_handlers={
            TowlineError: _told,
            HTTPException: _http,
            OverflowError: _odd,
            RecursionError: _odd,
            UnicodeError: _odd,
            ValueError: _odd,
            Exception: _unexpected,
        },
        middleware=[_door(desk)],
        openapi_config=OpenAPIConfig(title="Towline", version=__version__, path="/v1/schema"),
        request_max_body_size=None,
        debug=False,
    )


def _door(desk: Desk) -> Any:
    """Count who is inside, and refuse clients of another version before anything is done.

    A newer one replaces this Engine first; an older one comes again without saying its version.
    """

    def counting(app: ASGIApp) -> ASGIApp:
        checked = _same_version(app)

        async def enter(scope: Scope, receive: Receive, send: Send) -> None:
            desk.visitors += 1
            try:
                await checked(scope, receive, send)
            finally:
                desk.visitors -= 1
                desk.engine.last_active = desk.engine.clock()

        return enter

    return counting


def _same_version(app: ASGIApp) -> ASGIApp:
    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == ScopeType.HTTP:
            sent = dict(scope["headers"]).get(_OWN_VERSION[0])
            retiring = scope["path"] == "/v1/engine/retire"
            if sent is not None and sent != _OWN_VERSION[1] and not retiring:
                await _refuse(send, sent.decode(errors="replace"))
                return
        await app(scope, receive, send)

    return checked


async def _refuse(send: Send, sent: str) -> None:
    text = f"this Engine is version {__version__}, the command is version {sent}"
    body = encode_json({"error": {"code": "version", "text": text, "hint": ""}, "exit": 1})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 409, "headers": [*headers, _OWN_VERSION]})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _told(_: Request[Any, Any, Any], error: TowlineError) -> Response[bytes]:
    return Response(error_body(error), status_code=error.status, media_type="application/json")


def _http(_: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    body = {"error": {"code": "usage", "text": str(error.detail), "hint": ""}, "exit": 2}
    return Response(encode_json(body), status_code=error.status_code, media_type="application/json")


def _odd(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Numbers, texts and nesting that nothing here can hold are the sender's to mend."""
    if isinstance(error, OverflowError):
        text = "a number in the request is too large"
    elif isinstance(error, RecursionError):
        text = "the request is nested too deeply"
    elif isinstance(error, UnicodeError):
        text = "a text in the request is not Unicode"
    elif "null byte" in str(error) or "null character" in str(error):
        text = "a path in the request has a NUL in it"
    else:
        return _unexpected(request, error)
    return _told(request, UsageError(text))


def _unexpected(_: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """A bug: the log has the traceback, the user a sentence."""
    log.error("unexpected", exc_info=error)
    text = f"the Engine failed unexpectedly: {type(error).__name__}: {error}"
    body = {
        "error": {"code": "bug", "text": text, "hint": "`tow engine log` shows more"},
        "exit": 1,
    }
    return Response(encode_json(body), status_code=500, media_type="application/json")
