"""Endpoints: what each takes and gives is said once, in the signature of its function.

A function gets the call, then by name: the parameters in its path, `query` (a struct of what
follows the `?`), and `body` (a struct of the JSON that is sent). What it returns is the answer: a
view from `towline.api`, or a stream. The OpenAPI document is made of the same signatures.
"""

import hashlib
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from towline.agent.frames import decode_json, encode_json
from towline.engine.api import EngineApi
from towline.errors import Forbidden, UsageError
from towline.model.principal import Principal
from towline.server.problems import described
from towline.server.rights import Right, check
from towline.version import __version__
from towline.workspace.base import Submitters
from towline.workspace.local import LocalWorkspace

if TYPE_CHECKING:
    # What it needs is not installed on laptops.
    from towline.server.team.team import Team

VERSION_HEADER = "Towline-Version"
T = TypeVar("T")
#: At most so many entries of a list.
Most = Annotated[int, msgspec.Meta(ge=1, le=2**31)]
Handler = Callable[..., Awaitable[Any]]
_IN_PATH = re.compile(r"{(\w+)")


class Call:
    """One request: who asks, and who serves it (the Engine, and the asker's own side)."""

    def __init__(self, context: "AppContext", request: Request) -> None:
        self.who: Principal = request.state.who
        self.api = context.api
        self.workspace = context.workspace
        self._context = context
        self._request = request

    @property
    def local(self) -> LocalWorkspace:
        """Folders and configuration of the Engine's own machine, which must be the asker's."""
        if not isinstance(self.workspace, LocalWorkspace):
            raise Forbidden("that can be asked of one's own Engine only, not of a team's server")
        return self.workspace

    @property
    def team(self) -> "Team":
        """What only a team's server has."""
        assert self._context.team is not None
        return self._context.team

    @property
    def address(self) -> str:
        """Where the request came from."""
        client = self._request.client
        return client.host if client else ""

    @property
    def token(self) -> str:
        """The id of the token that the request came with."""
        return str(getattr(self._request.state, "token", ""))

    def note(self, **about: Any) -> None:
        """Say more in the audit log than who asked for which path."""
        self._request.state.audit.update(about)

    @property
    def key(self) -> str:
        """What the sender calls this submission, so that asking again is safe."""
        key = self.header("Idempotency-Key")
        # Two long keys that begin alike are two keys.
        return key if len(key) <= 100 else "sha256:" + hashlib.sha256(key.encode()).hexdigest()

    def header(self, name: str) -> str:
        value: str = self._request.headers.get(name, "")
        return value

    def stream(self) -> AsyncIterator[bytes]:
        """What is sent, as it comes."""
        return self._request.stream()


class AppContext:
    """Who serves: an Engine, the side of whoever submits, and what a team has besides."""

    def __init__(self, api: EngineApi, workspace: Submitters, team: "Team | None" = None) -> None:
        self.api = api
        self.workspace = workspace
        self.team = team


class Endpoint:
    """One method of one path, and the function that serves it."""

    def __init__(self, method: str, path: str, serve: Handler) -> None:
        self.method = method
        self.path = path
        self.serve = serve
        hints = get_type_hints(serve, include_extras=True)
        names = list(inspect.signature(serve).parameters)
        in_path = set(_IN_PATH.findall(path))
        self.in_path: dict[str, type] = {name: hints[name] for name in names if name in in_path}
        self.query: type[msgspec.Struct] | None = hints.get("query")
        self.body: type[msgspec.Struct] | None = hints.get("body")
        self.answer: Any = hints["return"]

    @property
    def name(self) -> str:
        return self.serve.__name__

    @property
    def summary(self) -> str:
        return inspect.getdoc(self.serve) or ""

    def route(self, context: AppContext, right: Right) -> Route:
        async def respond(request: Request) -> Response:
            try:
                call = Call(context, request)
                check(call.who, right)
                answer = await self._answer_to(call, request)
            except Exception as error:
                status, body = described(error)
                return json_response(body, status)
            return answer if isinstance(answer, Response) else json_response(answer)

        return Route(self.path, respond, methods=[self.method])

    async def _answer_to(self, call: Call, request: Request) -> Any:
        given: dict[str, Any] = dict(request.path_params)
        if self.query is not None:
            given["query"] = _query_as(request, self.query)
        if self.body is not None:
            given["body"] = await _body_as(request, self.body)
        return await self.serve(call, **given)


def get(path: str) -> Callable[[Handler], Endpoint]:
    return lambda serve: Endpoint("GET", path, serve)


def post(path: str) -> Callable[[Handler], Endpoint]:
    return lambda serve: Endpoint("POST", path, serve)


def put(path: str) -> Callable[[Handler], Endpoint]:
    return lambda serve: Endpoint("PUT", path, serve)


def patch(path: str) -> Callable[[Handler], Endpoint]:
    return lambda serve: Endpoint("PATCH", path, serve)


def delete(path: str) -> Callable[[Handler], Endpoint]:
    return lambda serve: Endpoint("DELETE", path, serve)


def json_response(body: Any, status: int = 200) -> Response:
    headers = {VERSION_HEADER: __version__}
    return Response(encode_json(body), status, headers, media_type="application/json")


def _query_as(request: Request, kind: type[T]) -> T:
    """The parameters, checked; what is empty was not given."""
    given = {name: value for name, value in request.query_params.items() if value != ""}
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"a parameter of the request is wrong: {error}") from None


async def _body_as(request: Request, kind: type[T]) -> T:
    """The body, checked; what is wrong with it is the sender's to mend."""
    raw = await request.body()
    try:
        return msgspec.convert(decode_json(raw or b"{}"), kind, strict=False)
    except RecursionError:
        raise UsageError("the request's body is nested too deeply") from None
    except (msgspec.ValidationError, ValueError) as error:
        raise UsageError(f"the request's body is wrong: {error}") from None
