"""What the jobs of a queue use on their nodes: their runners write it down, a line for each minute.

It is asked for about as often, for all of them at once. The last minute comes with a job's end, so
that nothing has to be asked for one that was short.
"""

import asyncio
import logging
from typing import Any

from towline.agent.link import Link
from towline.backends.base import HearReadings
from towline.backends.machines.driver import Driver
from towline.backends.queue.state import Place
from towline.backends.queue.table import Table
from towline.errors import AgentError, HostError
from towline.probes.use import readings_of

log = logging.getLogger("towline")

_EVERY_S = 60.0
#: Jobs that end together are asked about together.
_SOON_S = 1.0
_MANY = 500


class Readings:
    """`hear` gets them, by the keys of processes."""

    def __init__(self, table: Table, driver: Driver) -> None:
        self.table = table
        self.driver = driver
        self.hear: HearReadings = lambda readings: None
        #: Process -> when the last minute began that is known of it.
        self._since: dict[str, float] = {}
        #: Processes that have ended, of which there is more to read.
        self._owed: set[str] = set()
        self._wake = asyncio.Event()

    def take_end(self, key: str, ending: Any) -> None:
        """Take what comes with the end of a process; it may be told more than once."""
        if not isinstance(ending, dict) or "used" not in ending:
            return
        self.hear({key: readings_of([ending["used"]])})
        if ending.get("lines"):
            self._owed.add(key)
            self._wake.set()

    async def for_ever(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_EVERY_S):
                    await self._wake.wait()
                await asyncio.sleep(_SOON_S)
            except TimeoutError:
                pass
            self._wake.clear()
            if self.driver.link is None:
                continue
            try:
                await self._ask(self.driver.link)
            except (HostError, AgentError):
                pass  # asked again in a minute
            except Exception:
                log.exception("what jobs of %s use", self.driver.name)

    async def _ask(self, link: Link) -> None:
        running = {
            f"{one.key}-{rank}"
            for one in self.table.wanted.values()
            if one.attempt.place is Place.CLAIMED
            for rank in one.attempt.started - one.attempt.ended
        }
        self._since = {key: at for key, at in self._since.items() if key in running | self._owed}
        keys = [*running, *self._owed]
        for at in range(0, len(keys), _MANY):
            some = keys[at : at + _MANY]
            since = {key: self._since.get(key, 0.0) for key in some}
            answer, _ = await link.ask("samples", since=since)
            told = {key: readings_of(answer["samples"].get(key)) for key in some}
            self.hear({key: found for key, found in told.items() if found})
            for key, found in told.items():
                self._since[key] = max((one.at for one in found), default=since[key])
            self._owed.difference_update(some)
