"""What a backend is: the code that runs jobs on one kind of cluster.

The Engine gives orders (`start`, `stop`), which return at once; what came of them arrives as facts
through `report`. Starting is idempotent per attempt.
"""

from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

from towline.agent.link import Link
from towline.model.events import Fact
from towline.model.job import Job
from towline.model.request import Request

Report = Callable[[Fact], None]


class Guest(Protocol):
    """Someone who uses the channel to a machine too: the queue whose access node it is."""

    def is_busy(self) -> bool:
        """Whether it matters to be connected again soon."""

    async def greet(self, link: Link) -> None:
        """The channel is open, for the first time or again."""

    def heard(self, header: dict[str, Any]) -> None:
        """The agent said something unasked."""


class Backend(Protocol):
    #: True where the cluster has a queue of its own (Slurm, Grid Engine, a team's server).
    queues_itself: bool

    def start(self, job: Job, request: Request) -> None:
        """Start every process of the job's present attempt."""

    def find_again(self, job: Job, request: Request) -> None:
        """After a restart: report what has become of the job's present attempt."""

    def stop(self, job: Job, now: bool = False) -> None:
        """Stop every process of the job's present attempt, at once if `now`; asked again, ask it
        again of the machines."""

    def recall(self, job: Job) -> None:
        """Let the job's present attempt, which was sent ahead, come back unless it has begun."""

    def conclude(self, job: Job) -> None:
        """The attempt is over: stop watching it."""

    def sending(self, job: Job) -> tuple[int, int] | None:
        """How much of what the job needs is over there, and of how much, in bytes."""

    async def read_log(
        self, job: Job, rank: int, stream: str, offset: int, wait: bool
    ) -> tuple[bytes, bool]:
        """Bytes from `offset` on, and whether that is all there will ever be."""

    def printed(self, job: Job, rank: int, stream: str, offset: int) -> AsyncIterator[bytes]:
        """All that a process printed until now, from `offset` on."""

    async def file_operation(
        self, job: Job, rank: int, op: str, blob: bytes = b"", **fields: Any
    ) -> tuple[dict[str, Any], bytes]:
        """One of list, stat, get, put, walk in the folder of one process."""

    async def execute(self, job: Job, rank: int, argv: list[str]) -> AsyncIterator[dict[str, Any]]:
        """Run a command beside a process; yields its output and last its ending."""
        yield {}
