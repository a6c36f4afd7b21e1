"""What is done on a machine besides running jobs: look at it, and remove what nobody needs."""

import time
from collections.abc import AsyncIterator, Iterable, Sequence

from towline.agent.link import Link
from towline.agent.messages import read_walls
from towline.backends.terms import DiskUse, Examined, Swept
from towline.core.garbage import Folder
from towline.errors import AgentError
from towline.model.machine import Walls
from towline.model.names import shown_cluster

#: Most folders named in one message.
_MANY = 500


class Upkeep:
    """`link` is the open channel to the machine."""

    def __init__(self, link: Link, root: str) -> None:
        self._link = link
        self._root = root
        self.python = str(link.hello.get("python", ""))

    async def folders(self, prefix: str) -> AsyncIterator[list[Folder]]:
        """The job folders whose keys begin like this, by key, some at a time."""
        after, more = "", True
        while more:
            answer, _ = await self._link.ask("sizes", prefix=prefix, after=after)
            some = [Folder(*entry) for entry in answer["folders"]]
            more = answer["more"]
            if more and not (some and some[-1].key > after):
                name = shown_cluster(self._link.host.name)
                raise AgentError(f"{name}: its agent lists the same job folders over and over")
            after = some[-1].key if some else after
            yield some

    async def forget(self, keys: Iterable[str]) -> set[str]:
        """Remove job folders; those that went. What has not ended there stays."""
        gone: set[str] = set()
        for some in _parts(keys):
            answer, _ = await self._link.ask("forget", keys=some)
            gone.update(answer["forgotten"])
        return gone

    async def shrink(self, keys: Iterable[str]) -> int:
        """Leave only what the jobs made; the bytes that went."""
        freed = 0
        for some in _parts(keys):
            answer, _ = await self._link.ask("shrink", keys=some)
            freed += answer["bytes"]
        return freed

    async def sweep(
        self, unused_s: float, full_s: float, keep: float, dry: bool, without: Sequence[str]
    ) -> Swept:
        """Remove contents that were not used for so long; for less time, while more than `keep`
        bytes are there. `without` are job folders that count as gone."""
        swept, _ = await self._link.ask(
            "sweep", dry=dry, without=[*without], unused_s=unused_s, full_s=full_s, keep=keep
        )
        return Swept(swept["snapshots"], swept["blobs"], swept["bytes"])

    async def disk(self) -> DiskUse:
        answer, _ = await self._link.ask("disk")
        return DiskUse(answer["jobs"], answer["folders"], answer["contents"], answer["free"])

    async def walls(self) -> Walls:
        """Whether jobs can be walled in there; where that was not found out yet, it tries it."""
        answer, _ = await self._link.ask("walls")
        return read_walls(answer.get("walls"))

    async def examine(self) -> Examined:
        """What the machine measures now, and how far its clock is ahead."""
        asked = time.time()
        answer, _ = await self._link.ask("probe")
        raw, hello = answer["raw"], self._link.hello
        return Examined(
            raw,
            clock_s=raw.get("time", asked) - (asked + time.time()) / 2,
            root=str(hello.get("root", self._root)),
            logout_ends_jobs=bool(hello.get("logout_ends_jobs")),
            walls=await self.walls(),
        )


def _parts(keys: Iterable[str]) -> Iterable[list[str]]:
    """As many as one message names."""
    them = list(keys)
    return (them[at : at + _MANY] for at in range(0, len(them), _MANY))
