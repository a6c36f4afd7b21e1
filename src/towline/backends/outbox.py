"""On its way to one machine: snapshots first, then the starts of those that need them."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from towline.agent.link import Link
from towline.backends.staging import Sending, stage
from towline.backends.wanted import Wanted
from towline.errors import AgentError, HostError
from towline.model.job import Ending
from towline.snapshot.blobs import BlobStore

#: Most processes named in one message.
MANY = 2000
#: Most characters of commands and variables in one; as JSON each may take twelve bytes.
MOST_CHARACTERS = 4_000_000


class Outbox:
    """`link` is the open channel, `is_due` whether a process is still to be started, `spawn` runs
    something beside, and `end` hears of those that cannot start."""

    def __init__(
        self,
        blobs: BlobStore,
        link: Callable[[], Link | None],
        is_due: Callable[[Wanted], bool],
        spawn: Callable[[Coroutine[Any, Any, Any]], "asyncio.Task[Any]"],
        end: Callable[[Wanted, Ending], None],
    ) -> None:
        self._blobs = blobs
        self._link = link
        self._is_due = is_due
        self._spawn = spawn
        self._end = end
        self._waiting: list[Wanted] = []
        self._flushing = False
        self._staged: dict[str, asyncio.Task[None]] = {}
        #: Snapshots that are on their way.
        self.sending: dict[str, Sending] = {}

    def offer(self, wanted: Wanted) -> None:
        """Collect what is to be started in this turn of the loop, and send it in one message."""
        self._waiting.append(wanted)
        if not self._flushing and self._link() is not None:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def forget_staged(self) -> None:
        """Snapshots there may be swept away: ask again before relying on one."""
        self._staged.clear()

    async def bring(self, link: Link, snapshots: tuple[str, ...]) -> None:
        """After this they are on the machine."""
        for snapshot in snapshots:
            task = self._staged.get(snapshot)
            if task is None or (task.done() and not self._is_staged(snapshot)):
                task = self._staged[snapshot] = self._spawn(self._stage(link, snapshot))
            await asyncio.shield(task)

    def _flush(self) -> None:
        self._flushing = False
        link, waiting = self._link(), self._waiting
        self._waiting = []
        if link is None:
            return
        groups: dict[tuple[str, ...], list[Wanted]] = {}
        for wanted in filter(self._is_due, waiting):
            groups.setdefault(wanted.snapshots, []).append(wanted)
        for snapshots, some in groups.items():
            if all(self._is_staged(snapshot) for snapshot in snapshots):
                self._send(link, some)
            else:
                self._spawn(self._stage_and_send(link, snapshots, some))

    def _is_staged(self, snapshot: str) -> bool:
        task = self._staged.get(snapshot)
        return task is not None and task.done() and not task.cancelled() and not task.exception()

    async def _stage(self, link: Link, snapshot: str) -> None:
        sending = self.sending[snapshot] = Sending()
        try:
            await stage(link, self._blobs, snapshot, sending)
        finally:
            self.sending.pop(snapshot, None)

    async def _stage_and_send(
        self, link: Link, snapshots: tuple[str, ...], some: list[Wanted]
    ) -> None:
        try:
            await self.bring(link, snapshots)
        except AgentError as error:
            cause = "no_space" if error.code == "no_space" else "snapshot"
            for wanted in some:
                self._end(wanted, Ending(cause=cause, text=error.text, ended=time.time()))
            return
        except HostError:
            return
        self._send(link, list(filter(self._is_due, some)))

    def _send(self, link: Link, some: list[Wanted]) -> None:
        if link.closed or not some:
            return
        orders = []
        for wanted in some:
            wanted.sent = True
            if wanted.order is not None:
                orders.append(wanted.order())
        for part in messages(orders):
            self._spawn(quietly(link.ask_soon("start", jobs=part)))


def messages(orders: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Orders in parts that are not too large for one message."""
    part: list[dict[str, Any]] = []
    size = 0
    for order in orders:
        weight = weight_of(order)
        if part and (len(part) == MANY or size + weight > MOST_CHARACTERS):
            yield part
            part, size = [], 0
        part.append(order)
        size += weight
    if part:
        yield part


def weight_of(order: dict[str, Any]) -> int:
    """Characters of what may be long: the command and its variables."""
    variables = [order["env"], order["environ"] or {}]
    names_and_values = (text for some in variables for pair in some.items() for text in pair)
    return sum(map(len, order["argv"])) + sum(map(len, names_and_values))


async def quietly(awaitable: Any) -> None:
    """What was asked is asked again by reconciling if the channel breaks meanwhile."""
    try:
        await awaitable
    except (HostError, AgentError):
        pass
