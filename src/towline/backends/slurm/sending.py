"""Into Slurm's queue: by one call of sbatch for a job, or for many of a batch as one array."""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from towline.agent.link import Link
from towline.backends.outbox import snapshot_failure
from towline.backends.slurm.arrays import Entry, Limits, grouped, in_turn, is_inside
from towline.backends.slurm.handed import Handed
from towline.backends.slurm.pace import backoff_s
from towline.errors import HostError
from towline.model.job import Ending
from towline.probes.slurm import complaint, is_full, is_passing, read_ticket, spans, was_killed

if TYPE_CHECKING:
    from towline.backends.slurm.queue import Queue

#: Calls of sbatch at the same time.
_AT_ONCE = 4
_SETTLING_S = 5.0
#: Most attempts written down by one message.
_MANY = 200


class Sending:
    """Attempts of one queue that Slurm does not have yet."""

    def __init__(self, queue: "Queue") -> None:
        self.queue = queue
        self.limits = Limits()
        self._offered: dict[str, Handed] = {}
        self._calls = asyncio.Semaphore(_AT_ONCE)
        self._due: asyncio.Handle | None = None
        #: Arrays that are being handed over.
        self._under_way: set[str] = set()
        #: array -> how many of its tasks may run at a time, where there is a limit.
        self._widths: dict[str, int] = {}

    def offer(self, some: Iterable[Handed]) -> None:
        """Hand these over, with whatever else is offered in the same moment."""
        self._offered.update((handed.key, handed) for handed in some)
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
        for entry in self._entries([one for one in offered.values() if self._may_go(one)]):
            for index, handed in enumerate(entry.members):
                handed.asking = True
                if not entry.array or handed.array != entry.array:
                    handed.array, handed.index = entry.array, index
            self._under_way.update({entry.array} - {""})
            self.queue.tasks.spawn(
                self._submit(link, entry),
                lambda error, entry=entry: self._give_up(entry, error),  # type: ignore[misc]
            )
        if not self._offered:
            self.limits.all_sent()
        self._widen(link)

    def _may_go(self, handed: Handed) -> bool:
        return self._is_wanted(handed) and not handed.asking

    def _is_wanted(self, handed: Handed) -> bool:
        known = self.queue.wanted.get(handed.key) is handed
        return known and not (handed.stop or handed.id or handed.claimed)

    def _entries(self, some: list[Handed]) -> list[Entry]:
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
            found.append(Entry([one]))
        return found

    def _arrays(self, some: list[Handed]) -> list[Entry]:
        """Those of one group as arrays; who has to wait stays here."""
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
            return [Entry(some, some[0].array, at_once)]
        parts = [some[at : at + most] for at in range(0, len(some), most)]
        if stepwise:
            self._hold([one for part in parts[1:] for one in part])
            parts = parts[:1]
        return [Entry(part, self._new_name(), at_once) for part in parts]

    def _hold(self, some: list[Handed]) -> None:
        self._offered.update((handed.key, handed) for handed in some)
        for handed in some:
            if not handed.reason:
                self.queue.tell(handed, "others of its batch are before it in Slurm's queue")

    def _new_name(self) -> str:
        return f"{self.queue.engine_id}-a{secrets.token_hex(6)}"

    def _widen(self, link: Link) -> None:
        """The last array of a batch may use what the ones before it used."""
        alive: dict[str, dict[str, Handed]] = {}
        for one in self.queue.wanted.values():
            if one.at_once and one.array and one.id and not one.is_over:
                alive.setdefault(one.batch, {})[one.array] = one
        for arrays in alive.values():
            array, one = next(iter(arrays.items()))
            if len(arrays) == 1 and self._widths.get(array) != one.at_once:
                self._widths[array] = one.at_once
                number = one.id.partition("_")[0]
                words = ["scontrol", "update", f"JobId={number}"]
                words.append(f"ArrayTaskThrottle={one.at_once}")
                calling = self.queue.commands.call(link, words)
                self.queue.tasks.spawn(calling, lambda error: None)  # it is only slower then

    # --- over there --------------------------------------------------------------------------

    async def _submit(self, link: Link, entry: Entry) -> None:
        everybody = entry.members
        try:
            async with self._calls:
                answer = await self._hand_over(link, entry)
        except HostError:
            # Found again, or sent, when the channel is open; sbatch may be at it this moment.
            for handed in everybody:
                handed.not_before = time.time() + _SETTLING_S
            return
        finally:
            self._under_way.discard(entry.array)
            for handed in everybody:
                handed.asking = False
            self.again()
        if answer is not None:
            self._answered(entry, answer)

    async def _hand_over(self, link: Link, entry: Entry) -> dict[str, Any] | None:
        """What sbatch said; None when nobody is left to be handed over."""
        snapshots = dict.fromkeys(s for handed in entry.members for s in handed.snapshots)
        await self.queue.driver.bring(link, tuple(snapshots))
        # Some may have been stopped while the files were on their way.
        entry.members = [handed for handed in entry.members if self._is_wanted(handed)]
        if not entry.members:
            return None
        for handed in entry.members:
            handed.sent = True
        root, first = link.hello["root"], entry.members[0]
        if entry.array:
            message = await self._prepare(link, entry, root)
        else:
            message = {**first.message(root), "anew": first.vanished}
        answer, _ = await link.ask("hand_over", login=self.queue.commands.login, **message)
        return answer

    async def _prepare(self, link: Link, entry: Entry, root: str) -> dict[str, Any]:
        """Have all tasks of an array written down; the message that hands it over."""
        members = entry.members
        for at in range(0, len(members), _MANY):
            part = members[at : at + _MANY]
            tasks = {str(one.index): one.message(root)["specs"][0] for one in part}
            await link.ask("prepare_handed", array=entry.array, tasks=tasks)
        asked = members[0].message(root)
        numbers = spans(one.index for one in members)
        numbers += f"%{entry.at_once}" if entry.at_once else ""
        return {
            "key": entry.array,
            "script": asked["script"],
            "order": {**asked["order"], "array": True},
            "specs": [],
            "tasks": {str(one.index): one.key for one in members},
            "argv": members[0].words(entry.array, root, numbers),
        }

    # --- what came of it ---------------------------------------------------------------------

    def _answered(self, entry: Entry, answer: dict[str, Any]) -> None:
        ticket, error, code = read_ticket(answer["out"]), answer["err"], answer["code"]
        killed = was_killed(code)
        if ticket:
            self._accepted(entry, ticket)
        elif code == 127:
            there = self.queue.driver.name
            text = f"there is no sbatch on {there}: is it the cluster's access node?"
            self._end(entry.members, "refused", text)
        elif entry.array and is_full(error):
            self._full(entry, error, certain=not killed)
        elif is_passing(error) or is_full(error) or killed:
            self._later(entry, error)
        elif entry.array and "array" in error.lower():
            self.limits.learn(0)
            self._loosen(entry)
        else:
            self._end(entry.members, "refused", f"Slurm refused it: {complaint(error)}")

    def _accepted(self, entry: Entry, ticket: str) -> None:
        for handed in entry.members:
            # Meanwhile another entry may have shown that it runs it.
            handed.id = handed.id or handed.number_in(ticket)
            handed.known_at, handed.vanished = time.time(), False
            self.queue.enter(handed, number=handed.id)
            self.queue.tell(handed, "in Slurm's queue")
        if entry.array:
            self.limits.accepted()
        if entry.at_once:
            self._widths[entry.array] = entry.at_once
        self.queue.watch.soon()
        self.queue.cancel_soon([handed for handed in entry.members if handed.stop])

    def _later(self, entry: Entry, error: str) -> None:
        tries = entry.members[0].tries + 1
        pause_s = backoff_s(tries)
        for handed in entry.members:
            handed.tries, handed.not_before = tries, time.time() + pause_s
            self.queue.tell(handed, f"Slurm does not take it now: {complaint(error)}")
        self.queue.watch.soon()

    def _full(self, entry: Entry, error: str, certain: bool) -> None:
        """There is no room for so many: try fewer, and go on when others have ended."""
        there = sum(map(is_inside, self.queue.wanted.values()))
        now, pause_s = time.time(), backoff_s(self.limits.tries)
        until = self.limits.refused(len(entry.members), there, now, pause_s)
        if not certain:
            self._later(entry, error)
            return
        for handed in entry.members:
            self.queue.tell(handed, f"Slurm does not take more now: {complaint(error)}")
        self._loosen(entry)
        asyncio.get_running_loop().call_later(max(0.0, until - now), self.again)

    def _loosen(self, entry: Entry) -> None:
        """It certainly did not become an array: who was in it may go in another, or alone."""
        for handed in entry.members:
            handed.array, handed.vanished = "", True
        self.offer(entry.members)

    def _give_up(self, entry: Entry, error: Exception) -> None:
        """They could not be handed over, so each of them ends with the reason."""
        for handed in entry.members:
            self.queue.end_all(handed, snapshot_failure(error))

    def _end(self, some: Iterable[Handed], cause: str, text: str) -> None:
        for handed in some:
            self.queue.end_all(handed, Ending(cause=cause, text=text, ended=time.time()))
