"""One queue: what is to be in it, and what has become of it.

Like the driver of a machine it holds a table of what is wanted, and mends the difference whenever
the channel opens. What happens on the nodes is told by files within a second; the queue itself is
asked seldom, by one call for all jobs.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from towline.agent.link import Link
from towline.backends.base import QueueSilent, Report
from towline.backends.machines.driver import Driver
from towline.backends.queue import facts
from towline.backends.queue.commands import Commands
from towline.backends.queue.dialect import Dialect, Site
from towline.backends.queue.files import Files
from towline.backends.queue.handover import Followed, Handover
from towline.backends.queue.readings import Readings
from towline.backends.queue.state import Place
from towline.backends.queue.submitting import Submitter
from towline.backends.queue.table import Table
from towline.backends.queue.times import Times
from towline.backends.queue.watching import Watcher
from towline.backends.tasks import Tasks
from towline.errors import AgentError, HostError
from towline.model.names import shown_cluster

_TIMES = Times()


class Queue:
    """`is_wanted` says of a key whether this queue or another of the same Engine wants it."""

    def __init__(
        self,
        dialect: Dialect,
        name: str,
        engine_id: str,
        driver: Driver,
        report: Report,
        is_wanted: Callable[[str], bool],
        times: Times = _TIMES,
    ) -> None:
        self.dialect = dialect
        self.name = name
        self.engine_id = engine_id
        self.driver = driver
        self.report = report
        self.is_wanted = is_wanted
        self.table = Table(times, self._carry_out)
        self.wanted, self.concluded = self.table.wanted, self.table.concluded
        self.commands = Commands(driver, dialect)
        self.tasks = Tasks(f"cluster {name}")
        self.readings = Readings(self.table, driver)
        self.files = Files(self.table, driver, self.commands, self.readings)
        self.submitter = Submitter(engine_id, self.table, driver, self.commands, self.tasks)
        self.watcher = Watcher(name, self.table, driver, self.commands, self.files)
        #: What the site says of its queue, once it was asked.
        self.site = Site()
        #: Jobs that it would take, by what they ask for: when it said so, and what.
        self.would_take: dict[str, tuple[float, str]] = {}
        self._stopping: list[Handover] = []
        #: What attempts follow of which the order to start them has not come.
        self._follows: dict[str, tuple[Followed, ...] | None] = {}
        #: Those that may begin by our word, which has not been told over there.
        self._released: set[str] = set()
        self._releasing: asyncio.Handle | None = None
        self.tasks.spawn(self.watcher.for_ever(), self._ask_again)
        self.tasks.spawn(self.readings.for_ever(), lambda error: None)
        driver.guest = self

    # --- what the backend asks ---------------------------------------------------------------

    def want(self, handover: Handover) -> None:
        if handover.key in self.wanted:
            return
        self.wanted[handover.key] = handover
        handover.follows = self._follows.pop(handover.key, handover.follows)
        link = self.driver.link
        if link is None:
            self.table.take(handover, facts.Unreachable(self._silence()))
        elif handover.attempt.place is Place.NOT_SENT:
            self.submitter.offer([handover])
        else:
            self.tasks.spawn(self._look(link, [handover]), self._ask_again)

    def follow(self, key: str, follows: tuple[Followed, ...] | None) -> None:
        """Say what an attempt follows, before it is wanted or later."""
        handover = self.wanted.get(key)
        if handover is None:
            self._follows[key] = follows
        elif handover.follows != follows:
            handover.follows = follows
            self.table.take(handover, facts.Rechained())
            self.submitter.again()
            if follows == () and handover.attempt.place is not Place.NOT_SENT:
                self.release(key)

    def release(self, key: str) -> None:
        """Have it said over there that an attempt may begin, whatever is known there."""
        self._released.add(key)
        if self._releasing is None:
            self._releasing = asyncio.get_running_loop().call_soon(self._release_soon)

    def _release_soon(self) -> None:
        self._releasing = None
        if self.driver.link is not None:
            self.tasks.spawn(self._release(self.driver.link), self._ask_again)

    async def _release(self, link: Link) -> None:
        """What cannot be told now is when the channel is open again."""
        keys = self._released & self.wanted.keys()
        try:
            if keys:
                await link.ask("release_handed", keys=sorted(keys))
            self._released -= keys
        except (HostError, AgentError):
            return

    def stop(self, key: str, now: bool = False) -> None:
        if (handover := self.wanted.get(key)) is not None:
            self.table.take(handover, facts.StopAsked(now))

    def conclude(self, key: str) -> None:
        if (handover := self.wanted.pop(key, None)) is not None:
            self.concluded[key] = handover.attempt.verdicts
            self._released.discard(key)
            self.submitter.ended()
            self.watcher.soon()

    def is_busy(self) -> bool:
        return bool(self.wanted)

    def close(self) -> None:
        self.tasks.close()

    # --- what attempts order -----------------------------------------------------------------

    def _carry_out(self, handover: Handover, order: facts.Order) -> None:
        """Do what an attempt orders; who asks the queue and the files sees to the rest."""
        match order:
            case facts.Report(fact):
                self.report(fact)
            case facts.Submit():
                self.submitter.offer([handover])
            case facts.Stop():
                self._stop_soon(handover)
            case facts.AskSoon():
                self.watcher.soon()
            case facts.ExplainReturn() if self.driver.link is not None:
                asking = self.watcher.explain_return(self.driver.link, handover)
                self.tasks.spawn(asking, lambda error: None)  # then nobody knows why

    def _stop_soon(self, handover: Handover) -> None:
        """With all others that are stopped in the same moment."""
        if not self._stopping:
            asyncio.get_running_loop().call_soon(self._stop_all)
        self._stopping.append(handover)

    def _stop_all(self) -> None:
        some, self._stopping = self._stopping, []
        if self.driver.link is not None:
            self.tasks.spawn(self._stop(self.driver.link, some), self._ask_again)

    async def _stop(self, link: Link, some: list[Handover]) -> None:
        try:
            await self.files.stop(link, some)
        except (HostError, AgentError, QueueSilent):
            return  # asked again with the next look at the queue

    def _ask_again(self, error: Exception) -> None:
        """With the next look at the queue: that mends every difference."""
        self.watcher.soon()

    # --- the channel -------------------------------------------------------------------------

    async def greet(self, link: Link) -> None:
        await link.ask("heed", prefix=self.engine_id)
        await self.commands.find(link)
        await self._release(link)
        handovers = list(self.wanted.values())
        await self._look(link, [h for h in handovers if h.attempt.place is not Place.NOT_SENT])
        self.site = await self.commands.site(link)
        self.watcher.learn(self.site)
        self.submitter.learn(self.site)
        self.submitter.offer([h for h in self.wanted.values() if h.attempt.place is Place.NOT_SENT])
        self.watcher.soon()

    async def _look(self, link: Link, some: list[Handover]) -> None:
        await self.files.look(link, some)
        self.watcher.soon()

    def heard(self, header: dict[str, Any]) -> None:
        if header.get("event") != "handed":
            return
        for key, seen in header["news"].items():
            whole, _, rank = key.rpartition("-")
            handover = self.wanted.get(whole)
            if handover is not None and rank in map(str, range(handover.attempt.count)):
                self.files.take_rank(handover, int(rank), seen, is_news=True)
            elif not self.is_wanted(whole):
                # Two clusters may share an access node and a folder there: only old news goes.
                self.concluded.setdefault(whole, {})

    def _silence(self) -> str:
        error = self.driver.error
        return error.text if error else f"connecting to {shown_cluster(self.driver.name)}"
