"""One queue: what is to be in it, and what has become of it.

Like the driver of a machine it holds a table of what is wanted, and mends the difference whenever
the channel opens. What happens on the nodes is told by files within a second; the queue itself is
asked seldom, by one call for all jobs.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from towline.agent.link import Link
from towline.agent.messages import Clock, Rank, read_ending, read_rank, read_record
from towline.backends.base import Report
from towline.backends.driver import Driver
from towline.backends.queue.commands import Commands, QueueSilent
from towline.backends.queue.dialect import Dialect
from towline.backends.queue.endings import EVICTED, TIME_WAS_OVER
from towline.backends.queue.handover import Handover, by_name
from towline.backends.queue.submitting import Submitter
from towline.backends.queue.watching import Watcher
from towline.backends.tasks import Tasks
from towline.errors import AgentError, HostError
from towline.model.events import AttemptEntered, AttemptWaits, ProcessEnded, ProcessStarted
from towline.model.job import ABSENT, Ending
from towline.model.names import shown_cluster

#: Runners tell times of the nodes, whose clocks are taken to agree with ours.
_OUR_CLOCK = Clock()
#: Most attempts named in one message.
_MANY = 500


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
    ) -> None:
        self.dialect = dialect
        self.title = dialect.title
        self.name = name
        self.engine_id = engine_id
        self.driver = driver
        self.report = report
        self.is_wanted = is_wanted
        self.wanted: dict[str, Handover] = {}
        self.commands = Commands(driver, dialect)
        self.submitter = Submitter(self)
        self._stopping: list[Handover] = []
        #: Attempts that nobody asks for any more, each with the ends that no file tells.
        self.concluded: dict[str, dict[str, str]] = {}
        self.tasks = Tasks(f"cluster {name}")
        self.watcher = Watcher(self)
        self.tasks.spawn(self.watcher.for_ever(), self._ask_again)
        driver.guest = self

    # --- what the backend asks ---------------------------------------------------------------

    def want(self, handover: Handover) -> None:
        if handover.key in self.wanted:
            return
        self.wanted[handover.key] = handover
        if self.driver.link is None:
            if not handover.started:
                self.tell(handover, self._silence())
        elif handover.sent:
            self.tasks.spawn(self.look(self.driver.link, [handover]), self._ask_again)
        else:
            self.submitter.offer([handover])

    def stop(self, key: str, now: bool = False) -> None:
        handover = self.wanted.get(key)
        if handover is None:
            return
        handover.stop, handover.stop_now = True, handover.stop_now or now
        if not handover.sent:
            self.end_all(handover, Ending(cause="void", text="stopped before it started"))
        elif self.driver.link is not None and handover.id:
            self.cancel_soon([handover])

    def cancel_soon(self, some: list[Handover]) -> None:
        """With all others that are stopped in the same moment."""
        if some and not self._stopping:
            asyncio.get_running_loop().call_soon(self._cancel_all)
        self._stopping += some

    def _cancel_all(self) -> None:
        some, self._stopping = self._stopping, []
        self.tasks.spawn(self.cancel(some), self._ask_again)

    def conclude(self, key: str) -> None:
        if (handover := self.wanted.pop(key, None)) is not None:
            self.concluded[key] = handover.verdicts
            self.submitter.ended()
            self.watcher.soon()

    def is_busy(self) -> bool:
        return bool(self.wanted)

    def close(self) -> None:
        self.tasks.close()

    def _ask_again(self, error: Exception) -> None:
        """With the next look at the queue: that mends every difference."""
        self.watcher.soon()

    # --- the channel -------------------------------------------------------------------------

    async def greet(self, link: Link) -> None:
        await link.ask("heed", prefix=self.engine_id)
        await self.commands.find(link)
        await self.look(link, [h for h in self.wanted.values() if h.sent])
        site = await self.commands.site(link)
        self.watcher.learn(site)
        self.submitter.limits.learn(site.longest)
        self.submitter.offer([handover for handover in self.wanted.values() if not handover.sent])
        self.watcher.soon()

    def heard(self, header: dict[str, Any]) -> None:
        if header.get("event") != "handed":
            return
        for key, seen in header["news"].items():
            whole, _, rank = key.rpartition("-")
            handover = self.wanted.get(whole)
            if handover is not None and rank in map(str, range(handover.count)):
                handover.claimed = True
                self._found(handover, int(rank), read_rank(seen))
            elif not self.is_wanted(whole):
                # Two clusters may share an access node and a folder there: only old news goes.
                self.concluded.setdefault(whole, {})

    def _silence(self) -> str:
        error = self.driver.error
        return error.text if error else f"connecting to {shown_cluster(self.driver.name)}"

    async def cancel(self, some: list[Handover]) -> None:
        """Have them stopped; none is taken for ours that only has the number of one of them."""
        link = self.driver.link
        if link is None or not some:
            return
        try:
            wishes = [handover for handover in some if handover.wants_cancel(time.time())]
            listed = by_name(await self.commands.list_entries(link) if wishes else ())
            ids = {one.id for handover in wishes for one in listed.get(handover.entry, ())}
            keys = [handover.key for handover in some]
            argv = self.dialect.cancel_words(ids) if ids else None
            at_once = [handover.key for handover in some if handover.stop_now]
            await link.ask(
                "stop_handed", keys=keys, now=at_once, argv=argv, login=self.commands.login
            )
        except (HostError, AgentError, QueueSilent):
            return  # asked again with the next look at the queue
        for handover in some:
            if not handover.id and handover.is_unsent(time.time()):
                self.end_all(handover, Ending(cause="void", text="stopped before it started"))
        self.watcher.soon()

    # --- what the files say ------------------------------------------------------------------

    async def look(self, link: Link, some: list[Handover]) -> dict[str, str]:
        """Ask the agent what is known of these; what each said outside of its processes."""
        said = {}
        for at in range(0, len(some), _MANY):
            part = {handover.key: handover for handover in some[at : at + _MANY]}
            keys = {key: handover.count for key, handover in part.items()}
            answer, _ = await link.ask("handed", keys=keys)
            for key, handover in part.items():
                known = read_record(answer["handed"].get(key))
                handover.recorded(
                    known.array, self.dialect.read_ticket(known.ticket), known.claim.split()
                )
                said[key] = known.said
                for rank, seen in enumerate(known.ranks[: handover.count]):
                    self._found(handover, rank, read_rank(seen))
        self.watcher.soon()
        return said

    def _found(self, handover: Handover, rank: int, seen: Rank) -> None:
        if rank in handover.ended:
            return
        if seen.state == "ended" and seen.ending is not None:
            ending = read_ending(seen.ending, _OUR_CLOCK)
            if ending.cause == ABSENT:
                ending = self.driver.mended(handover.snapshots, ending)
            if ending.started:
                self._begin(handover, rank, ending.started, seen)
            if ending.cause == EVICTED and not handover.stop:
                self._evicted(handover, rank, ending)
            else:
                self.end(handover, rank, ending, "" if rank in handover.started else seen.node)
        elif seen.state == "running" and (seen.run or 0) >= handover.run:
            self._begin(handover, rank, seen.started, seen)
        elif seen.state == "waiting" and seen.run is not None and rank in handover.started:
            handover.run = seen.run
            self.requeued(handover, TIME_WAS_OVER if seen.why == "timeout" else "")

    def _begin(self, handover: Handover, rank: int, at: float, seen: Rank) -> None:
        handover.run, handover.again = seen.run or 0, False
        if rank not in handover.started:
            handover.begun_at = time.time()
            handover.started.add(rank)
            handover.reason = ""
            handover.node, handover.word, handover.expected, handover.place = (
                seen.node,
                "",
                0.0,
                (0, 0),
            )
            self.enter(handover, number=handover.id)
            self.report(ProcessStarted(handover.job, handover.attempt, rank, at, seen.node))

    def _evicted(self, handover: Handover, rank: int, ending: Ending) -> None:
        if rank not in handover.evicted:
            handover.evicted[rank] = ending
            handover.over_since = handover.over_since or time.time()
            self.watcher.soon()

    def requeued(self, handover: Handover, why: str = "") -> None:
        """The queue will start it again by itself: same entry of the queue, same attempt."""
        handover.started.clear()
        handover.again, handover.over_since, handover.run = True, 0.0, handover.run + 1
        handover.reason = f"in {self.title}'s queue again" + (f": {why}" if why else "")
        self.report(AttemptWaits(handover.job, handover.attempt, handover.reason, again=True))
        self.enter(handover, requeued_at=time.time(), requeued=why)
        self.watcher.soon()
        if not why and self.driver.link is not None:
            asking = self.watcher.explain_requeue(self.driver.link, handover)
            self.tasks.spawn(asking, lambda error: None)  # then nobody knows why

    # --- telling -----------------------------------------------------------------------------

    def tell(self, handover: Handover, reason: str) -> None:
        if handover.reason != reason and not handover.stop:
            handover.reason = reason
            self.report(AttemptWaits(handover.job, handover.attempt, reason))

    def enter(self, handover: Handover, **facts: Any) -> None:
        """The queue has said what it calls an attempt."""
        called = replace(handover.called, **facts)
        if called != handover.called:
            handover.called = called
            self.report(AttemptEntered(handover.job, handover.attempt, called))

    def end(self, handover: Handover, rank: int, ending: Ending, node: str = "") -> None:
        if rank not in handover.ended:
            handover.ended.add(rank)
            self.report(ProcessEnded(handover.job, handover.attempt, rank, ending, node=node))

    def end_all(self, handover: Handover, ending: Ending) -> None:
        """By our own or the queue's word; that is written down, so that none begins after all."""
        for rank in range(handover.count):
            if rank not in handover.ended:
                handover.verdicts[f"{handover.key}-{rank}"] = ending.text or ending.cause
            # What began has made and printed something, whoever tells how it ended.
            began = handover.begun_at if rank in handover.started else 0.0
            self.end(handover, rank, replace(ending, started=began))
