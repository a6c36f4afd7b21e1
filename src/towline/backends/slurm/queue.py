"""One Slurm: what is to be in its queue, and what has become of it.

Like the driver of a machine it holds a table of what is wanted, and mends the difference whenever
the channel opens. What happens on the nodes is told by files within a second; Slurm itself is asked
seldom, by one call for all jobs.
"""

import asyncio
import math
import time
from collections.abc import Iterable
from typing import Any

from towline.agent.link import Link
from towline.backends.base import Report
from towline.backends.driver import Driver
from towline.backends.slurm.commands import Commands, SlurmSilent
from towline.backends.slurm.handed import Handed, ending_from
from towline.backends.slurm.handover import comment
from towline.backends.slurm.pace import Pace, backoff_s
from towline.backends.slurm.tasks import Tasks
from towline.backends.slurm.verdicts import (
    EVICTED,
    ending_by_slurm,
    explained,
    forgotten,
    has_ended,
    is_waiting,
    leading,
    was_refused,
)
from towline.errors import AgentError, HostError
from towline.model.events import AttemptWaits, ProcessEnded, ProcessStarted
from towline.model.job import Ending
from towline.probes.slurm import Listed, complaint, is_full, is_passing, read_ticket, why_waiting

#: Calls of sbatch at the same time.
_AT_ONCE = 4
#: A shared file system may show what a node wrote only after a while.
_SETTLE_S = 20.0
_FORGOTTEN_S = 120.0
_SETTLING_S = 5.0
#: Most attempts named in one message.
_MANY = 500


class Queue:
    def __init__(self, name: str, engine_id: str, driver: Driver, report: Report) -> None:
        self.name = name
        self.engine_id = engine_id
        self.driver = driver
        self.report = report
        self.wanted: dict[str, Handed] = {}
        self.commands = Commands(driver)
        self._sending = asyncio.Semaphore(_AT_ONCE)
        self._concluded: list[str] = []
        self._wake = asyncio.Event()
        self._pace = Pace()
        self._tasks = Tasks(name)
        self._tasks.spawn(self._poll_for_ever())
        driver.guest = self

    # --- what the backend asks ---------------------------------------------------------------

    def want(self, handed: Handed) -> None:
        if handed.key in self.wanted:
            return
        self.wanted[handed.key] = handed
        if self.driver.link is None:
            if not handed.started:
                self._tell(handed, self._silence())
        elif handed.sent:
            self._tasks.spawn(self._look(self.driver.link, [handed]))
        else:
            self._tasks.spawn(self._submit(self.driver.link, handed))

    def stop(self, key: str) -> None:
        handed = self.wanted.get(key)
        if handed is None or handed.stop:
            return
        handed.stop = True
        if not handed.sent:
            self._end_all(handed, Ending(cause="void", text="stopped before it started"))
        elif self.driver.link is not None and handed.id:
            self._tasks.spawn(self._cancel([handed]))

    def conclude(self, key: str) -> None:
        if self.wanted.pop(key, None) is not None:
            self._concluded.append(key)
            self._soon()

    def is_busy(self) -> bool:
        return bool(self.wanted)

    def number_of(self, key: str) -> str:
        """Slurm's number of an attempt that is in its queue; empty when it is not known."""
        handed = self.wanted.get(key)
        return handed.id if handed else ""

    def close(self) -> None:
        self._tasks.close()

    # --- the channel -------------------------------------------------------------------------

    async def greet(self, link: Link) -> None:
        await link.ask("heed", prefix=self.engine_id)
        await self.commands.find(link)
        await self._look(link, [h for h in self.wanted.values() if h.sent])
        for handed in list(self.wanted.values()):
            if not handed.sent:
                self._tasks.spawn(self._submit(link, handed))
        self._soon()

    def heard(self, header: dict[str, Any]) -> None:
        if header.get("event") != "handed":
            return
        for key, seen in header["news"].items():
            whole, _, rank = key.rpartition("-")
            handed = self.wanted.get(whole)
            if handed is None:
                self._concluded.append(whole)
            else:
                handed.claimed = True
                self._found(handed, int(rank), seen)

    def _silence(self) -> str:
        error = self.driver.error
        return error.text if error else f"connecting to {self.driver.name}"

    # --- into the queue ----------------------------------------------------------------------

    async def _submit(self, link: Link, handed: Handed) -> None:
        async with self._sending:
            if not self._is_wanted(handed):
                return
            handed.asking = True
            try:
                await self.driver.bring(link, handed.snapshots)
                if not self._is_wanted(handed):
                    return  # stopped while its files were on their way
                handed.sent = True
                message = handed.message(link.hello["root"])
                answer, _ = await link.ask("hand_over", login=self.commands.login, **message)
            except AgentError as error:
                cause = "no_space" if error.code == "no_space" else "snapshot"
                self._end_all(handed, Ending(cause=cause, text=error.text, ended=time.time()))
                return
            except HostError:
                # Found again, or sent, when the channel is open; sbatch may be at it this moment.
                handed.not_before = time.time() + _SETTLING_S
                return
            finally:
                handed.asking = False
        self._answered(handed, answer)

    def _is_wanted(self, handed: Handed) -> bool:
        return self.wanted.get(handed.key) is handed and not (handed.stop or handed.id)

    def _answered(self, handed: Handed, answer: dict[str, Any]) -> None:
        handed.id = read_ticket(answer["out"])
        error = answer["err"]
        if handed.id:
            self._tell(handed, "in Slurm's queue")
            self._soon()
            if handed.stop:
                self._tasks.spawn(self._cancel([handed]))
        elif answer["code"] == 127:
            text = f"there is no sbatch on {self.driver.name}: is it the cluster's access node?"
            self._end_all(handed, Ending(cause="refused", text=text, ended=time.time()))
        elif is_passing(error) or is_full(error) or answer["code"] < 0:
            handed.tries += 1
            handed.not_before = time.time() + backoff_s(handed.tries)
            self._tell(handed, f"Slurm does not take it now: {complaint(error)}")
            self._soon()
        else:
            text = f"Slurm refused it: {complaint(error)}"
            self._end_all(handed, Ending(cause="refused", text=text, ended=time.time()))

    async def _cancel(self, some: list[Handed]) -> None:
        link = self.driver.link
        if link is None or not some:
            return
        ids = [handed.id for handed in some if handed.wants_scancel(time.time())]
        keys = [handed.key for handed in some]
        argv = ["scancel", *ids] if ids else None
        try:
            await link.ask("stop_handed", keys=keys, argv=argv, login=self.commands.login)
        except (HostError, AgentError):
            return  # asked again with the next look at Slurm
        for handed in some:
            if not handed.id and handed.is_unsent(time.time()):
                self._end_all(handed, Ending(cause="void", text="stopped before it started"))
        self._soon()

    # --- what the files say ------------------------------------------------------------------

    async def _look(self, link: Link, some: list[Handed]) -> dict[str, str]:
        """Ask the agent what is known of these; what each said outside of its processes."""
        said = {}
        for at in range(0, len(some), _MANY):
            part = {handed.key: handed for handed in some[at : at + _MANY]}
            keys = {key: handed.count for key, handed in part.items()}
            answer, _ = await link.ask("handed", keys=keys)
            for key, known in answer["handed"].items():
                handed = part[key]
                claim = known["claim"].split()
                handed.claimed = bool(claim)
                handed.id = claim[0] if claim else handed.id or read_ticket(known["ticket"])
                said[key] = known["said"]
                for rank, seen in enumerate(known["ranks"]):
                    self._found(handed, rank, seen)
        self._soon()
        return said

    def _found(self, handed: Handed, rank: int, seen: dict[str, Any]) -> None:
        if rank in handed.ended:
            return
        if seen["state"] == "ended" and "ending" in seen:
            ending = ending_from(seen["ending"])
            if ending.started:
                self._begin(handed, rank, ending.started, seen)
            if ending.cause == EVICTED and not handed.stop:
                self._evicted(handed, rank, ending)
            else:
                self._end(handed, rank, ending)
        elif seen["state"] == "running" and seen.get("run", 0) >= handed.run:
            self._begin(handed, rank, seen.get("started", 0.0), seen)
        elif seen["state"] == "waiting" and rank in handed.started:
            handed.run = seen.get("run", 0)
            self._requeued(handed)

    def _begin(self, handed: Handed, rank: int, at: float, seen: dict[str, Any]) -> None:
        handed.run, handed.again = seen.get("run", 0), False
        if rank not in handed.started:
            handed.started.add(rank)
            handed.reason = ""
            node = seen.get("node", "")
            self.report(ProcessStarted(handed.job, handed.attempt, rank, at, node))

    def _evicted(self, handed: Handed, rank: int, ending: Ending) -> None:
        if rank not in handed.evicted:
            handed.evicted[rank] = ending
            handed.over_since = handed.over_since or time.time()
            self._soon()

    def _requeued(self, handed: Handed) -> None:
        """Slurm will start it again by itself: same entry of the queue, same attempt."""
        handed.started.clear()
        handed.again, handed.over_since, handed.run = True, 0.0, handed.run + 1
        handed.reason = "in Slurm's queue again"
        self.report(AttemptWaits(handed.job, handed.attempt, handed.reason, again=True))
        self._soon()

    # --- what Slurm says ---------------------------------------------------------------------

    def _soon(self) -> None:
        """Something changed: ask Slurm before long."""
        self._pace.soon(time.monotonic())
        self._wake.set()

    async def _poll_for_ever(self) -> None:
        while True:
            await self._rest()
            link = self.driver.link
            if link is None or not (self.wanted or self._concluded):
                self._pace.idle()
                continue
            self._pace.asking(time.monotonic())
            try:
                await self._poll(link)
                self._pace.answered()
            except SlurmSilent as silent:
                self._pace.silent(time.monotonic())
                self._explain_silence(str(silent))
            except (HostError, AgentError):
                pass  # asked again when the channel is open

    async def _rest(self) -> None:
        """Until it is time to ask again."""
        while (left_s := self._pace.left_s(time.monotonic())) > 0:
            self._wake.clear()
            try:
                async with asyncio.timeout(None if left_s == math.inf else left_s):
                    await self._wake.wait()
            except TimeoutError:
                return

    async def _poll(self, link: Link) -> None:
        concluded, self._concluded = self._concluded, []
        if concluded:
            await link.ask("conclude_handed", keys=concluded)
        asked = [handed for handed in self.wanted.values() if handed.sent]
        if not asked:
            return
        listed = await self.commands.list_jobs(link)
        await self._find_numbers(link, asked, listed)
        by_id: dict[str, list[Listed]] = {}
        for one in listed:
            by_id.setdefault(one.id, []).append(one)
        unlisted = [handed.id for handed in asked if handed.id and handed.id not in by_id]
        for one in await self.commands.recall(link, unlisted):
            by_id.setdefault(one.id, []).append(one)
        over = [handed for handed in asked if self._judge(handed, by_id.get(handed.id, []))]
        await self._settle(link, over, by_id)
        await self._cancel([h for h in asked if h.stop and not h.is_over])

    async def _find_numbers(
        self, link: Link, asked: Iterable[Handed], listed: list[Listed]
    ) -> None:
        """Of attempts whose sbatch gave no answer; a second entry of one is taken out again."""
        by_comment: dict[str, list[str]] = {}
        for one in listed:
            if not was_refused(one):
                by_comment.setdefault(one.comment, []).append(one.id)
        alive = {one.id for one in listed if not has_ended(one)}
        spare: list[str] = []
        for handed in asked:
            found = list(dict.fromkeys(by_comment.get(comment(handed.key), ())))
            if not handed.id and found:
                handed.id = found[0]
                self._tell(handed, "in Slurm's queue")
            elif handed.is_unsent(time.time()) and not handed.stop:
                self._tasks.spawn(self._submit(link, handed))
            spare += [number for number in found if number != handed.id and number in alive]
        if spare:
            await self.commands.cancel(link, spare)

    def _judge(self, handed: Handed, listed: list[Listed]) -> bool:
        """True when by Slurm's word it is over though its files do not say so."""
        one = leading(listed)
        if not handed.id or handed.is_over:
            return False
        if one is not None and is_waiting(one):
            if handed.started:
                self._requeued(handed)
            self._tell(handed, why_waiting(one))
        elif one is not None and not has_ended(one) and len(handed.started) < handed.count:
            self._tell(handed, f"Slurm starts it on {one.nodes or 'a node'}")
        if one is not None and not has_ended(one):
            handed.over_since = 0.0
            return False
        handed.over_since = handed.over_since or time.time()
        self._soon()
        return True

    async def _settle(self, link: Link, over: list[Handed], by_id: dict[str, list[Listed]]) -> None:
        """Look at the files once more; where they stay silent, Slurm's word is the last."""
        if not over:
            return
        said = await self._look(link, over)
        now = time.time()
        for handed in over:
            one = leading(by_id.get(handed.id, []))
            running = handed.claimed and not handed.again
            patience_s = _FORGOTTEN_S if one is None else _SETTLE_S if running else 0.0
            if one is not None:
                self._end_evicted(handed, one)
            if handed.is_over or now - handed.over_since < patience_s:
                continue
            if one is None:
                self._end_evicted(handed, None)
                self._end_all(handed, forgotten(now))
            else:
                one = await self.commands.detail(link, one)
                begun = handed.claimed
                self._end_all(handed, ending_by_slurm(one, said.get(handed.key, ""), begun, now))

    def _end_evicted(self, handed: Handed, listed: Listed | None) -> None:
        """Slurm has said why it stopped them, or never will."""
        for rank, ending in handed.evicted.items():
            self._end(handed, rank, explained(ending, listed))

    def _explain_silence(self, error: str) -> None:
        now = time.time()
        for handed in list(self.wanted.values()):
            if len(handed.started) < handed.count:
                self._tell(handed, f"Slurm does not answer: {error}")
            if handed.evicted and now - handed.over_since > _FORGOTTEN_S:
                self._end_evicted(handed, None)

    # --- telling -----------------------------------------------------------------------------

    def _tell(self, handed: Handed, reason: str) -> None:
        if handed.reason != reason and not handed.stop:
            handed.reason = reason
            self.report(AttemptWaits(handed.job, handed.attempt, reason))

    def _end(self, handed: Handed, rank: int, ending: Ending) -> None:
        if rank not in handed.ended:
            handed.ended.add(rank)
            self.report(ProcessEnded(handed.job, handed.attempt, rank, ending))

    def _end_all(self, handed: Handed, ending: Ending) -> None:
        for rank in range(handed.count):
            self._end(handed, rank, ending)
