"""A team's server without a network, with data in it."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from server.team_house import TeamHouse
from towline.client.transport import with_query
from towline.model.principal import Token
from towline.server.team.passwords import digest_of, new_secret


class DataHouse(TeamHouse):
    """Ann is in the group staff; ben is in none."""

    async def fill(self) -> None:
        self.engine.store.accounts.add_group("staff", "")
        self.engine.store.accounts.add_member("staff", "ann")
        for name in ("root", "ann", "ben"):
            self.tokens[name] = secret = new_secret()
            token = Token(name, name, "here", 0.0, self.now + 1e6, self.now)
            self.engine.store.tokens.add(digest_of(secret), token)
        self.root = Path(self.team.data.root)

    async def do(self, who: str, method: str, what: str, raw: bytes = b"", **query: Any) -> Any:
        """Status and answer; `what` is a domain and one of its routes."""
        domain, _, route = what.partition("/")
        return await self.ask(
            who, method, with_query(f"/v1/data/{domain}/{route}", **query), raw=raw
        )

    async def put(self, who: str, domain: str, path: str, data: bytes, **more: Any) -> Any:
        """A whole file, as a client sends it: announced, then in pieces."""
        about = {
            "path": path,
            "size": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
            **more,
        }
        status, answer = await self.do(who, "POST", f"{domain}/file", **about)
        while status == 200 and not answer["complete"]:
            at = answer["offset"]
            piece = data[at : at + 100_000]
            status, answer = await self.do(who, "PUT", f"{domain}/file", piece, **about, offset=at)
        return status, answer

    async def names(self, who: str, domain: str, path: str = "") -> list[str]:
        status, answer = await self.do(who, "GET", f"{domain}/files", path=path)
        assert status == 200, answer
        return [f"{one['kind']} {one['name']}" for one in answer["entries"]]


def played(folder: Path, scenario: Callable[[DataHouse], Awaitable[None]]) -> None:
    async def play() -> None:
        house = DataHouse(folder)
        try:
            await house.fill()
            await scenario(house)
        finally:
            await house.close()

    asyncio.run(play())


def refused(answer: Any) -> tuple[int, str]:
    status, body = answer
    return status, body["error"]["code"] if isinstance(body, dict) and "error" in body else ""
