"""The HTTP application: version check, errors in one shape, and the endpoints."""

from collections.abc import Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from towline.engine.api import Desk
from towline.errors import Forbidden
from towline.model.principal import Principal
from towline.server.endpoints import VERSION_HEADER, Endpoint, json_response
from towline.server.peers import UID
from towline.server.problems import described
from towline.server.rights import RIGHTS, check_complete
from towline.server.routes import ENDPOINTS
from towline.server.routes.engine import retire_with
from towline.version import __version__
from towline.workspace.local import LocalWorkspace

_OWN_VERSION = (VERSION_HEADER.lower().encode(), __version__.encode())


#: From the user at the other end, as a number, to who that is here; Forbidden for nobody.
Introduce = Callable[[int], Principal]


def make_app(
    desk: Desk, workspace: LocalWorkspace, introduce: Introduce, retire: Callable[[], None]
) -> ASGIApp:
    """The whole API of one Engine; `retire` lets it end."""
    endpoints = [*ENDPOINTS, retire_with(retire)]
    check_complete((one.method, one.path) for one in endpoints)
    app = Starlette(
        routes=[
            *(one.route(desk, workspace, RIGHTS[one.method, one.path]) for one in endpoints),
            *_described(endpoints),
        ],
        # What no endpoint serves; endpoints answer for their own errors.
        exception_handlers={HTTPException: _no_such_endpoint},
    )
    return _Door(desk, introduce, app)


def _described(endpoints: list[Endpoint]) -> list[Route]:
    """The description of the API, for programs and for people."""

    async def for_programs(request: Request) -> Response:
        from towline.server.openapi import document

        return json_response(document(endpoints))

    async def for_people(request: Request) -> Response:
        from towline.server.openapi import page

        return HTMLResponse(page(endpoints))

    return [Route("/v1/schema/openapi.json", for_programs), Route("/v1/schema", for_people)]


class _Door:
    """Count who is inside, and refuse strangers, and clients of another version, before anything
    is done.

    A newer one replaces this Engine first; an older one comes again without saying its version.
    """

    def __init__(self, desk: Desk, introduce: Introduce, app: ASGIApp) -> None:
        self._desk = desk
        self._introduce = introduce
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        desk = self._desk
        desk.visitors += 1
        try:
            await self._enter(scope, receive, send)
        finally:
            desk.visitors -= 1
            desk.engine.last_active = desk.engine.clock()

    async def _enter(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                scope["state"]["who"] = self._introduce(scope["state"][UID])
            except Forbidden as error:
                status, body = described(error)
                await json_response(body, status)(scope, receive, send)
                return
            sent = dict(scope["headers"]).get(_OWN_VERSION[0])
            retiring = scope["path"] == "/v1/engine/retire"
            if sent is not None and sent != _OWN_VERSION[1] and not retiring:
                await _other_version(sent.decode(errors="replace"))(scope, receive, send)
                return
        await self._app(scope, receive, send)


async def _no_such_endpoint(_: Request, error: Exception) -> Response:
    status, body = described(error)
    return json_response(body, status)


def _other_version(sent: str) -> Response:
    text = f"this Engine is version {__version__}, the command is version {sent}"
    return json_response({"error": {"code": "version", "text": text, "hint": ""}, "exit": 1}, 409)
