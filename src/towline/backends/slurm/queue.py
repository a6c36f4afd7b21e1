"""One Slurm: what is to be in its queue, and what has become of it.

Like the driver of a machine it holds a table of what is wanted, and mends the difference whenever
the channel opens. What happens on the nodes is told by files within a second; Slurm itself is asked
seldom, by one call for all jobs.
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
from towline.backends.slurm.commands import Commands, SlurmSilent
from towline.backends.slurm.handed import Handed, by_attempt
from towline.backends.slurm.sending import Sending
from towline.backends.slurm.verdicts import EVICTED, TIME_WAS_OVER
from towline.backends.slurm.watch import Watch
from towline.backends.tasks import Tasks
from towline.errors import AgentError, HostError
from towline.model.events import AttemptEntered, AttemptWaits, ProcessEnded, ProcessStarted
from towline.model.job import ABSENT, Ending
from towline.model.names import shown_cluster
from towline.probes.slurm import joined, read_ticket

#: Runners tell times of the nodes, whose clocks are taken to agree with ours.
_OUR_CLOCK = Clock()
#: Most attempts named in one message.
_MANY = 500


class Queue:
    """`is_wanted` says of a key whether this queue or another of the same Engine wants it."""

    def __init__(
        self,
        name: str,
        engine_id: str,
        driver: Driver,
        report: Report,
        is_wanted: Callable[[str], bool],
    ) -> None:
        self.name = name
        self.engine_id = engine_id
        self.driver = driver
        self.report = report
        self.is_wanted = is_wanted
        self.wanted: dict[str, Handed] = {}
        self.commands = Commands(driver)
        self.sending = Sending(self)
        self._stopping: list[Handed] = []
        #: Attempts that nobody asks for any more, each with the ends that no file tells.
        self.concluded: dict[str, dict[str, str]] = {}
        self.tasks = Tasks(f"cluster {name}")
        self.watch = Watch(self)
        self.tasks.spawn(self.watch.for_ever(), self._ask_again)
        driver.guest = self

    # --- what the backend asks ---------------------------------------------------------------

    def want(self, handed: Handed) -> None:
        if handed.key in self.wanted:
            return
        self.wanted[handed.key] = handed
        if self.driver.link is None:
            if not handed.started:
                self.tell(handed, self._silence())
        elif handed.sent:
            self.tasks.spawn(self.look(self.driver.link, [handed]), self._ask_again)
        else:
            self.sending.offer([handed])

    def stop(self, key: str, now: bool = False) -> None:
        handed = self.wanted.get(key)
        if handed is None:
            return
        handed.stop, handed.stop_now = True, handed.stop_now or now
        if not handed.sent:
            self.end_all(handed, Ending(cause="void", text="stopped before it started"))
        elif self.driver.link is not None and handed.id:
            self.cancel_soon([handed])

    def cancel_soon(self, some: list[Handed]) -> None:
        """With all others that are stopped in the same moment."""
        if some and not self._stopping:
            asyncio.get_running_loop().call_soon(self._cancel_all)
        self._stopping += some

    def _cancel_all(self) -> None:
        some, self._stopping = self._stopping, []
        self.tasks.spawn(self.cancel(some), self._ask_again)

    def conclude(self, key: str) -> None:
        if (handed := self.wanted.pop(key, None)) is not None:
            self.concluded[key] = handed.verdicts
            self.sending.ended()
            self.watch.soon()

    def is_busy(self) -> bool:
        return bool(self.wanted)

    def close(self) -> None:
        self.tasks.close()

    def _ask_again(self, error: Exception) -> None:
        """With the next look at Slurm: that mends every difference."""
        self.watch.soon()

    # --- the channel -------------------------------------------------------------------------

    async def greet(self, link: Link) -> None:
        await link.ask("heed", prefix=self.engine_id)
        await self.commands.find(link)
        await self.look(link, [h for h in self.wanted.values() if h.sent])
        site = await self.commands.site(link)
        self.watch.learn(site)
        self.sending.limits.learn(site.longest)
        self.sending.offer([handed for handed in self.wanted.values() if not handed.sent])
        self.watch.soon()

    def heard(self, header: dict[str, Any]) -> None:
        if header.get("event") != "handed":
            return
        for key, seen in header["news"].items():
            whole, _, rank = key.rpartition("-")
            handed = self.wanted.get(whole)
            if handed is not None and rank in map(str, range(handed.count)):
                handed.claimed = True
                self._found(handed, int(rank), read_rank(seen))
            elif not self.is_wanted(whole):
                # Two clusters may share an access node and a folder there: only old news goes.
                self.concluded.setdefault(whole, {})

    def _silence(self) -> str:
        error = self.driver.error
        return error.text if error else f"connecting to {shown_cluster(self.driver.name)}"

    async def cancel(self, some: list[Handed]) -> None:
        """Have them stopped; none is taken for ours that only has the number of one of them."""
        link = self.driver.link
        if link is None or not some:
            return
        try:
            wishes = [handed for handed in some if handed.wants_scancel(time.time())]
            listed = by_attempt(await self.commands.list_jobs(link) if wishes else ())
            ids = {one.id for handed in wishes for one in listed.get(handed.entry, ())}
            keys = [handed.key for handed in some]
            argv = ["scancel", *joined(ids)] if ids else None
            at_once = [handed.key for handed in some if handed.stop_now]
            await link.ask(
                "stop_handed", keys=keys, now=at_once, argv=argv, login=self.commands.login
            )
        except (HostError, AgentError, SlurmSilent):
            return  # asked again with the next look at Slurm
        for handed in some:
            if not handed.id and handed.is_unsent(time.time()):
                self.end_all(handed, Ending(cause="void", text="stopped before it started"))
        self.watch.soon()

    # --- what the files say ------------------------------------------------------------------

    async def look(self, link: Link, some: list[Handed]) -> dict[str, str]:
        """Ask the agent what is known of these; what each said outside of its processes."""
        said = {}
        for at in range(0, len(some), _MANY):
            part = {handed.key: handed for handed in some[at : at + _MANY]}
            keys = {key: handed.count for key, handed in part.items()}
            answer, _ = await link.ask("handed", keys=keys)
            for key, handed in part.items():
                known = read_record(answer["handed"].get(key))
                handed.recorded(known.array, read_ticket(known.ticket), known.claim.split())
                said[key] = known.said
                for rank, seen in enumerate(known.ranks[: handed.count]):
                    self._found(handed, rank, read_rank(seen))
        self.watch.soon()
        return said

    def _found(self, handed: Handed, rank: int, seen: Rank) -> None:
        if rank in handed.ended:
            return
        if seen.state == "ended" and seen.ending is not None:
            ending = read_ending(seen.ending, _OUR_CLOCK)
            if ending.cause == ABSENT:
                ending = self.driver.mended(handed.snapshots, ending)
            if ending.started:
                self._begin(handed, rank, ending.started, seen)
            if ending.cause == EVICTED and not handed.stop:
                self._evicted(handed, rank, ending)
            else:
                self.end(handed, rank, ending, "" if rank in handed.started else seen.node)
        elif seen.state == "running" and (seen.run or 0) >= handed.run:
            self._begin(handed, rank, seen.started, seen)
        elif seen.state == "waiting" and seen.run is not None and rank in handed.started:
            handed.run = seen.run
            self.requeued(handed, TIME_WAS_OVER if seen.why == "timeout" else "")

    def _begin(self, handed: Handed, rank: int, at: float, seen: Rank) -> None:
        handed.run, handed.again = seen.run or 0, False
        if rank not in handed.started:
            handed.begun_at = time.time()
            handed.started.add(rank)
            handed.reason = ""
            handed.node, handed.word, handed.expected, handed.place = seen.node, "", 0.0, (0, 0)
            self.enter(handed, number=handed.id)
            self.report(ProcessStarted(handed.job, handed.attempt, rank, at, seen.node))

    def _evicted(self, handed: Handed, rank: int, ending: Ending) -> None:
        if rank not in handed.evicted:
            handed.evicted[rank] = ending
            handed.over_since = handed.over_since or time.time()
            self.watch.soon()

    def requeued(self, handed: Handed, why: str = "") -> None:
        """Slurm will start it again by itself: same entry of the queue, same attempt."""
        handed.started.clear()
        handed.again, handed.over_since, handed.run = True, 0.0, handed.run + 1
        handed.reason = "in Slurm's queue again" + (f": {why}" if why else "")
        self.report(AttemptWaits(handed.job, handed.attempt, handed.reason, again=True))
        self.enter(handed, requeued_at=time.time(), requeued=why)
        self.watch.soon()
        if not why and self.driver.link is not None:
            asking = self.watch.explain_requeue(self.driver.link, handed)
            self.tasks.spawn(asking, lambda error: None)  # then nobody knows why

    # --- telling -----------------------------------------------------------------------------

    def tell(self, handed: Handed, reason: str) -> None:
        if handed.reason != reason and not handed.stop:
            handed.reason = reason
            self.report(AttemptWaits(handed.job, handed.attempt, reason))

    def enter(self, handed: Handed, **facts: Any) -> None:
        """Slurm has said what it calls an attempt."""
        called = replace(handed.called, **facts)
        if called != handed.called:
            handed.called = called
            self.report(AttemptEntered(handed.job, handed.attempt, called))

    def end(self, handed: Handed, rank: int, ending: Ending, node: str = "") -> None:
        if rank not in handed.ended:
            handed.ended.add(rank)
            self.report(ProcessEnded(handed.job, handed.attempt, rank, ending, node=node))

    def end_all(self, handed: Handed, ending: Ending) -> None:
        """By our own or Slurm's word; that is written down, so that none of it begins after all."""
        for rank in range(handed.count):
            if rank not in handed.ended:
                handed.verdicts[f"{handed.key}-{rank}"] = ending.text or ending.cause
            # What began has made and printed something, whoever tells how it ended.
            began = handed.begun_at if rank in handed.started else 0.0
            self.end(handed, rank, replace(ending, started=began))
