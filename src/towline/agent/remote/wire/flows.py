"""Requests for many bytes, served in turn, so that none of them keeps anybody waiting.

Whoever wants a lot asks for it in pieces, under the number of a flow. Pieces of different flows
alternate, and none is read before the one before it is nearly out: what is short and urgent, a
line of a log or a key that was pressed, never has more than one piece in front of it.
"""

import collections

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..typed import Message

#: More than this waiting to go out, and pieces wait too.
FULL = 256 << 10


class Flows:
    """Fair queueing: the flows take turns, the requests of one keep their order."""

    def __init__(self) -> None:
        self.queues: "collections.OrderedDict[Any, collections.deque[tuple[Message, bytes]]]"
        self.queues = collections.OrderedDict()

    def __bool__(self) -> bool:
        return bool(self.queues)

    def add(self, request: "Message", blob: bytes) -> None:
        """Queue a request with a `flow`."""
        self.queues.setdefault(request["flow"], collections.deque()).append((request, blob))

    def take(self) -> "tuple[Message, bytes]":
        """The next request; its flow goes to the end of the line."""
        flow, queue = next(iter(self.queues.items()))
        taken = queue.popleft()
        if queue:
            self.queues.move_to_end(flow)
        else:
            del self.queues[flow]
        return taken

    def drop(self, request: "Message", _blob: bytes) -> None:
        """Forget what was asked under a flow: nobody waits for it any more."""
        self.queues.pop(request.get("drop"), None)
