"""A queue's word for what it holds: asked for seldom, and second to what the files say."""

import asyncio
import logging
import math
import random
import time

from msgspec.structs import replace

from towline.agent.link import Link
from towline.backends.base import QueueSilent
from towline.backends.machines.driver import Driver
from towline.backends.queue import facts
from towline.backends.queue.attempt import asks_for_details, asks_whether_restarted
from towline.backends.queue.commands import Commands
from towline.backends.queue.dialect import ListedEntry, Phase, Site, Verdict
from towline.backends.queue.files import Files
from towline.backends.queue.handover import Handover, by_name, leading
from towline.backends.queue.pace import Pace
from towline.backends.queue.state import Place
from towline.backends.queue.table import Table
from towline.backends.queue.times import Times
from towline.errors import AgentError, HostError

log = logging.getLogger("towline")

#: Attempt -> its entry as the queue lists it; None where it does not.
Known = dict[str, ListedEntry | None]
#: Most entries that are asked about in one look.
_MOST_ASKED = 100


class Watcher:
    """Asks for all attempts of one queue at once, and tells each what that means for it."""

    def __init__(
        self, name: str, table: Table, driver: Driver, commands: Commands, files: Files
    ) -> None:
        self.name = name
        self.table = table
        self.driver = driver
        self.commands = commands
        self.files = files
        self._pace = Pace(table.times, random.Random())
        #: The controller remembers a job that ended at least for so long.
        self.remembered_s = math.inf
        #: When the controller had been started, as it was first heard.
        self.booted = ""
        #: Whether it was started anew, and when, as it was last heard.
        self._restart, self._looked = (False, -math.inf), -math.inf
        #: Whose positions were asked for, and when.
        self._placed: set[str] = set()
        self._placed_at = -math.inf
        self._wake = asyncio.Event()
        self.reasons = Reasons(commands, table.times)

    def learn(self, site: Site) -> None:
        self.remembered_s = site.memory_s
        self.booted = self.booted or site.booted

    def soon(self) -> None:
        """Something changed: ask the queue before long."""
        self._pace.soon(time.monotonic())
        self._wake.set()

    async def for_ever(self) -> None:
        while True:
            await self._rest()
            link = self.driver.link
            if link is None or not (self.table.wanted or self.table.concluded):
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
                log.exception("cluster %s", self.name)
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

    def _explain_silence(self, error: str) -> None:
        for handover in list(self.table.wanted.values()):
            self.table.take(handover, facts.Silent(error))

    # --- one look at the queue ---------------------------------------------------------------

    async def _ask(self, link: Link) -> None:
        await self._conclude(link)
        wanted = list(self.table.wanted.values())
        asked = [one for one in wanted if one.attempt.place is not Place.NOT_SENT]
        if not asked:
            return
        asked_at = time.time()
        listed = by_name(await self.commands.list_entries(link))
        await self._find(link, asked, listed)
        known: Known = {
            one.key: leading(
                [e for e in listed.get(one.attempt.name, ()) if e.id == one.attempt.id]
            )
            for one in asked
        }
        late = await self._recall(link, asked, known)
        await self.reasons.explain(link, asked, known)
        over = [
            one
            for one in asked
            if facts.Settle()
            in self.table.take(
                one, facts.Judged(known[one.key], asked_at, late.get(one.attempt.id, ""))
            )
        ]
        await self._find_positions(link, asked)
        await self._settle(link, over, known)
        await self._stop(link, asked)

    async def _conclude(self, link: Link) -> None:
        """Say over there which attempts nobody asks for any more."""
        if concluded := dict(self.table.concluded):
            lost = {key: text for told in concluded.values() for key, text in told.items()}
            await link.ask("conclude_handed", keys=list(concluded), lost=lost)
            for key in concluded:
                del self.table.concluded[key]

    async def _find(
        self, link: Link, asked: list[Handover], listed: dict[str, list[ListedEntry]]
    ) -> None:
        """Find the entries of submissions that gave no answer, and end doubles.

        A double is one that cannot run any more, because another has the claim. Before there is a
        claim each may be the one to run, and all but one will end by themselves.
        """
        doubles: list[tuple[Handover, tuple[str, ...]]] = []
        for handover in asked:
            entries = tuple(listed.get(handover.attempt.name, ()))
            orders = self.table.take(handover, facts.Found(entries))
            doubles += [(handover, one.ids) for one in orders if isinstance(one, facts.EndDoubles)]
        if doubles:
            await self.files.look(link, [handover for handover, _ in doubles])
            spare = {id for handover, ids in doubles for id in ids if id != handover.attempt.id}
            await self.commands.cancel(link, sorted(spare))

    async def _recall(self, link: Link, asked: list[Handover], known: Known) -> dict[str, str]:
        """Add the ends that only the accounts know; numbers of whose end they may yet hear."""
        unlisted = {
            one.attempt.id: one for one in asked if one.attempt.id and known[one.key] is None
        }
        title = self.commands.dialect.title
        try:
            told = await self.commands.recall(link, list(unlisted))
        except QueueSilent as silent:
            return dict.fromkeys(unlisted, f"{title}'s accounts do not answer: {silent}")
        late = {}
        for one in told:
            handover = unlisted.get(one.id)
            if handover is None or one.name not in ("", handover.attempt.name):
                continue  # another job that had the same number
            if one.has_ended:
                known[handover.key] = known[handover.key] or one
            else:
                late[one.id] = f"{title}'s accounts have not heard of its end"
        return late

    async def _find_positions(self, link: Link, asked: list[Handover]) -> None:
        """Which each is of those that wait; asked seldom, since the answer may be long."""
        waiting = [
            one for one in asked if one.attempt.id and one.attempt.word and not one.attempt.started
        ]
        new = {handover.key for handover in waiting} - self._placed
        since_s = time.monotonic() - self._placed_at
        if not new and (not waiting or since_s < self.table.times.places_s):
            return
        self._placed_at = time.monotonic()
        self._placed = {handover.key for handover in waiting}
        places = await self.commands.places(link, [one.attempt.id for one in waiting])
        for handover in waiting:
            position = places.get(handover.attempt.id, (0, 0))
            self.table.take(handover, facts.Positioned(position))

    async def _settle(self, link: Link, over: list[Handover], known: Known) -> None:
        """Look at the files once more; where they stay silent, the queue's word is the last."""
        said = await self.files.look(link, over) if over else {}
        for handover in over:
            if handover.attempt.is_over:
                continue
            told, listed = said.get(handover.key, ""), known[handover.key]
            self.table.take(handover, await self._settled(link, handover, listed, told))

    async def _settled(
        self, link: Link, handover: Handover, listed: ListedEntry | None, said: str
    ) -> facts.Settled:
        """What the queue's word means; it is asked for more only where that matters."""
        verdict = self._verdict(handover, listed, said)
        restarted, up_since = False, -math.inf
        if asks_whether_restarted(handover.attempt, verdict):
            restarted, up_since = await self._restarted(link)
        if listed and verdict and not restarted and asks_for_details(handover.attempt, verdict):
            verdict = self._verdict(handover, await self.commands.detail(link, listed), said)
        return facts.Settled(verdict, restarted, up_since, self.remembered_s, random.random())

    def _verdict(self, handover: Handover, listed: ListedEntry | None, said: str) -> Verdict | None:
        dialect, claimed, now = self.commands.dialect, handover.attempt.claimed, time.time()
        if listed is None:
            return dialect.vanished(claimed, handover.attempt.stop, now)
        return dialect.verdict(listed, said, claimed, now)

    async def _restarted(self, link: Link) -> tuple[bool, float]:
        """Whether the controller was started anew, not long ago, and when; asked once for many."""
        times = self.table.times
        if time.monotonic() - self._looked > times.race_s:
            site = await self.commands.site(link)
            young = site.booted != self.booted and site.uptime_s < times.restarted_s
            self._restart = young, time.time() - site.uptime_s
            self._looked = time.monotonic()
        return self._restart

    async def _stop(self, link: Link, asked: list[Handover]) -> None:
        some = [one for one in asked if one.attempt.stop and not one.attempt.is_over]
        if some:
            await self.files.stop(link, some)

    async def explain_return(self, link: Link, handover: Handover) -> None:
        """Say why the queue starts it again by itself, where it knows."""
        attempt = handover.attempt
        try:
            why = await self.commands.why_taken_back(link, attempt.id, attempt.node)
        except QueueSilent:
            return
        if why:
            self.table.take(handover, facts.TakenBack(why))


class Reasons:
    """Why entries wait, of a queue whose list does not say so.

    Asks at once for what is new or in error, and seldom for the rest.
    """

    def __init__(self, commands: Commands, times: Times) -> None:
        self.commands = commands
        self.times = times
        #: Number -> whether it was in error when it was last asked about.
        self._asked: dict[str, bool] = {}
        self._asked_at = 0.0
        #: Number, or number and task -> why.
        self._why: dict[str, str] = {}

    async def explain(self, link: Link, asked: list[Handover], known: Known) -> None:
        """Put into the entries that wait why they do, as far as that can be learned."""
        if self.commands.dialect.explain_words(["0"]) is None:
            return
        waiting = {
            one.key: entry
            for one in asked
            if (entry := known[one.key]) is not None and entry.phase is Phase.WAITING
        }
        await self._ask(link, list(waiting.values()))
        jobs = {one.key: one.attempt.job for one in asked}
        for key, entry in waiting.items():
            known[key] = replace(entry, why=self._text(entry, jobs[key]))

    async def _ask(self, link: Link, waiting: list[ListedEntry]) -> None:
        errors: dict[str, bool] = {}
        for entry in waiting:
            number = entry.id.partition("_")[0]
            errors[number] = errors.get(number, False) or entry.has_error
        now = time.monotonic()
        due = now - self._asked_at >= self.times.places_s
        new = [n for n in errors if due or self._asked.get(n) != errors[n] or not self._why.get(n)]
        if due:
            self._asked_at = now
        self._asked = errors
        self._why = {id: why for id, why in self._why.items() if id.partition("_")[0] in errors}
        if new:
            self._why |= await self.commands.explain(link, new[:_MOST_ASKED])

    def _text(self, entry: ListedEntry, job: int) -> str:
        number, _, task = entry.id.partition("_")
        if entry.has_error:
            error = self._why.get(f"{number}_{task or 1}", "") or "it does not say why"
            return f"in error state: {error} (mend that, then: tow retry {job})"
        return self._why.get(number, "") or entry.why
