"""The data of a team where jobs run: by a common file system, wherever a node has that."""

import asyncio
import contextlib
import os
import secrets
from typing import Any

from towline.agent.frames import decode_json
from towline.engine.parts import EngineParts
from towline.errors import AgentError, HostError, UsageError
from towline.model.job import Job
from towline.model.machine import Slot
from towline.model.principal import AccountState
from towline.model.team.data import DomainKind, domains_of, variable
from towline.model.team.node import TeamNode
from towline.server.team.data.data import TeamData
from towline.server.team.nodes import Nodes
from towline.store.accounts import AccountRows

#: So long a node has to look; a file system that hangs must not keep anybody waiting.
_LOOK_S = 10.0
#: What is written on a node may be seen here a little later.
_SEEN_TRIES, _SEEN_S = 40, 0.05
#: Run on the node, by any Python 3: is the mark there, and is what is written there here?
_LOOK = """
import json, os, sys
root, mark, word, back = sys.argv[1:]
said = {"real": os.path.realpath(root), "why": ""}
try:
    with open(os.path.join(said["real"], mark)) as file:
        if file.read(1000) != word:
            said["why"] = "it is another one"
    if not said["why"]:
        with open(os.path.join(said["real"], back), "x") as file:
            file.write(word)
except (IOError, OSError) as problem:
    said["why"] = problem.strerror
print(json.dumps(said))
"""


class DataOnNodes:
    """Which nodes see the data, and what a job is told of it."""

    def __init__(self, data: TeamData, nodes: Nodes, accounts: AccountRows) -> None:
        self._data = data
        self._nodes = nodes
        self._accounts = accounts
        self._parts: EngineParts | None = None

    def begin(self, parts: EngineParts) -> None:
        """Before anything is started."""
        self._parts = parts
        parts.clusters.machines.data_for = self.of_job

    def of_job(self, job: Job, slot: Slot) -> dict[str, Any] | None:
        """What a job may see on a node: what its owner may, by the groups of now."""
        node, owner = self._nodes.all.get(slot.machine), job.spec.owner
        account = self._accounts.find(owner)
        if node is None or not node.data or account is None:
            return None
        if account.state is not AccountState.ACTIVE:
            return None
        places = {}
        for domain in domains_of(owner, self._accounts.groups_of(owner)):
            self._data.make(domain)
            mode = "ro" if domain.kind is DomainKind.SHARED else "rw"
            places[variable(domain)] = [os.path.join(node.data, domain.folder), mode]
        mark, word = self._data.mark
        return {"root": node.data, "mark": mark, "word": word, "places": places}

    async def checked(self, node: TeamNode, typed: str) -> str:
        """The folder that is typed, if it really is the server's data; as the node calls it."""
        if typed in ("", "none"):
            return ""
        if not os.path.isabs(typed) or "\0" in typed or len(typed) > 1000:
            raise UsageError(f"{typed[:100]!r} is not a whole path", "write it like data=/nfs/pit")
        real, why = await self._look(node, typed)
        if why:
            raise UsageError(
                f"{node.name} does not see the server's data at {typed}: {why}",
                f"{self._data.root} has to be there, for the account that {node.name} is used by",
            )
        return real

    async def problem(self, node: TeamNode) -> str:
        """Why jobs on a node have no data, as it is now; empty: they have."""
        if not node.data:
            return f"no common file system is set: pit set node:{node.name} data=PATH"
        _, why = await self._look(node, node.data)
        return f"at {node.data}: {why}" if why else ""

    async def _look(self, node: TeamNode, path: str) -> tuple[str, str]:
        """Where a path of a node leads to, and why that is not the data; empty: it is."""
        back = f".seen-{secrets.token_hex(16)}"
        mark, word = self._data.mark
        try:
            said = await self._asked(node, [path, mark, word, back])
        except (HostError, AgentError, TimeoutError) as error:
            return "", f"it cannot be asked: {error or 'no answer'}"
        if said.get("why"):
            return "", str(said["why"])
        if not await self._arrived(back, word):
            return "", "what is written there does not arrive on the server"
        return str(said["real"]), ""

    async def _asked(self, node: TeamNode, words: list[str]) -> dict[str, Any]:
        assert self._parts is not None
        driver = self._parts.clusters.machines.drivers.get(node.name)
        if driver is None or driver.link is None:
            raise HostError(f"{node.name} is not connected")
        argv = ["python3", "-c", _LOOK, *words]
        asking = driver.link.ask("call", argv=argv, login=None, timeout_s=_LOOK_S)
        answer, _ = await asyncio.wait_for(asking, 2 * _LOOK_S)
        if answer["code"]:
            raise HostError(str(answer["err"]).strip().rpartition("\n")[2] or "it did not answer")
        said = decode_json(str(answer["out"]).encode())
        return said if isinstance(said, dict) else {"why": "it says something else"}

    async def _arrived(self, name: str, word: str) -> bool:
        """Whether a file that a node wrote is here; it is removed again."""
        path = os.path.join(self._data.root, name)
        for _ in range(_SEEN_TRIES):
            with contextlib.suppress(OSError):
                if await asyncio.to_thread(_read, path) == word:
                    os.unlink(path)
                    return True
            await asyncio.sleep(_SEEN_S)
        return False


def _read(path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd) as file:
        return file.read(1000)
