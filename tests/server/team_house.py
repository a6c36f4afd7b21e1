"""A team's server without a network: its application, and people who are signed in."""

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from starlette.types import Message, Scope

from towline.backends.registry import make_backends
from towline.engine.api import EngineApi
from towline.engine.engine import Engine
from towline.engine.parts import EngineParts
from towline.model.principal import Account
from towline.server.app import application
from towline.server.endpoints import AppContext
from towline.server.rights import TEAM_RIGHTS
from towline.server.routes.team import TEAM_ENDPOINTS
from towline.server.team.middleware import TeamMiddleware
from towline.server.team.passwords import digest_of, hash_password, new_secret
from towline.server.team.running import team_workspace
from towline.server.team.settings import Registration, TeamPaths, TeamSettings
from towline.server.team.team import Team
from towline.snapshot.blobs import BlobStore
from towline.store.store import Store

PASSWORD = "correct horse battery"


class TeamHouse:
    """root administers; ann and ben are members; tokens are made as signing in makes them."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.paths = TeamPaths(str(folder))
        (folder / "results").mkdir()
        self.now = 1_000_000.0
        self.engine = Engine(Store(self.paths.store_file), lambda: self.now)
        blobs = BlobStore(str(folder / "blobs"))
        backends = make_backends("e", self.engine.report, blobs, lambda _: None, 60.0)
        given = {"registration": Registration.OPEN, **settings}
        self.settings = TeamSettings("https://127.0.0.1:1", isolation="none", **given)
        self.team = Team(self.engine, self.paths, self.settings)
        self.workspace = team_workspace(self.engine, blobs, self.team)
        self.parts = EngineParts(self.engine, backends, self.paths, self.workspace)
        self.team.begin(self.parts, lambda: self.workspace.places(None))
        self.heard: list[tuple[str, int, float]] = []
        context = AppContext(EngineApi(self.parts), self.workspace, self.team)
        app = application(context, TEAM_ENDPOINTS, TEAM_RIGHTS)
        self.door = TeamMiddleware(self.parts, self.team, app, lambda *one: self.heard.append(one))
        self.running = asyncio.create_task(self.engine.run())
        hashed = hash_password(PASSWORD)
        self.tokens: dict[str, str] = {"": ""}
        for name in ("root", "ann", "ben"):
            self.engine.store.accounts.add(
                Account(name, password=hashed, administrator=name == "root", created=self.now)
            )

    async def sign_in(self, *names: str) -> None:
        for name in names or ("root", "ann", "ben"):
            self.tokens[name], _, _ = await self.team.accounts.sign_in(name, PASSWORD, "here")

    async def ask(
        self, who: str, method: str, target: str, body: Any = None, raw: bytes | None = None
    ) -> tuple[int, Any]:
        """The status, and the answer: as JSON if it is that."""
        parts = urlsplit(target)
        secret = self.tokens.get(who, who)
        headers = [(b"authorization", f"Bearer {secret}".encode())] if secret else []
        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "path": parts.path,
            "raw_path": parts.path.encode(),
            "query_string": parts.query.encode(),
            "headers": headers,
            "client": ("10.0.0.1", 1),
        }
        left = [json.dumps(body or {}).encode() if raw is None else raw]
        status, answer = 0, bytearray()

        async def receive() -> Message:
            if not left:
                await asyncio.get_running_loop().create_future()
            return {"type": "http.request", "body": left.pop(), "more_body": False}

        async def send(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            answer.extend(message.get("body", b""))

        await self.door(scope, receive, send)
        try:
            return status, json.loads(bytes(answer))
        except ValueError:
            return status, bytes(answer)

    async def close(self) -> None:
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)
        await self.parts.close()
        self.team.close()


def expired_token(house: TeamHouse, account: str) -> str:
    """A token that was good once."""
    from towline.model.principal import Token

    secret = new_secret()
    token = Token(secret[-12:], account, "old", 0.0, house.now - 1.0, 0.0)
    digest = digest_of(secret)
    house.engine.store.tokens.add(digest, token)
    return secret
