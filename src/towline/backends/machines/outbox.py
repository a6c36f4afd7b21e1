"""On its way to one machine: snapshots first, then the starts of those that need them.

One job that cannot start ends with the reason, and those that travel with it go on without it.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from towline.agent.link import Answer, Link
from towline.agent.messages import readable
from towline.backends.machines.distance import Distance
from towline.backends.machines.wanted import WantedProcess
from towline.backends.staging.stage import Sending, ask_for, stage
from towline.backends.tasks import Tasks
from towline.errors import AgentError, HostError, TowlineError
from towline.model.job import Ending
from towline.snapshot.blobs import BlobStore

log = logging.getLogger("towline")

Order = dict[str, Any]

#: Most processes named in one message.
MANY = 2000
#: Most characters of commands and variables in one; as JSON each may take twelve bytes.
MOST_CHARACTERS = 4_000_000


#: What was sent anew so often in so many seconds does not stay there.
_MOST_MENDED, _LATELY_S = 3, 600.0
#: Of no more snapshots than this a machine is asked beforehand.
_MOST_EXPECTED = 16


class Outbox:
    """`link` is the open channel, `is_due` whether a process is still to be started; `end` hears of
    those that did not start, `settle` of those of which the machine must be told so."""

    def __init__(
        self,
        blobs: BlobStore,
        link: Callable[[], Link | None],
        is_due: Callable[[WantedProcess], bool],
        tasks: Tasks,
        end: Callable[[WantedProcess, Ending], None],
        settle: Callable[[str, Ending], None],
        distance: Distance | None = None,
    ) -> None:
        self._blobs = blobs
        self._link = link
        self._is_due = is_due
        self._tasks = tasks
        self._end = end
        self._settle = settle
        self._distance = distance or Distance(lambda away_s: None)
        self._waiting: list[WantedProcess] = []
        self._flushing = False
        self._staged: dict[str, asyncio.Task[None]] = {}
        #: Snapshots of which contents are gone over there, and when others were last sent anew.
        self._incomplete: set[str] = set()
        self._mended: dict[str, list[float]] = {}
        #: Snapshots that may be needed soon, and what the machine says to them.
        self._expected: dict[str, asyncio.Future[Answer] | None] = {}
        #: Snapshots that are on their way.
        self.sending: dict[str, Sending] = {}

    def offer(self, wanted: WantedProcess) -> None:
        """Collect what is to be started in this turn of the loop, and send it in one message."""
        self._waiting.append(wanted)
        if not self._flushing and self._link() is not None:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def expect(self, link: Link | None, snapshot: str) -> None:
        """A snapshot may be needed soon: ask whether it is there over a link that is just being
        connected, or else over the next one."""
        if len(self._expected) < _MOST_EXPECTED:
            self._expected[snapshot] = None if link is None else ask_for(link, snapshot)

    def begin(self, link: Link) -> None:
        """A link is being connected, perhaps to a machine that is another one or was tidied."""
        self._staged.clear()
        self._expected = {snapshot: ask_for(link, snapshot) for snapshot in self._expected}

    def forget_staged(self) -> None:
        """Snapshots there may be swept away: ask again before relying on one."""
        self._staged.clear()
        self._expected.clear()

    def mend(self, snapshots: tuple[str, ...]) -> bool:
        """Contents of these are gone over there: send them anew; False if that did not help."""
        now = time.monotonic()
        for snapshot in snapshots:
            if snapshot in self._incomplete:
                continue
            lately = [at for at in self._mended.get(snapshot, ()) if now - at < _LATELY_S]
            if len(lately) >= _MOST_MENDED:
                return False
            self._mended[snapshot] = [*lately, now]
            self._incomplete.add(snapshot)
            self._staged.pop(snapshot, None)
        return bool(snapshots)

    async def bring(self, link: Link, snapshots: tuple[str, ...]) -> None:
        """After this they are on the machine."""
        for snapshot in snapshots:
            task = self._staged.get(snapshot)
            if task is None or (task.done() and not self._is_staged(snapshot)):
                # Whoever awaits it ends what needs it.
                staging = self._stage(link, snapshot)
                task = self._staged[snapshot] = self._tasks.spawn(staging, lambda error: None)
            await asyncio.shield(task)

    def _flush(self) -> None:
        self._flushing = False
        link, waiting = self._link(), self._waiting
        self._waiting = []
        if link is None:
            return
        groups: dict[tuple[str, ...], list[WantedProcess]] = {}
        for wanted in filter(self._is_due, waiting):
            groups.setdefault(wanted.snapshots, []).append(wanted)
        for snapshots, some in groups.items():
            if all(self._is_staged(snapshot) for snapshot in snapshots):
                self._send(link, some)
            else:
                self._tasks.spawn(
                    self._stage_and_send(link, snapshots, some),
                    lambda error, some=some: self._give_up(some, error),  # type: ignore[misc]
                )

    def _is_staged(self, snapshot: str) -> bool:
        task = self._staged.get(snapshot)
        return task is not None and task.done() and not task.cancelled() and not task.exception()

    async def _stage(self, link: Link, snapshot: str) -> None:
        sending = self.sending[snapshot] = Sending()
        try:
            anew = snapshot in self._incomplete
            asked = self._expected.pop(snapshot, None)
            await stage(link, self._blobs, snapshot, sending, anew, asked)
            if anew:
                self._incomplete.discard(snapshot)
        finally:
            self.sending.pop(snapshot, None)

    async def _stage_and_send(
        self, link: Link, snapshots: tuple[str, ...], some: list[WantedProcess]
    ) -> None:
        try:
            await self.bring(link, snapshots)
        except HostError:
            return  # all of them go elsewhere, or are offered again
        except Exception as error:
            self._give_up(some, error)
            return
        self._send(link, list(filter(self._is_due, some)))

    def _give_up(self, some: list[WantedProcess], error: Exception) -> None:
        """What they need could not be brought to the machine."""
        for wanted in some:
            self._end(wanted, snapshot_failure(error))

    def _send(self, link: Link, some: list[WantedProcess]) -> None:
        if link.closed or not some:
            return
        for wanted in some:
            wanted.sent = True
        orders = [order for wanted in some if (order := self._order(wanted)) is not None]
        by_key = {wanted.key: wanted for wanted in some}
        for part in messages(orders):
            them = [by_key[order["key"]] for order in part]
            asked = link.ask_soon("start", jobs=part)
            self._tasks.spawn(
                self._started(link, asked, part, them),
                lambda error, them=them: self._refuse(them, error),  # type: ignore[misc]
            )

    def _order(self, wanted: WantedProcess) -> Order | None:
        try:
            return wanted.order() if wanted.order is not None else None
        except Exception as error:
            log.exception("the order of %s", wanted.key)
            self._refuse([wanted], error)
            return None

    async def _started(
        self, link: Link, asked: Awaitable[Answer], part: list[Order], them: list[WantedProcess]
    ) -> None:
        """Hear what the machine says to these starts; one that it refuses ends with its words."""
        began = time.monotonic()
        try:
            answer, _ = await asked
            self._distance.took(time.monotonic() - began)
        except AgentError as error:
            if len(them) == 1:
                self._refuse(them, error)
                return
            # Which of them it is about is found out one by one.
            for order, wanted in zip(part, them, strict=True):
                again = link.ask_soon("start", jobs=[order])
                await self._started(link, again, [order], [wanted])
            return
        refused = answer.get("refused", {})
        for wanted in them:
            if wanted.key in refused:
                text = f"{link.host.name}: {readable(refused[wanted.key]['text'])}"
                self._end(wanted, Ending(cause="refused", text=text, ended=time.time()))

    def _refuse(self, some: list[WantedProcess], error: Exception) -> None:
        text = error.text if isinstance(error, TowlineError) else f"it cannot be started: {error}"
        for wanted in some:
            # It may have been accepted all the same, so it is forbidden there, too.
            self._settle(wanted.key, Ending(cause="refused", text=text, ended=time.time()))


def snapshot_failure(error: Exception) -> Ending:
    """How jobs end whose snapshot did not get to their machine."""
    cause = "no_space" if isinstance(error, AgentError) and error.code == "no_space" else "snapshot"
    if isinstance(error, TowlineError):
        text = error.text
    elif isinstance(error, OSError):
        text = f"its files cannot be sent: {error.strerror}: {error.filename}"
    else:
        text = f"its files cannot be sent: {error}"
    return Ending(cause=cause, text=text, ended=time.time())


def messages(orders: list[Order]) -> Iterator[list[Order]]:
    """Orders in parts that are not too large for one message."""
    part: list[Order] = []
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


def weight_of(order: Order) -> int:
    """Characters of what may be long: the command and its variables."""
    variables = [order["env"], order["environ"] or {}]
    names_and_values = (text for some in variables for pair in some.items() for text in pair)
    return sum(map(len, order["argv"])) + sum(map(len, names_and_values))
