"""Submitting: a job alone, or many of a batch as one array."""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from towline.agent.link import Link
from towline.backends.outbox import snapshot_failure
from towline.backends.queue.commands import was_killed
from towline.backends.queue.dialect import Refusal
from towline.backends.queue.entries import Limits, Submission, grouped, in_turn, is_inside
from towline.backends.queue.handover import Handover
from towline.backends.queue.pace import backoff_s
from towline.errors import HostError
from towline.model.job import Ending

if TYPE_CHECKING:
    from towline.backends.queue.queue import Queue

#: Submissions at the same time.
_AT_ONCE = 4
_SETTLING_S = 5.0
#: Most attempts written down by one message.
_MANY = 200


class Submitter:
    """Attempts that one queue does not have yet."""

    def __init__(self, queue: "Queue") -> None:
        self.queue = queue
        self.limits = Limits()
        self._offered: dict[str, Handover] = {}
        self._calls = asyncio.Semaphore(_AT_ONCE)
        self._due: asyncio.Handle | None = None
        #: Arrays that are being handed over.
        self._under_way: set[str] = set()
        #: array -> how many of its tasks may run at a time, where there is a limit.
        self._widths: dict[str, int] = {}

    def offer(self, some: Iterable[Handover]) -> None:
        """Hand these over, with whatever else is offered in the same moment."""
        self._offered.update((handover.key, handover) for handover in some)
        self.again()

    def again(self) -> None:
        """See what can go now."""
        if self._due is None:
            self._due = asyncio.get_running_loop().call_soon(self._send)

    def ended(self) -> None:
        """One of them is over: there may be room for others."""
        self.limits.ended()
        if self._offered or self._widths:
            self.again()

    # --- who goes with whom ------------------------------------------------------------------

    def _send(self) -> None:
        self._due = None
        link, offered = self.queue.driver.link, self._offered
        self._offered = {}
        if link is None:
            return  # all is offered again when the channel is open
        first = self.queue.dialect.first_task
        for entry in self._entries([one for one in offered.values() if self._may_go(one)]):
            for index, handover in enumerate(entry.members):
                handover.asking = True
                if not entry.array or handover.array != entry.array:
                    handover.array, handover.index = entry.array, first + index
            self._under_way.update({entry.array} - {""})
            self.queue.tasks.spawn(
                self._submit(link, entry),
                lambda error, entry=entry: self._give_up(entry, error),  # type: ignore[misc]
            )
        if not self._offered:
            self.limits.all_sent()
        self._widen(link)

    def _may_go(self, handover: Handover) -> bool:
        return self._is_wanted(handover) and not handover.asking

    def _is_wanted(self, handover: Handover) -> bool:
        known = self.queue.wanted.get(handover.key) is handover
        return known and not (handover.stop or handover.id or handover.claimed)

    def _entries(self, some: list[Handover]) -> list[Submission]:
        shared = [one for one in some if one.group and self.limits.site]
        found = [entry for group in grouped(shared).values() for entry in self._arrays(group)]
        there = Counter(one.batch for one in self.queue.wanted.values() if is_inside(one))
        for one in some:
            if one.group and self.limits.site:
                continue
            if one.at_once and there[one.batch] >= one.at_once:
                self._hold([one])
                continue
            there[one.batch] += 1
            found.append(Submission([one]))
        return found

    def _arrays(self, some: list[Handover]) -> list[Submission]:
        """Split a group into arrays of allowed size; hold back the rest."""
        most, at_once = self.limits.most(time.time()), 0
        stepwise = self.limits.is_narrow or some[0].at_once > 0
        if some[0].at_once:
            keys = {one.key for one in some}
            others = (one for key, one in self.queue.wanted.items() if key not in keys)
            there = sum(one.batch == some[0].batch and is_inside(one) for one in others)
            at_once = in_turn(some[0], there)
        if not most or (stepwise and self._under_way) or (some[0].at_once and not at_once):
            self._hold(some)
            return []
        if some[0].array and len(some) <= most:
            return [Submission(some, some[0].array, at_once)]
        parts = [some[at : at + most] for at in range(0, len(some), most)]
        if stepwise:
            self._hold([one for part in parts[1:] for one in part])
            parts = parts[:1]
        return [Submission(part, self._new_name(), at_once) for part in parts]

    def _hold(self, some: list[Handover]) -> None:
        self._offered.update((handover.key, handover) for handover in some)
        for handover in some:
            if not handover.reason:
                self.queue.tell(
                    handover, f"others of its batch are before it in {self.queue.title}'s queue"
                )

    def _new_name(self) -> str:
        return f"{self.queue.engine_id}-a{secrets.token_hex(6)}"

    def _widen(self, link: Link) -> None:
        """The last array of a batch may use what the ones before it used."""
        alive: dict[str, dict[str, Handover]] = {}
        for one in self.queue.wanted.values():
            if one.at_once and one.array and one.id and not one.is_over:
                alive.setdefault(one.batch, {})[one.array] = one
        for arrays in alive.values():
            array, one = next(iter(arrays.items()))
            if len(arrays) == 1 and self._widths.get(array) != one.at_once:
                self._widths[array] = one.at_once
                words = self.queue.dialect.throttle_words(one.id, one.at_once)
                if words is not None:
                    calling = self.queue.commands.call(link, words)
                    self.queue.tasks.spawn(calling, lambda error: None)  # it is only slower then

    # --- over there --------------------------------------------------------------------------

    async def _submit(self, link: Link, entry: Submission) -> None:
        everybody = entry.members
        try:
            async with self._calls:
                answer = await self._hand_over(link, entry)
        except HostError:
            # Found again, or sent, when the channel is open; the command may be at it this moment.
            for handover in everybody:
                handover.not_before = time.time() + _SETTLING_S
            return
        finally:
            self._under_way.discard(entry.array)
            for handover in everybody:
                handover.asking = False
            self.again()
        if answer is not None:
            self._answered(entry, answer)

    async def _hand_over(self, link: Link, entry: Submission) -> dict[str, Any] | None:
        """What the command said; None when nobody is left to be handed over."""
        snapshots = dict.fromkeys(s for handover in entry.members for s in handover.snapshots)
        await self.queue.driver.bring(link, tuple(snapshots))
        # Some may have been stopped while the files were on their way.
        entry.members = [handover for handover in entry.members if self._is_wanted(handover)]
        if not entry.members:
            return None
        for handover in entry.members:
            handover.sent = True
        root, first = link.hello["root"], entry.members[0]
        if entry.array:
            message = await self._prepare(link, entry, root)
        else:
            message = {**first.message(root), "anew": first.vanished}
        answer, _ = await link.ask("hand_over", login=self.queue.commands.login, **message)
        return answer

    async def _prepare(self, link: Link, entry: Submission, root: str) -> dict[str, Any]:
        """Have all tasks of an array written down; the message that hands it over."""
        members = entry.members
        for at in range(0, len(members), _MANY):
            part = members[at : at + _MANY]
            tasks = {str(one.index): one.message(root)["specs"][0] for one in part}
            await link.ask("prepare_handed", array=entry.array, tasks=tasks)
        asked = members[0].message(root)
        indexes = [one.index for one in members]
        return {
            "key": entry.array,
            "script": asked["script"],
            "order": {**asked["order"], "array": True},
            "specs": [],
            "tasks": {str(one.index): one.key for one in members},
            "argv": members[0].words(entry.array, root, indexes, entry.at_once),
        }

    # --- what came of it ---------------------------------------------------------------------

    def _answered(self, entry: Submission, answer: dict[str, Any]) -> None:
        dialect, error = self.queue.dialect, answer["err"]
        if ticket := dialect.read_ticket(answer["out"]):
            self._accepted(entry, ticket)
            return
        refusal, killed = dialect.refusal(answer, bool(entry.array)), was_killed(answer["code"])
        if refusal is Refusal.MISSING:
            there, command = self.queue.driver.name, dialect.submit_command
            text = f"there is no {command} on {there}: is it the cluster's access node?"
            self._end(entry.members, "refused", text)
        elif entry.array and refusal is Refusal.FULL:
            self._full(entry, error, certain=not killed)
        elif refusal in (Refusal.PASSING, Refusal.FULL) or killed:
            self._later(entry, error)
        elif refusal is Refusal.NO_ARRAYS:
            self.limits.learn(0)
            self._loosen(entry)
        else:
            text = f"{self.queue.title} refused it: {dialect.complaint(error)}"
            self._end(entry.members, "refused", text)

    def _accepted(self, entry: Submission, ticket: str) -> None:
        for handover in entry.members:
            # Meanwhile another entry may have shown that it runs it.
            handover.id = handover.id or handover.number_in(ticket)
            handover.known_at, handover.vanished = time.time(), False
            self.queue.enter(handover, number=handover.id)
            self.queue.tell(handover, f"in {self.queue.title}'s queue")
        if entry.array:
            self.limits.accepted()
        if entry.at_once:
            self._widths[entry.array] = entry.at_once
        self.queue.watcher.soon()
        self.queue.cancel_soon([handover for handover in entry.members if handover.stop])

    def _later(self, entry: Submission, error: str) -> None:
        tries = entry.members[0].tries + 1
        pause_s, text = backoff_s(tries), self.queue.dialect.complaint(error)
        for handover in entry.members:
            handover.tries, handover.not_before = tries, time.time() + pause_s
            self.queue.tell(handover, f"{self.queue.title} does not take it now: {text}")
        self.queue.watcher.soon()

    def _full(self, entry: Submission, error: str, certain: bool) -> None:
        """There is no room for so many: try fewer, and go on when others have ended."""
        there = sum(map(is_inside, self.queue.wanted.values()))
        now, pause_s = time.time(), backoff_s(self.limits.tries)
        until = self.limits.refused(len(entry.members), there, now, pause_s)
        if not certain:
            self._later(entry, error)
            return
        text = self.queue.dialect.complaint(error)
        for handover in entry.members:
            self.queue.tell(handover, f"{self.queue.title} does not take more now: {text}")
        self._loosen(entry)
        asyncio.get_running_loop().call_later(max(0.0, until - now), self.again)

    def _loosen(self, entry: Submission) -> None:
        """It certainly did not become an array: who was in it may go in another, or alone."""
        for handover in entry.members:
            handover.array, handover.vanished = "", True
        self.offer(entry.members)

    def _give_up(self, entry: Submission, error: Exception) -> None:
        """They could not be handed over, so each of them ends with the reason."""
        for handover in entry.members:
            self.queue.end_all(handover, snapshot_failure(error))

    def _end(self, some: Iterable[Handover], cause: str, text: str) -> None:
        for handover in some:
            self.queue.end_all(handover, Ending(cause=cause, text=text, ended=time.time()))
