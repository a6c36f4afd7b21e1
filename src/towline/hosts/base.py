"""A host is one way to reach one machine: the argv that opens a channel to a program over there."""

from typing import Protocol

from towline.errors import HostError


class Host(Protocol):
    """How to get a byte channel to `python3` on a machine."""

    #: What the user calls it.
    name: str
    #: What is dialled to reach it.
    place: str

    async def prepare(self) -> None:
        """Find out what `channel` wants to know; called before each. Nothing else does I/O."""

    def channel(self, boot: str, *arguments: str) -> list[str]:
        """The argv whose stdin and stdout lead to `python3 -c boot arguments...` over there."""

    def failure(self, returncode: int | None, stderr: str) -> HostError:
        """What it means that the channel closed before the agent spoke."""

    def login(self) -> list[str] | None:
        """The argv to run on a terminal when a person must log in; None if that never helps."""
