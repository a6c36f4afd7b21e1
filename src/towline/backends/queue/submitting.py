"""Submitting: a job alone, or many of a batch as one array, or as packs."""

import asyncio
import random
import secrets
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

from towline.agent.link import Link
from towline.backends.machines.driver import Driver
from towline.backends.machines.outbox import snapshot_failure
from towline.backends.queue import facts
from towline.backends.queue.commands import Commands, was_killed
from towline.backends.queue.dialect import Refusal, Site
from towline.backends.queue.entries import (
    Limits,
    PackGathering,
    Submission,
    grouped,
    in_turn,
    is_inside,
    packs_beside,
    submission,
)
from towline.backends.queue.handover import Handover
from towline.backends.queue.state import Place, pack_name
from towline.backends.queue.table import Table
from towline.backends.tasks import Tasks
from towline.errors import HostError, UsageError
from towline.model.job import Ending

#: Submissions at the same time.
_AT_ONCE = 4
#: Most attempts written down by one message.
_MANY = 200
#: As if it had said so, of a queue that does not even say what it has.
_SILENT = {"code": 1, "out": "", "err": "temporarily unavailable: it does not say what it has"}


class Submitter:
    """Attempts that one queue does not have yet."""

    def __init__(
        self, engine_id: str, table: Table, driver: Driver, commands: Commands, tasks: Tasks
    ) -> None:
        self.engine_id = engine_id
        self.table = table
        self.driver = driver
        self.commands = commands
        self.dialect = commands.dialect
        self.tasks = tasks
        self.limits = Limits()
        self.gathering = PackGathering(table.times.gather_s)
        self._site = Site()
        self._offered: dict[str, Handover] = {}
        #: Those that follow others, which are not in the queue yet.
        self._behind: dict[str, Handover] = {}
        table.moved = self._moved
        self._calls = asyncio.Semaphore(_AT_ONCE)
        self._due: asyncio.Handle | None = None
        #: Keys of attempts that are being submitted, and names of arrays that are.
        self._under_way: set[str] = set()
        self._arrays_under_way: set[str] = set()
        #: array -> how many of its tasks may run at a time, where there is a limit.
        self._widths: dict[str, int] = {}

    def learn(self, site: Site) -> None:
        self._site = site
        self.limits.learn(site.longest)

    def offer(self, some: Iterable[Handover]) -> None:
        """Hand these over, with whatever else is offered in the same moment."""
        self._offered.update((handover.key, handover) for handover in some)
        self.again()

    def again(self) -> None:
        """See what can go now."""
        if self._due is None:
            self._due = asyncio.get_running_loop().call_soon(self._submit_all)

    def _moved(self) -> None:
        """What others follow may be in the queue now."""
        if self._behind:
            self.again()

    def ended(self) -> None:
        """One of them is over: there may be room for others."""
        self.limits.ended()
        if self._offered or self._widths:
            self.again()

    # --- who goes with whom ------------------------------------------------------------------

    def _submit_all(self) -> None:
        self._due = None
        link, offered = self.driver.link, self._behind | self._offered
        self._offered, self._behind = {}, {}
        if link is None:
            return  # all is offered again when the channel is open
        some = [one for one in offered.values() if self._may_go(one)]
        self._behind = {one.key: one for one in some if not one.is_ready(self.table.wanted)}
        for entry in self._entries([one for one in some if one.key not in self._behind]):
            self._under_way.update(one.key for one in entry.members)
            self._arrays_under_way.update({entry.array} - {""})
            self.tasks.spawn(
                self._submit(link, entry),
                lambda error, entry=entry: self._give_up(entry, error),  # type: ignore[misc]
            )
        if not self._offered:
            self.limits.all_sent()
        self._widen(link)

    def _may_go(self, handover: Handover) -> bool:
        return self._is_wanted(handover) and handover.key not in self._under_way

    def _is_wanted(self, handover: Handover) -> bool:
        attempt = handover.attempt
        waits = attempt.place in (Place.NOT_SENT, Place.UNANSWERED) and not attempt.stop
        return waits and self.table.wanted.get(handover.key) is handover

    def _is_inside(self, handover: Handover) -> bool:
        is_under_way = handover.key in self._under_way and not handover.attempt.is_over
        return is_under_way or is_inside(handover.attempt)

    def _entries(self, some: list[Handover]) -> list[Submission]:
        packed = grouped(one for one in some if one.pack)
        found = [entry for group in packed.values() for entry in self._packs(group)]
        some = [one for one in some if not one.pack]
        shared = grouped(one for one in some if one.group and self.limits.site)
        found += [entry for group in shared.values() for entry in self._arrays(group)]
        inside = Counter(one.batch for one in self.table.wanted.values() if self._is_inside(one))
        for one in some:
            if one.group and self.limits.site:
                continue
            if one.at_once and inside[one.batch] >= one.at_once:
                self._hold([one])
                continue
            inside[one.batch] += 1
            found.append(Submission([one]))
        return found

    def _arrays(self, some: list[Handover]) -> list[Submission]:
        """Split a group into arrays of allowed size; hold back the rest."""
        first, most, at_once = some[0], self.limits.most(time.time()), 0
        stepwise = self.limits.is_narrow or first.at_once > 0
        if first.at_once:
            keys = {one.key for one in some}
            others = (one for key, one in self.table.wanted.items() if key not in keys)
            inside = sum(one.batch == first.batch and self._is_inside(one) for one in others)
            at_once = in_turn(first.at_once, inside)
        if not most or (stepwise and self._arrays_under_way) or (first.at_once and not at_once):
            self._hold(some)
            return []
        first_task = self.dialect.first_task
        if first.attempt.array and len(some) <= most:
            return [submission(some, first.attempt.array, at_once, first_task)]
        parts = [some[at : at + most] for at in range(0, len(some), most)]
        if stepwise:
            self._hold([one for part in parts[1:] for one in part])
            parts = parts[:1]
        return [submission(part, self._new_name(), at_once, first_task) for part in parts]

    def _packs(self, some: list[Handover]) -> list[Submission]:
        """Put lines together that share an allocation; hold back those that do not go yet."""
        first = some[0]
        if first.attempt.array:
            return [submission(some, first.attempt.array, 0, 0)]
        assert first.pack is not None
        now = time.monotonic()
        parts, look_at = self.gathering.packs(some, now)
        keys = {one.key for one in some}
        others = (one for one in self.table.wanted.values() if one.batch == first.batch)
        inside = (one.attempt for one in others if one.key not in keys and self._is_inside(one))
        room = max(0, packs_beside(first.pack, first.at_once, inside))
        self._hold([one for part in parts[room:] for one in part])
        gone = {one.key for part in parts for one in part}
        if look_at:
            self._offered.update((one.key, one) for one in some if one.key not in gone)
            asyncio.get_running_loop().call_later(max(0.0, look_at - now), self.again)
        new = (pack_name(self.engine_id, secrets.token_hex(6)) for _ in parts)
        return [submission(part, next(new), 0, 0) for part in parts[:room]]

    def _hold(self, some: list[Handover]) -> None:
        self._offered.update((handover.key, handover) for handover in some)
        for handover in some:
            self.table.take(handover, facts.HeldBack())

    def _new_name(self) -> str:
        return f"{self.engine_id}-a{secrets.token_hex(6)}"

    def _widen(self, link: Link) -> None:
        """The last array of a batch may use what the ones before it used."""
        alive: dict[str, dict[str, Handover]] = {}
        for one in self.table.wanted.values():
            attempt = one.attempt
            widens = one.at_once and not one.pack
            if widens and attempt.array and attempt.id and not attempt.is_over:
                alive.setdefault(one.batch, {})[attempt.array] = one
        for arrays in alive.values():
            array, one = next(iter(arrays.items()))
            if len(arrays) == 1 and self._widths.get(array) != one.at_once:
                self._widths[array] = one.at_once
                words = self.dialect.throttle_words(one.attempt.id, one.at_once)
                if words is not None:
                    calling = self.commands.call(link, words)
                    self.tasks.spawn(calling, lambda error: None)  # it is only slower then

    # --- over there --------------------------------------------------------------------------

    async def _submit(self, link: Link, entry: Submission) -> None:
        everybody = entry.members
        try:
            async with self._calls:
                answer = await self._hand_over(link, entry)
        except HostError:
            # Found again, or sent, when the channel is open; the command may be at it this moment.
            no_answer = facts.NoAnswer(self.table.times.settling_s)
            self._take([h for h in everybody if h.attempt.place is Place.ASKING], no_answer)
            return
        finally:
            self._arrays_under_way.discard(entry.array)
            self._under_way.difference_update(one.key for one in everybody)
            self.again()
        if answer is not None:
            self._answered(entry, answer)

    async def _hand_over(self, link: Link, entry: Submission) -> dict[str, Any] | None:
        """What the command said; None when nobody is left to be handed over."""
        snapshots = dict.fromkeys(s for handover in entry.members for s in handover.snapshots)
        await self.driver.bring(link, tuple(snapshots))
        # Some may have been stopped, or found, while the files were on their way.
        entry.members = [handover for handover in entry.members if self._is_wanted(handover)]
        if not entry.members:
            return None
        root, first = link.hello["root"], entry.members[0]
        anew = first.attempt.vanished
        if not self.dialect.knows(self._site):
            self.learn(await self.commands.site(link))
        if not self.dialect.knows(self._site):
            return dict(_SILENT)
        for handover in entry.members:
            task = entry.tasks.get(handover.key, 0)
            self.table.take(handover, facts.Submitted(entry.array, task))
        if entry.array:
            message = await self._prepare(link, entry, root)
        else:
            message = {**first.message(root), "anew": anew}
        message["order"] = {**message["order"], "after": first.after()}
        numbers = first.numbers_ahead(self.table.wanted)
        for handover in entry.members:
            handover.behind = numbers
        if numbers:
            message["argv"] = self.dialect.following(message["argv"], numbers)
        try:
            message["argv"] = self.dialect.fit(message["argv"], self._site)
        except UsageError as problem:
            return {"code": 1, "out": "", "err": problem.text}
        answer, _ = await link.ask("hand_over", login=self.commands.login, **message)
        return answer

    async def _prepare(self, link: Link, entry: Submission, root: str) -> dict[str, Any]:
        """Have all parts of an array or a pack written down; the message that hands it over."""
        members = entry.members
        for at in range(0, len(members), _MANY):
            part = members[at : at + _MANY]
            tasks = {str(entry.tasks[one.key]): one.message(root)["specs"][0] for one in part}
            await link.ask("prepare_handed", array=entry.array, tasks=tasks)
        asked = members[0].message(root)
        indexes = [entry.tasks[one.key] for one in members] if entry.is_array else []
        return {
            "key": entry.array,
            "script": asked["script"],
            "order": {**asked["order"], "array": entry.is_array},
            "specs": [],
            "tasks": {str(entry.tasks[one.key]): one.key for one in members},
            "argv": members[0].words(entry.array, root, indexes, entry.at_once),
        }

    # --- what came of it ---------------------------------------------------------------------

    def _answered(self, entry: Submission, answer: dict[str, Any]) -> None:
        title, error = self.dialect.title, self.dialect.complaint(answer["err"])
        if ticket := self.dialect.ticket_in(answer):
            self._accepted(entry, ticket)
            return
        refusal = self.dialect.refusal(answer, entry.is_array)
        killed = was_killed(answer["code"])
        if refusal is Refusal.MISSING:
            there, command = self.driver.name, self.dialect.submit_command
            self._refuse(
                entry, f"there is no {command} on {there}: is it the cluster's access node?"
            )
        elif entry.is_array and refusal is Refusal.FULL:
            self._full(entry, error, certain=not killed)
        elif refusal in (Refusal.PASSING, Refusal.FULL) or killed:
            self._put_off(entry, error)
        elif refusal is Refusal.NO_ARRAYS:
            self.limits.learn(0)
            self._take(entry.members, facts.NotAsArray())
        else:
            self._refuse(entry, f"{title} refused it: {error}")

    def _accepted(self, entry: Submission, ticket: str) -> None:
        self._take(entry.members, facts.Accepted(ticket))
        if entry.is_array:
            self.limits.accepted()
        if entry.at_once:
            self._widths[entry.array] = entry.at_once

    def _put_off(self, entry: Submission, error: str) -> None:
        tries = entry.members[0].attempt.tries + 1
        pause_s = self.table.times.backoff_s(tries, random.random())
        reason = f"{self.dialect.title} does not take it now: {error}"
        self._take(entry.members, facts.PutOff(reason, pause_s))

    def _full(self, entry: Submission, error: str, certain: bool) -> None:
        """There is no room for so many: try fewer, and go on when others have ended."""
        inside = sum(map(self._is_inside, self.table.wanted.values()))
        now = time.time()
        pause_s = self.table.times.backoff_s(self.limits.tries, random.random())
        until = self.limits.refused(len(entry.members), inside, now, pause_s)
        if not certain:
            self._put_off(entry, error)
            return
        reason = f"{self.dialect.title} does not take more now: {error}"
        self._take(entry.members, facts.NotAsArray(reason))
        asyncio.get_running_loop().call_later(max(0.0, until - now), self.again)

    def _give_up(self, entry: Submission, error: Exception) -> None:
        """They could not be handed over, so each of them ends with the reason."""
        self._take(entry.members, facts.Refused(snapshot_failure(error)))

    def _refuse(self, entry: Submission, text: str) -> None:
        ending = Ending(cause="refused", text=text, ended=time.time())
        self._take(entry.members, facts.Refused(ending))

    def _take(self, some: Iterable[Handover], fact: facts.Fact) -> None:
        for handover in some:
            self.table.take(handover, fact)
