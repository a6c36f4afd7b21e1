"""Slurm's word for what its queue holds: asked for seldom, and second to what the files say."""

import asyncio
import logging
import math
import time
from typing import TYPE_CHECKING

from towline.agent.link import Link
from towline.backends.slurm.commands import SlurmSilent, uptime_s
from towline.backends.slurm.handed import Handed, by_attempt
from towline.backends.slurm.pace import Pace, backoff_s
from towline.backends.slurm.verdicts import (
    ending_by_slurm,
    explained,
    forgotten,
    has_ended,
    is_certain,
    is_waiting,
    leading,
    never_began,
    took_too_much,
    was_refused,
    why_taken_back,
)
from towline.errors import AgentError, HostError
from towline.probes.slurm import ENDED, Listed, Site, why_waiting
from towline.probes.slurm_places import place_of

if TYPE_CHECKING:
    from towline.backends.slurm.queue import Queue

log = logging.getLogger("towline")

#: A shared file system may show what a node wrote only after a while.
_SETTLE_S = 20.0
#: A job that Slurm does not know any more may still be told of by its files so much later.
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


class Watch:
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
        """Something changed: ask Slurm before long."""
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
            except SlurmSilent as silent:
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
        asked = [handed for handed in queue.wanted.values() if handed.sent]
        if not asked:
            return
        began = time.time()
        listed = by_attempt(await queue.commands.list_jobs(link))
        await self._find_numbers(link, asked, listed)
        known = {
            handed.key: [one for one in listed.get(handed.entry, ()) if one.id == handed.id]
            for handed in asked
        }
        late = await self._recall(link, asked, known)
        told = [handed for handed in asked if not self._is_late(handed, late)]
        over = [handed for handed in told if self._judge(handed, known[handed.key], began)]
        await self._find_places(link, asked)
        await self._settle(link, over, known)
        await queue.cancel([handed for handed in asked if handed.stop and not handed.is_over])

    async def _recall(
        self, link: Link, asked: list[Handed], known: dict[str, list[Listed]]
    ) -> dict[str, str]:
        """Add the ends that only the accounts know; numbers of whose end they may yet hear."""
        unlisted = {one.id: one for one in asked if one.id and not known[one.key]}
        try:
            told = await self.queue.commands.recall(link, list(unlisted))
        except SlurmSilent as silent:
            return dict.fromkeys(unlisted, f"Slurm's accounts do not answer: {silent}")
        late = {}
        for one in told:
            handed = unlisted.get(one.id)
            if handed is None or (one.folder and handed.entry not in by_attempt([one])):
                continue  # another job that had the same number
            if has_ended(one):
                known[handed.key].append(one)
            else:
                late[one.id] = "Slurm's accounts have not heard of its end"
        return late

    def _is_late(self, handed: Handed, late: dict[str, str]) -> bool:
        """Wait for what the accounts will say of it, but not for ever."""
        if handed.id not in late or handed.is_over or handed.stop:
            return False
        now = time.time()
        handed.over_since = handed.over_since or now
        if len(handed.started) < handed.count:
            self.queue.tell(handed, late[handed.id])
        return now - handed.over_since < (_FORGOTTEN_S if handed.evicted else _ACCOUNTS_S)

    async def _find_numbers(
        self, link: Link, asked: list[Handed], listed: dict[str, list[Listed]]
    ) -> None:
        """Of attempts whose sbatch gave no answer; a second entry of one is taken out again."""
        queue = self.queue
        unsent: list[Handed] = []
        double: dict[str, list[str]] = {}
        for handed in asked:
            found = [one for one in listed.get(handed.entry, ()) if _counts(handed, one)]
            alive = [one.id for one in found if not has_ended(one)]
            if found and not (handed.id or handed.asking):
                handed.id = alive[0] if alive else found[0].id
                queue.tell(handed, "in Slurm's queue")
            elif handed.is_unsent(time.time()) and not handed.stop:
                unsent.append(handed)
            if handed.claimed and any(number != handed.id for number in alive):
                double[handed.key] = alive
        queue.sending.offer(unsent)
        await self._end_doubles(link, [one for one in asked if one.key in double], double)

    async def _end_doubles(
        self, link: Link, some: list[Handed], alive: dict[str, list[str]]
    ) -> None:
        """Cancel entries that cannot run any more, because another one has the claim.

        Before there is a claim each may be the one to run, and all but one will end by themselves.
        """
        if some:
            await self.queue.look(link, some)
            spare = {number for one in some for number in alive[one.key] if number != one.id}
            await self.queue.commands.cancel(link, list(spare))

    def _judge(self, handed: Handed, listed: list[Listed], began: float) -> bool:
        """True when by Slurm's word it is over though its files do not say so."""
        one = leading(listed)
        if not (handed.id or handed.claimed) or handed.is_over:
            return False
        if one is not None:
            handed.known_at = began
        if one is None or has_ended(one):
            handed.over_since = handed.over_since or time.time()
            self.soon()
            return True
        handed.over_since = 0.0
        self._note(handed, one)
        if is_waiting(one) and not handed.started:
            self.queue.tell(handed, why_waiting(one))
        elif is_waiting(one) and handed.begun_at < began - _RACE_S:
            self.queue.requeued(handed)
            self.queue.tell(handed, why_waiting(one))
        elif not is_waiting(one) and len(handed.started) < handed.count:
            self.queue.tell(handed, f"Slurm starts it on {one.nodes or 'a node'}")
        return False

    def _note(self, handed: Handed, one: Listed) -> None:
        """What it is called there, and where it stands."""
        facts = {"partition": one.partition, "account": one.account, "time_limit": one.time_limit}
        self.queue.enter(handed, number=handed.id, **facts)
        if is_waiting(one):
            handed.word, handed.expected = one.reason, one.start_at()

    async def _find_places(self, link: Link, asked: list[Handed]) -> None:
        """Which each is of those that wait; asked seldom, since the answer may be long."""
        waiting = [handed for handed in asked if handed.id and handed.word and not handed.started]
        new = {handed.key for handed in waiting} - self._placed
        if not new and (not waiting or time.monotonic() - self._placed_at < _PLACES_S):
            return
        self._placed_at = time.monotonic()
        self._placed = {handed.key for handed in waiting}
        pending = await self.queue.commands.list_pending(link)
        for handed in waiting:
            handed.place = place_of(handed.id, pending)

    async def explain_requeue(self, link: Link, handed: Handed) -> None:
        """Say why it was taken back, where Slurm knows."""
        try:
            states = await self.queue.commands.ends_before(link, handed.id)
            nodes = await self.queue.commands.list_nodes(link)
        except SlurmSilent:
            return
        down = any(node.name == handed.node and node.down for node in nodes)
        if why := why_taken_back(states, down):
            self.queue.enter(handed, requeued=why)

    async def _settle(self, link: Link, over: list[Handed], known: dict[str, list[Listed]]) -> None:
        """Look at the files once more; where they stay silent, Slurm's word is the last."""
        if not over:
            return
        said = await self.queue.look(link, over)
        for handed in over:
            one = leading(known[handed.key])
            if one is None:
                self._forgotten(handed)
                continue
            if why := await self._why_not_begun(link, handed, one):
                handed.given_up.add(handed.id)
                self._hand_over_again(handed, why)
                continue
            self._end_evicted(handed, one)
            if handed.is_over:
                continue
            one = await self.queue.commands.detail(link, one)
            told = said.get(handed.key, "")
            running = handed.claimed and not handed.again
            certain = took_too_much(told) or (is_certain(one) and not running)
            if certain or time.time() - handed.over_since >= _SETTLE_S:
                ending = ending_by_slurm(one, told, handed.claimed, time.time())
                self.queue.end_all(handed, ending)

    async def _why_not_begun(self, link: Link, handed: Handed, listed: Listed) -> str:
        """Why it never began although nobody wanted that; empty where that is not so.

        A controller that was killed gives out numbers again that nodes still know, and these then
        have it cancel what has such a number: a whole array, sometimes.
        """
        if handed.stop or handed.claimed:
            return ""
        if never_began(listed):
            return ENDED[listed.state]
        if listed.state != "CANCELLED" or len(handed.given_up) >= _MOST_CANCELLED:
            return ""
        return (
            "Slurm cancelled it soon after its controller had restarted"
            if await self._restarted(link)
            else ""
        )

    async def _restarted(self, link: Link) -> bool:
        """Whether the controller was started anew, not long ago; asked once for many attempts."""
        if time.monotonic() - self._looked > _RACE_S:
            site = await self.queue.commands.site(link)
            self._young = site.booted != self.booted and uptime_s(site) < _RESTARTED_S
            self._looked = time.monotonic()
        return self._young

    def _forgotten(self, handed: Handed) -> None:
        now = time.time()
        since = now - handed.over_since
        if handed.is_over:
            return
        remembered_s = min(_REMEMBERED_S, self.remembered_s)
        vanished = handed.stop or handed.over_since - handed.known_at < remembered_s
        if not handed.claimed and vanished:
            if since >= _RACE_S:
                self._hand_over_again(handed, "Slurm has lost it")
        elif since >= _FORGOTTEN_S:
            self._end_evicted(handed, None)
            self.queue.end_all(handed, forgotten(now))

    def _hand_over_again(self, handed: Handed, why: str) -> None:
        """It never began; whatever comes of its old entry all the same will find a newer claim."""
        handed.id, handed.array, handed.vanished, handed.over_since = "", "", True, 0.0
        handed.tries += 1
        handed.not_before = time.time() + backoff_s(handed.tries)
        self.queue.tell(handed, f"{why}; it is handed over again")
        self.soon()

    def _end_evicted(self, handed: Handed, listed: Listed | None) -> None:
        """Slurm has said why it stopped them, or never will."""
        for rank, ending in handed.evicted.items():
            self.queue.end(handed, rank, explained(ending, listed))

    def _explain_silence(self, error: str) -> None:
        now = time.time()
        for handed in list(self.queue.wanted.values()):
            if len(handed.started) < handed.count:
                self.queue.tell(handed, f"Slurm does not answer: {error}")
            if handed.evicted and now - handed.over_since > _FORGOTTEN_S:
                self._end_evicted(handed, None)


def _counts(handed: Handed, listed: Listed) -> bool:
    """It may be the entry that runs the attempt: not refused, nor one that was given up."""
    return not was_refused(listed) and listed.id not in handed.given_up
