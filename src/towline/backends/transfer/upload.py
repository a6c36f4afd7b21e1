"""One transfer to a machine: pieces are sent before earlier ones are acknowledged.

What is not acknowledged is kept, and is sent again over the next connection.
"""

from collections import deque
from typing import Any

from msgspec import Struct

from towline.agent.link import Link
from towline.backends.transfer.flow import Flow
from towline.backends.transfer.patience import Reach, TransferPatience
from towline.errors import AgentError, HostError


class _Item(Struct, frozen=True):
    op: str
    blob: bytes
    fields: dict[str, Any]


class Upload:
    """Give it pieces with `send`, then `finish`; use it in a `with`."""

    def __init__(self, reach: Reach, **about: Any) -> None:
        self._reach = reach
        self._about = about
        self._patience = TransferPatience()
        self._link: Link | None = None
        self._flow: Flow[_Item] | None = None
        self._unacknowledged: deque[_Item] = deque()
        #: Something was sent again, which the machine may have had already.
        self._repeats = False

    def __enter__(self) -> "Upload":
        return self

    def __exit__(self, *_: object) -> None:
        self._disconnect()

    async def send(self, op: str, blob: bytes, **fields: Any) -> None:
        """Returns when more may be sent, which is long before it has arrived."""
        self._unacknowledged.append(_Item(op, blob, fields))
        flow = await self._connected()
        if len(flow) < len(self._unacknowledged):
            self._ask(flow, self._unacknowledged[-1])
        while not (flow := await self._connected()).has_room:
            await self._acknowledge(flow)

    async def finish(self) -> None:
        """Until all of it has arrived."""
        while self._unacknowledged:
            await self._acknowledge(await self._connected())

    async def _connected(self) -> "Flow[_Item]":
        """A flow on which everything was sent that is not acknowledged."""
        link, key = await self._reach()
        if self._flow is None or link is not self._link:
            self._disconnect()
            self._link, self._about["key"] = link, key
            self._flow = Flow[_Item](link, upwards=True)
            self._flow.__enter__()
            for item in self._unacknowledged:
                self._ask(self._flow, item)
        await self._link.writable()
        return self._flow

    def _disconnect(self) -> None:
        if self._flow is not None:
            self._flow.__exit__()
            self._flow = None
            self._repeats = bool(self._unacknowledged)

    def _ask(self, flow: "Flow[_Item]", item: _Item) -> None:
        fields = {**self._about, **item.fields}
        flow.ask(item, len(item.blob), item.op, item.blob, **fields)

    async def _acknowledge(self, flow: "Flow[_Item]") -> None:
        try:
            item, answer = await flow.take()
            if isinstance(answer, AgentError) and not await self._was_there(item, answer):
                raise answer
        except HostError as error:
            self._patience.lose(error)
            self._disconnect()
            return
        self._patience.renew()
        self._unacknowledged.popleft()

    async def _was_there(self, item: _Item, refusal: AgentError) -> bool:
        """Whether a piece is refused because its file was complete before the cut."""
        if not self._repeats or refusal.code != "bad_offset":
            return False
        path = item.fields["path"]
        ends = [
            other.fields["offset"] + len(other.blob)
            for other in self._unacknowledged
            if other.fields.get("path") == path and other.fields["last"]
        ]
        link, _ = await self._reach()
        header, _ = await link.ask("stat", path=path, **self._about)
        return header["size"] in ends
