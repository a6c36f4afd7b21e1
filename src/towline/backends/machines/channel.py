"""Keep a channel to one machine open: dial, notice that it broke, dial again with a back-off."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from towline.agent.link import Link
from towline.errors import AgentError, HostError, Unreachable, Unusable
from towline.hosts.base import Host
from towline.hosts.ssh import needs_person
from towline.model.names import shown_cluster

log = logging.getLogger("towline")

#: A channel that is silent for this much longer than it should be is dead, whatever ssh believes.
_SILENCE_S = 30.0
#: So long it may take until all is said that is said first; a Slurm may be asked several things.
_GREETING_S = 300.0
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 60.0
#: The same while something is wanted there.
_LONGEST_PAUSE_BUSY_S = 15.0


class ChannelGuest(Protocol):
    """Someone who uses the channel to a machine too: the queue whose access node it is."""

    def is_busy(self) -> bool:
        """Whether it matters to be connected again soon."""

    async def greet(self, link: Link) -> None:
        """The channel is open, for the first time or again."""

    def heard(self, header: dict[str, Any]) -> None:
        """The agent said something unasked."""


class Channel:
    """`begin` asks what does not depend on who answers, `greet` is awaited with each new link;
    `down` hears of each failure, `busy` tells whether it matters to be back soon."""

    def __init__(
        self,
        host: Host,
        root: str,
        greet: Callable[[Link], Awaitable[None]],
        down: Callable[[HostError], None],
        event: Callable[[dict[str, Any], bytes], None],
        busy: Callable[[], bool],
        speaks_every_s: float,
        begin: Callable[[Link], None] = lambda link: None,
    ) -> None:
        self.host = host
        self.link: Link | None = None
        #: The one that is just being connected.
        self.dialled: Link | None = None
        #: Set once the machine was called for the first time, whether it answers or not.
        self.called = asyncio.Event()
        self.error: HostError | None = None
        #: When it last went up or down.
        self.since = time.time()
        self._root = root
        self._begin = begin
        self._greet = greet
        self._down = down
        self._event = event
        self._busy = busy
        self._silence_s = _SILENCE_S + speaks_every_s
        self._heard = 0.0
        #: When the machine last said anything; 0: never yet.
        self._heard_at = 0.0
        self._greeted = False
        self._broken = asyncio.Event()
        self._redial = asyncio.Event()
        self._tried = asyncio.Event()
        #: How many dials were begun, and which of them failed last.
        self._dials = self._failed = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """What people call the machine."""
        return shown_cluster(self.host.name)

    @property
    def state(self) -> str:
        if self.link is not None:
            return "online"
        return "offline" if self.error else "connecting"

    @property
    def heard_at(self) -> float:
        """When the machine last said anything, or was first asked for."""
        lately = self.link.heard_at if self.link is not None else 0.0
        return max(self._heard_at, lately) or self.since

    @property
    def silent_since(self) -> float | None:
        """When the machine was last heard of, or first asked for; None while it answers."""
        return None if self.link is not None or not self.error else self._heard_at or self.since

    def open(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self.link is not None:
            self.link.close()

    def redial(self) -> None:
        """Try now, not when the back-off says."""
        self._redial.set()

    async def reach(self, timeout_s: float = 40.0, patient: bool = True) -> Link:
        """The open channel, waiting for it if need be; not `patient`: for one try."""
        self.open()
        # Since it failed last, somebody may have logged in: a dial that is under way does not know.
        before = self._dials if self.error is not None else -1
        if self.error is not None:
            self.redial()
        try:
            async with asyncio.timeout(timeout_s):
                # A link that broke this moment is still here until it is dialled again.
                while self.link is None or self.link.closed or not self._greeted:
                    self._tried.clear()
                    await self._tried.wait()
                    if self.error is None or self._failed == before:
                        continue
                    if not (patient and self.error.transient):
                        raise self.error
        except TimeoutError:
            raise self.error or Unreachable(f"{self.name}: does not answer") from None
        return self.link

    def present(self) -> Link:
        """The open channel, without waiting for one."""
        if self.link is None or self.link.closed or not self._greeted:
            raise self.error or Unreachable(f"{self.name}: does not answer")
        return self.link

    async def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            began = time.monotonic()
            try:
                is_sound = await self._once()
            except Exception as error:
                # Whatever went wrong here, this machine is dialled again.
                log.error("machine %s", self.host.name, exc_info=error)
                is_sound = False
            if is_sound or time.monotonic() - began > _LONGEST_PAUSE_S:
                pause_s = _FIRST_PAUSE_S
            if not is_sound:
                await self._sleep(_LONGEST_PAUSE_S if needs_person(self.error) else pause_s)
                longest = _LONGEST_PAUSE_BUSY_S if self._busy() else _LONGEST_PAUSE_S
                pause_s = min(pause_s * 2, longest)

    async def _once(self) -> bool:
        """Dial, and watch the channel until it breaks; whether it may be dialled again at once."""
        self._dials += 1
        try:
            link = await self._dial()
        except Exception as error:
            self._lost(self._explained(error))
            return False
        await self._watch(link)
        self._lost(self.error or Unreachable(f"{self.name}: the connection broke"))
        return not link.spoke_nonsense

    def _explained(self, error: Exception) -> HostError:
        if isinstance(error, HostError):
            return error
        if isinstance(error, AgentError):
            return Unreachable(str(error))
        log.error("machine %s does not greet as expected", self.host.name, exc_info=error)
        return Unusable(f"{self.name}: its agent does not greet as expected: {error}")

    def _begin_with(self, link: Link) -> None:
        self.dialled = link
        self._begin(link)

    async def _dial(self) -> Link:
        self._broken.clear()
        try:
            link = await Link.dial(
                self.host, self._root, self._received, self._closed, self._begin_with
            )
            self.called.set()
            try:
                await link.greeted()
            except BaseException:
                link.close()
                raise
        finally:
            self.dialled = None
        self._heard, self._heard_at = time.monotonic(), time.time()
        try:
            self.link, self.error, self.since = link, None, time.time()
            async with asyncio.timeout(_GREETING_S):
                await self._greet(link)
        except TimeoutError:
            link.close()
            raise Unreachable(f"{self.name}: its agent does not answer") from None
        except BaseException:
            link.close()
            raise
        self._greeted = True
        self._tried.set()
        return link

    async def _watch(self, link: Link) -> None:
        """Until it breaks, or is silent although it should speak every few seconds."""
        while not link.closed:
            left_s = self._silence_s - (time.monotonic() - self._heard)
            if left_s <= 0:
                link.close()
                return
            try:
                async with asyncio.timeout(left_s):
                    await self._broken.wait()
            except TimeoutError:
                pass

    def _received(self, header: dict[str, Any], blob: bytes) -> None:
        self._heard, self._heard_at = time.monotonic(), time.time()
        self._event(header, blob)

    def _closed(self, error: HostError) -> None:
        self.error = error
        self._broken.set()

    def _lost(self, error: HostError) -> None:
        self._heard_at = max(self._heard_at, self.link.heard_at if self.link is not None else 0.0)
        if self.link is not None or self.error is None:
            self.since = time.time()
        self.link, self.error, self._greeted = None, error, False
        self._failed = self._dials
        self.called.set()
        self._down(error)
        self._tried.set()

    async def _sleep(self, pause_s: float) -> None:
        try:
            async with asyncio.timeout(pause_s * random.uniform(0.8, 1.2)):
                await self._redial.wait()
        except TimeoutError:
            pass
        self._redial.clear()
