"""What can become of an attempt in a queue, whichever fact brings it about. Pure."""

from typing import Any

from msgspec.structs import replace

from towline.backends.queue import facts
from towline.backends.queue.dialect import Verdict
from towline.backends.queue.facts import Order
from towline.backends.queue.state import TRANSITIONS, Attempt
from towline.backends.queue.times import Times
from towline.model.events import AttemptEntered, AttemptWaits, ProcessEnded, ProcessStarted
from towline.model.job import Ending

#: The cause that a runner records when it was stopped and does not know why.
EVICTED = "evicted"
#: Why a job that goes on after its time limit is in the queue again.
TIME_WAS_OVER = "its time limit came"


class Change:
    """The attempt while one fact changes it, and the orders that come of that."""

    def __init__(self, attempt: Attempt, now: float, times: Times) -> None:
        self.attempt = attempt
        self.orders: list[Order] = []
        self.now = now
        self.times = times

    def set(self, **changes: Any) -> None:
        self.attempt = replace(self.attempt, **changes)

    def move(self, happening: str) -> bool:
        """Go where the table says; False where that cannot happen, or did before."""
        place = TRANSITIONS.get((self.attempt.place, happening))
        if place is not None:
            self.set(place=place)
        return place is not None

    def report(self, fact: AttemptWaits | AttemptEntered | ProcessStarted | ProcessEnded) -> None:
        self.orders.append(facts.Report(fact))

    def tell(self, reason: str) -> None:
        """Say why it waits, unless that was said or it is to stop."""
        attempt = self.attempt
        if attempt.reason != reason and not attempt.stop:
            self.set(reason=reason)
            self.report(AttemptWaits(attempt.job, attempt.number, reason))

    def tell_while_waiting(self, reason: str) -> None:
        if len(self.attempt.started) < self.attempt.count:
            self.tell(reason)

    def enter(self, **told: Any) -> None:
        """The queue has said what it calls it."""
        called = replace(self.attempt.called, **told)
        if called != self.attempt.called:
            self.set(called=called)
            self.report(AttemptEntered(self.attempt.job, self.attempt.number, called))

    def begin(self, seen: facts.RankSeen, at: float) -> None:
        self.move("claim")
        self.set(run=seen.run or 0, again=False)
        if seen.rank not in self.attempt.started:
            started = self.attempt.started | {seen.rank}
            self.set(started=started, begun_at=self.now, reason="", node=seen.node)
            self.set(word="", expected=0.0, position=(0, 0))
            self.enter(number=self.attempt.id)
            attempt = self.attempt
            self.report(ProcessStarted(attempt.job, attempt.number, seen.rank, at, seen.node))

    def end(self, rank: int, ending: Ending, node: str = "") -> None:
        attempt = self.attempt
        if rank not in attempt.ended:
            self.set(ended=attempt.ended | {rank})
            self.report(ProcessEnded(attempt.job, attempt.number, rank, ending, node=node))
            if len(self.attempt.ended) == attempt.count:
                self.move("end")

    def end_all(self, ending: Ending) -> None:
        """End it by our own or the queue's word, which is written down: none of it begins now."""
        before = self.attempt
        for rank in sorted(set(range(before.count)) - before.ended):
            told = {f"{before.key}-{rank}": ending.text or ending.cause}
            self.set(verdicts={**self.attempt.verdicts, **told})
            # What began has made and printed something, whoever tells how it ended.
            began = before.begun_at if rank in before.started else 0.0
            if before.never and not began:
                ending = Ending(cause="skipped", text=before.never, ended=self.now)
            self.end(rank, replace(ending, started=began))

    def end_evicted(self, verdict: Verdict | None) -> None:
        """The queue has said why it stopped them, or never will."""
        for rank, ending in self.attempt.evicted.items():
            self.end(rank, explained(ending, verdict))

    def end_unbegun(self, why: str) -> None:
        """Its claim is taken, and nothing of it ran: only another attempt can begin."""
        for rank, ending in self.attempt.evicted.items():
            self.end(rank, replace(ending, cause="void", text=why))

    def taken_back(self, why: str = "") -> None:
        """The queue will start it again by itself: same entry, same attempt."""
        attempt = self.attempt
        reason = f"in {attempt.title}'s queue again" + (f": {why}" if why else "")
        self.set(started=frozenset(), again=True, over_since=0.0, run=attempt.run + 1)
        self.set(reason=reason)
        self.report(AttemptWaits(attempt.job, attempt.number, reason, again=True))
        self.enter(requeued_at=self.now, requeued=why)
        self.orders.append(facts.AskSoon())
        if not why:
            self.orders.append(facts.ExplainReturn())

    def hand_over_again(self, why: str, chance: float) -> None:
        """It never began; whatever comes of its old entry all the same will find a newer claim."""
        tries = self.attempt.tries + 1
        not_before = self.now + self.times.backoff_s(tries, chance)
        self.move("lose")
        self.set(id="", array="", vanished=True, over_since=0.0, tries=tries, not_before=not_before)
        self.tell(f"{why}; it is handed over again")
        self.orders.append(facts.AskSoon())

    def in_queue(self, number: str) -> None:
        self.move("accept")
        self.set(id=number)


def explained(ending: Ending, verdict: Verdict | None) -> Ending:
    """The end of a process that the queue stopped, with the queue's own word for it."""
    if verdict is None or not verdict.reason:
        return ending
    return replace(ending, cause=verdict.cause or ending.cause, text=verdict.reason)


def forgotten(title: str, now: float) -> Ending:
    """The end of a process of which neither its files nor the queue know anything."""
    text = f"{title} knows nothing of it any more, and there is no record of how it ended"
    return Ending(cause="lost", text=text, ended=now)
