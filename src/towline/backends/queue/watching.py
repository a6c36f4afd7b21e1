"""A queue's word for what it holds: asked for seldom, and second to what the files say."""

import asyncio
import logging
import math
import time
from typing import TYPE_CHECKING

from towline.agent.link import Link
from towline.backends.queue.commands import QueueSilent
from towline.backends.queue.dialect import ListedEntry, Phase, Site, Verdict
from towline.backends.queue.endings import explained, forgotten
from towline.backends.queue.handover import Handover, by_name, leading
from towline.backends.queue.pace import Pace, backoff_s
from towline.errors import AgentError, HostError

if TYPE_CHECKING:
    from towline.backends.queue.queue import Queue

log = logging.getLogger("towline")

#: A shared file system may show what a node wrote only after a while.
_SETTLE_S = 20.0
#: A job that the queue does not know any more may still be told of by its files so much later.
_FORGOTTEN_S = 60.0
#: The controller remembers ended jobs for some minutes. One that it knew so recently and now does
#: not even know as ended was never written down there: it was killed at the wrong moment.
_REMEMBERED_S = 180.0
#: What a list says may be older than what the files told meanwhile.
_RACE_S = 5.0
#: A controller that was killed is not itself for so long, and cancels what nobody cancelled. What
#: is cancelled again and again is meant to be.
_RESTARTED_S = 600.0
_MOST_CANCELLED = 3
#: Places in the queue change; that is asked for at most so often.
_PLACES_S = 60.0
#: Accounts that do not answer, or have not heard of an end, get so long.
_ACCOUNTS_S = 600.0


class Watcher:
    """Asks for all attempts of one queue at once, and tells that queue what it means."""

    def __init__(self, queue: "Queue") -> None:
        self.queue = queue
        self._pace = Pace()
        #: The controller remembers a job that ended at least for so long.
        self.remembered_s = math.inf
        #: When the controller had been started, as it was first heard.
        self.booted = ""
        self._young, self._looked = False, -math.inf
        #: Whose places were asked for, and when.
        self._placed: set[str] = set()
        self._placed_at = -math.inf
        self._wake = asyncio.Event()

    def learn(self, site: Site) -> None:
        self.remembered_s = site.memory_s
        self.booted = self.booted or site.booted

    def soon(self) -> None:
        """Something changed: ask the queue before long."""
        self._pace.soon(time.monotonic())
        self._wake.set()

    async def for_ever(self) -> None:
        queue = self.queue
        while True:
            await self._rest()
            link = queue.driver.link
            if link is None or not (queue.wanted or queue.concluded):
                self._pace.idle()
                continue
            self._pace.asking(time.monotonic())
            try:
                await self._ask(link)
                self._pace.answered()
            except QueueSilent as silent:
                self._pace.silent(time.monotonic())
                self._explain_silence(str(silent))
            except (HostError, AgentError):
                pass  # asked again when the channel is open
            except Exception as error:
                # It is asked again later: what is in the queue must not be lost sight of.
                log.exception("cluster %s", queue.name)
                self._pace.silent(time.monotonic())
                self._explain_silence(f"what it says cannot be understood ({error})")

    async def _rest(self) -> None:
        """Until it is time to ask again."""
        while (left_s := self._pace.left_s(time.monotonic())) > 0:
            self._wake.clear()
            try:
                async with asyncio.timeout(None if left_s == math.inf else left_s):
                    await self._wake.wait()
            except TimeoutError:
                return

    async def _ask(self, link: Link) -> None:
        queue = self.queue
        if concluded := dict(queue.concluded):
            lost = {key: text for told in concluded.values() for key, text in told.items()}
            await link.ask("conclude_handed", keys=list(concluded), lost=lost)
            for key in concluded:
                del queue.concluded[key]
        asked = [handover for handover in queue.wanted.values() if handover.sent]
        if not asked:
            return
        began = time.time()
        listed = by_name(await queue.commands.list_entries(link))
        await self._find_numbers(link, asked, listed)
        known = {
            handover.key: [one for one in listed.get(handover.entry, ()) if one.id == handover.id]
            for handover in asked
        }
        late = await self._recall(link, asked, known)
        told = [handover for handover in asked if not self._is_late(handover, late)]
        over = [handover for handover in told if self._judge(handover, known[handover.key], began)]
        await self._find_places(link, asked)
        await self._settle(link, over, known)
        await queue.cancel(
            [handover for handover in asked if handover.stop and not handover.is_over]
        )

    async def _recall(
        self, link: Link, asked: list[Handover], known: dict[str, list[ListedEntry]]
    ) -> dict[str, str]:
        """Add the ends that only the accounts know; numbers of whose end they may yet hear."""
        unlisted = {one.id: one for one in asked if one.id and not known[one.key]}
        try:
            told = await self.queue.commands.recall(link, list(unlisted))
        except QueueSilent as silent:
            return dict.fromkeys(unlisted, f"{self.queue.title}'s accounts do not answer: {silent}")
        late = {}
        for one in told:
            handover = unlisted.get(one.id)
            if handover is None or one.name not in ("", handover.entry):
                continue  # another job that had the same number
            if one.has_ended:
                known[handover.key].append(one)
            else:
                late[one.id] = f"{self.queue.title}'s accounts have not heard of its end"
        return late

    def _is_late(self, handover: Handover, late: dict[str, str]) -> bool:
        """Wait for what the accounts will say of it, but not for ever."""
        if handover.id not in late or handover.is_over or handover.stop:
            return False
        now = time.time()
        handover.over_since = handover.over_since or now
        if len(handover.started) < handover.count:
            self.queue.tell(handover, late[handover.id])
        return now - handover.over_since < (_FORGOTTEN_S if handover.evicted else _ACCOUNTS_S)

    async def _find_numbers(
        self, link: Link, asked: list[Handover], listed: dict[str, list[ListedEntry]]
    ) -> None:
        """Of attempts whose submission gave no answer; a second entry of one is taken out again."""
        queue = self.queue
        unsent: list[Handover] = []
        double: dict[str, list[str]] = {}
        for handover in asked:
            found = [one for one in listed.get(handover.entry, ()) if _counts(handover, one)]
            alive = [one.id for one in found if not one.has_ended]
            if found and not (handover.id or handover.asking):
                handover.id = alive[0] if alive else found[0].id
                queue.tell(handover, f"in {queue.title}'s queue")
            elif handover.is_unsent(time.time()) and not handover.stop:
                unsent.append(handover)
            if handover.claimed and any(number != handover.id for number in alive):
                double[handover.key] = alive
        queue.submitter.offer(unsent)
        await self._end_doubles(link, [one for one in asked if one.key in double], double)

    async def _end_doubles(
        self, link: Link, some: list[Handover], alive: dict[str, list[str]]
    ) -> None:
        """Cancel entries that cannot run any more, because another one has the claim.

        Before there is a claim each may be the one to run, and all but one will end by themselves.
        """
        if some:
            await self.queue.look(link, some)
            spare = {number for one in some for number in alive[one.key] if number != one.id}
            await self.queue.commands.cancel(link, list(spare))

    def _judge(self, handover: Handover, listed: list[ListedEntry], began: float) -> bool:
        """True when by the queue's word it is over though its files do not say so."""
        one = leading(listed)
        if not (handover.id or handover.claimed) or handover.is_over:
            return False
        if one is not None:
            handover.known_at = began
        if one is None or one.has_ended:
            handover.over_since = handover.over_since or time.time()
            self.soon()
            return True
        handover.over_since = 0.0
        self._note(handover, one)
        if one.phase is Phase.WAITING and not handover.started:
            self.queue.tell(handover, one.why)
        elif one.phase is Phase.WAITING and handover.begun_at < began - _RACE_S:
            self.queue.requeued(handover)
            self.queue.tell(handover, one.why)
        elif one.phase is not Phase.WAITING and len(handover.started) < handover.count:
            self.queue.tell(handover, f"{self.queue.title} starts it on {one.nodes or 'a node'}")
        return False

    def _note(self, handover: Handover, one: ListedEntry) -> None:
        """What it is called there, and where it stands."""
        facts = {"partition": one.partition, "account": one.account, "time_limit": one.time_limit}
        self.queue.enter(handover, number=handover.id, **facts)
        if one.phase is Phase.WAITING:
            handover.word, handover.expected = one.word, one.expected

    async def _find_places(self, link: Link, asked: list[Handover]) -> None:
        """Which each is of those that wait; asked seldom, since the answer may be long."""
        waiting = [
            handover for handover in asked if handover.id and handover.word and not handover.started
        ]
        new = {handover.key for handover in waiting} - self._placed
        if not new and (not waiting or time.monotonic() - self._placed_at < _PLACES_S):
            return
        self._placed_at = time.monotonic()
        self._placed = {handover.key for handover in waiting}
        places = await self.queue.commands.places(link, [handover.id for handover in waiting])
        for handover in waiting:
            handover.place = places.get(handover.id, (0, 0))

    async def explain_requeue(self, link: Link, handover: Handover) -> None:
        """Say why it was taken back, where the queue knows."""
        try:
            why = await self.queue.commands.why_taken_back(link, handover.id, handover.node)
        except QueueSilent:
            return
        if why:
            self.queue.enter(handover, requeued=why)

    async def _settle(
        self, link: Link, over: list[Handover], known: dict[str, list[ListedEntry]]
    ) -> None:
        """Look at the files once more; where they stay silent, the queue's word is the last."""
        if not over:
            return
        said = await self.queue.look(link, over)
        for handover in over:
            one = leading(known[handover.key])
            if one is None:
                self._forgotten(handover)
                continue
            verdict = self._verdict(handover, one, said.get(handover.key, ""))
            if why := await self._why_not_begun(link, handover, verdict):
                handover.given_up.add(handover.id)
                self._hand_over_again(handover, why)
                continue
            self._end_evicted(handover, verdict)
            if handover.is_over:
                continue
            one = await self.queue.commands.detail(link, one)
            verdict = self._verdict(handover, one, said.get(handover.key, ""))
            running = handover.claimed and not handover.again
            certain = verdict.killed or (verdict.certain and not running)
            if certain or time.time() - handover.over_since >= _SETTLE_S:
                self.queue.end_all(handover, verdict.ending)

    def _verdict(self, handover: Handover, listed: ListedEntry, said: str) -> Verdict:
        return self.queue.dialect.verdict(listed, said, handover.claimed, time.time())

    async def _why_not_begun(self, link: Link, handover: Handover, verdict: Verdict) -> str:
        """Why it never began although nobody wanted that; empty where that is not so.

        A controller that was killed gives out numbers again that nodes still know, and these then
        have it cancel what has such a number: a whole array, sometimes.
        """
        if handover.stop or handover.claimed:
            return ""
        if verdict.not_begun:
            return verdict.not_begun
        if not verdict.cancelled or len(handover.given_up) >= _MOST_CANCELLED:
            return ""
        return (
            f"{self.queue.title} cancelled it soon after its controller had restarted"
            if await self._restarted(link)
            else ""
        )

    async def _restarted(self, link: Link) -> bool:
        """Whether the controller was started anew, not long ago; asked once for many attempts."""
        if time.monotonic() - self._looked > _RACE_S:
            site = await self.queue.commands.site(link)
            self._young = site.booted != self.booted and site.uptime_s < _RESTARTED_S
            self._looked = time.monotonic()
        return self._young

    def _forgotten(self, handover: Handover) -> None:
        now = time.time()
        since = now - handover.over_since
        if handover.is_over:
            return
        remembered_s = min(_REMEMBERED_S, self.remembered_s)
        vanished = handover.stop or handover.over_since - handover.known_at < remembered_s
        if not handover.claimed and vanished:
            if since >= _RACE_S:
                self._hand_over_again(handover, f"{self.queue.title} has lost it")
        elif since >= _FORGOTTEN_S:
            self._end_evicted(handover, None)
            self.queue.end_all(handover, forgotten(self.queue.title, now))

    def _hand_over_again(self, handover: Handover, why: str) -> None:
        """It never began; whatever comes of its old entry all the same will find a newer claim."""
        handover.id, handover.array, handover.vanished, handover.over_since = "", "", True, 0.0
        handover.tries += 1
        handover.not_before = time.time() + backoff_s(handover.tries)
        self.queue.tell(handover, f"{why}; it is handed over again")
        self.soon()

    def _end_evicted(self, handover: Handover, verdict: Verdict | None) -> None:
        """The queue has said why it stopped them, or never will."""
        for rank, ending in handover.evicted.items():
            self.queue.end(handover, rank, explained(ending, verdict))

    def _explain_silence(self, error: str) -> None:
        now = time.time()
        for handover in list(self.queue.wanted.values()):
            if len(handover.started) < handover.count:
                self.queue.tell(handover, f"{self.queue.title} does not answer: {error}")
            if handover.evicted and now - handover.over_since > _FORGOTTEN_S:
                self._end_evicted(handover, None)


def _counts(handover: Handover, listed: ListedEntry) -> bool:
    """It may be the entry that runs the attempt: not refused, nor one that was given up."""
    return listed.phase is not Phase.REFUSED and listed.id not in handover.given_up
