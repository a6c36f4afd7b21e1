"""The door of a team's server: who asks, how much they may send, and what is written down of it."""

import re
import time
from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from towline.engine.parts import EngineParts
from towline.errors import SignInWanted, TooLarge
from towline.model.principal import NOBODY
from towline.server.endpoints import json_response
from towline.server.problems import described
from towline.server.team.team import Team

MB = 1 << 20
#: What may be sent: of those who have not said who they are, in general, and for some paths.
_OF_NOBODY = 64 << 10
_OTHERWISE = 16 * MB
_MORE: tuple[tuple[re.Pattern[str], int], ...] = (
    # On its way to the disk, a frame at a time.
    (re.compile(r"/v1/contents$"), 64 << 30),
    (re.compile(r"/v1/snapshots|/v1/batches"), 256 * MB),
    # A piece of a file, which is written as it comes.
    (re.compile(r"/v1/data/[^/]+/file$"), 256 * MB),
    # Files and ports of jobs: it goes on to their machines as it comes, and is kept nowhere here.
    (re.compile(r"/v1/jobs/[0-9]+/(file|store|connect)"), 1 << 50),
)
_REFUSED = (401, 403, 413, 429)
Heard = Callable[[str, int, float], None]


class TeamMiddleware:
    """Recognise whoever asks by the token, before anything is done."""

    def __init__(self, parts: EngineParts, team: Team, app: ASGIApp, heard: Heard) -> None:
        self._parts = parts
        self._team = team
        self._app = app
        #: Is told method, status and seconds of every request, once it is answered.
        self._heard = heard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        parts = self._parts
        parts.in_flight += 1
        exchange = _Exchange(scope, receive, send)
        began = time.monotonic()
        try:
            await self._enter(exchange)
        finally:
            parts.in_flight -= 1
            parts.engine.last_active = parts.engine.clock()
            self._heard(scope["method"], exchange.status, time.monotonic() - began)
            self._note(exchange)

    async def _enter(self, exchange: "_Exchange") -> None:
        state = exchange.scope.setdefault("state", {})
        state.update(who=NOBODY, token="", audit=exchange.audit)
        secret = exchange.secret()
        try:
            if secret:
                state["who"], token = self._team.accounts.recognise(secret)
                state["token"] = token.id
                exchange.name, exchange.token = token.account, token.id
        except SignInWanted as error:
            # Who signs in, or only looks whether anybody is here, may have an old one.
            if not _needs_none(exchange.scope):
                status, body = described(error)
                await json_response(body, status)(exchange.scope, exchange.receive, exchange.send)
                return
        exchange.most = _most(exchange.scope["path"], exchange.name)
        await self._app(exchange.scope, exchange.receive, exchange.send)

    def _note(self, exchange: "_Exchange") -> None:
        scope = exchange.scope
        if scope["method"] in ("GET", "HEAD") and exchange.status not in _REFUSED:
            return
        client = scope.get("client")
        self._team.audit.note(
            at=round(self._parts.engine.clock(), 3),
            who=exchange.name,
            token=exchange.token,
            address=client[0] if client else "",
            method=scope["method"],
            path=scope["path"][:500],
            status=exchange.status,
            **exchange.audit,
        )


class _Exchange:
    """One request on its way through the door."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.name = ""
        self.token = ""
        self.status = 0
        self.most = _OF_NOBODY
        #: What whoever serves it has to add.
        self.audit: dict[str, object] = {}
        self._receive = receive
        self._send: Callable[[Message], Awaitable[None]] = send
        self._came = 0

    def secret(self) -> str:
        """The token, as it was sent."""
        for name, value in self.scope["headers"]:
            if name == b"authorization":
                kind, _, secret = value.decode("latin-1").partition(" ")
                return secret.strip() if kind.lower() == "bearer" else "?"
        return ""

    async def receive(self) -> Message:
        message = await self._receive()
        self._came += len(message.get("body", b""))
        if self._came > self.most:
            raise TooLarge(
                f"more than {self.most / MB:.3g} MB were sent at once", "send less at a time"
            )
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)


def _needs_none(scope: Scope) -> bool:
    at = (scope["method"], scope["path"])
    return at in (("POST", "/v1/tokens"), ("GET", "/v1/hello"), ("GET", "/healthz"))


def _most(path: str, name: str) -> int:
    if not name:
        return _OF_NOBODY
    return next((most for pattern, most in _MORE if pattern.match(path)), _OTHERWISE)
