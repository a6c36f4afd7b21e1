"""How often a connection may break before a transfer gives up."""

from collections.abc import Awaitable, Callable
from typing import Any

from towline.agent.link import Link
from towline.errors import HostError

#: Connects, or waits for the connection to come back; the link, and whose files they are.
Reach = Callable[[], Awaitable[tuple[Link, str]]]
#: So often in a row it may break without a byte having travelled.
_MOST_CUTS = 5


class TransferPatience:
    """Endless as long as something travels between two cuts."""

    def __init__(self) -> None:
        self._cuts = 0

    def renew(self) -> None:
        self._cuts = 0

    def lose(self, error: HostError) -> None:
        """A connection broke; raise that if it breaks all the time."""
        self._cuts += 1
        if self._cuts >= _MOST_CUTS:
            raise error


async def ask_patiently(reach: Reach, op: str, **fields: Any) -> dict[str, Any]:
    """Ask something that may be done twice: a broken connection means that it is asked again."""
    patience = TransferPatience()
    while True:
        link, key = await reach()
        try:
            header, _ = await link.ask(op, key=key, **fields)
            return header
        except HostError as error:
            patience.lose(error)
