"""The HTTP application: version check, errors in one shape, and the endpoints."""

from collections.abc import Callable, Mapping

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from towline.engine.api import EngineApi
from towline.engine.parts import EngineParts
from towline.errors import Forbidden, TowlineError
from towline.model.principal import Principal
from towline.server.endpoints import VERSION_HEADER, AppContext, Endpoint, json_response
from towline.server.peers import UID
from towline.server.problems import described
from towline.server.rights import RIGHTS, Right, check, check_complete
from towline.server.routes import ENDPOINTS
from towline.server.routes.engine import retire_with
from towline.version import __version__
from towline.workspace.local import LocalWorkspace

_OWN_VERSION = (VERSION_HEADER.lower().encode(), __version__.encode())


#: From the user at the other end, as a number, to who that is here; Forbidden for nobody.
Introduce = Callable[[int], Principal]


def make_app(
    parts: EngineParts, workspace: LocalWorkspace, introduce: Introduce, retire: Callable[[], None]
) -> ASGIApp:
    """The whole API of one Engine; `retire` lets it end."""
    endpoints = [*ENDPOINTS, retire_with(retire)]
    app = application(AppContext(EngineApi(parts), workspace), endpoints, RIGHTS)
    return _Middleware(parts, introduce, app)


def application(
    context: AppContext, endpoints: list[Endpoint], rights: Mapping[tuple[str, str], Right]
) -> Starlette:
    """All endpoints behind their rights; whoever is at the door says who asks."""
    check_complete(((one.method, one.path) for one in endpoints), rights)
    return Starlette(
        routes=[
            *(one.route(context, rights[one.method, one.path]) for one in endpoints),
            *_described(endpoints),
        ],
        # What no endpoint serves; endpoints answer for their own errors.
        exception_handlers={HTTPException: _no_such_endpoint, TowlineError: _no_such_endpoint},
    )


def _described(endpoints: list[Endpoint]) -> list[Route]:
    """The description of the API, for programs and for people."""

    async def for_programs(request: Request) -> Response:
        check(request.state.who, Right.LOOK)
        from towline.server.openapi import document

        return json_response(document(endpoints))

    async def for_people(request: Request) -> Response:
        check(request.state.who, Right.LOOK)
        from towline.server.openapi import page

        return HTMLResponse(page(endpoints))

    return [Route("/v1/schema/openapi.json", for_programs), Route("/v1/schema", for_people)]


class _Middleware:
    """Count who is inside, and refuse strangers, and clients of another version, before anything
    is done.

    A newer one replaces this Engine first; an older one comes again without saying its version.
    """

    def __init__(self, parts: EngineParts, introduce: Introduce, app: ASGIApp) -> None:
        self._parts = parts
        self._introduce = introduce
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        parts = self._parts
        parts.in_flight += 1
        try:
            await self._enter(scope, receive, send)
        finally:
            parts.in_flight -= 1
            parts.engine.last_active = parts.engine.clock()

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
