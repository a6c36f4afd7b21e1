"""An attempt in a queue, as a pure machine: `step(attempt, fact, now) -> (attempt, orders)`.

Rule: nothing else decides where an attempt stands, and whether it is handed over again. Three
thoughts make it run once, whatever is killed:

- *It is looked for before it is handed over again.* A submission whose answer was lost, or that a
  killed command made, is UNANSWERED: only where the queue's list does not have it is it submitted.
- *The first claim counts.* Two entries of one attempt may exist all the same. The first to make its
  claim runs it and the other ends at once, so an entry is cancelled as a double only after that.
- *Files first, then the queue's word.* What began is never handed over again: where its files stay
  silent and the queue calls it over, it is lost. What certainly never began is handed over again.

Times come as `now`, chance comes in facts, and neither is looked up here.
"""

from collections.abc import Callable
from typing import Any

from towline.backends.queue import facts
from towline.backends.queue.change import EVICTED, TIME_WAS_OVER, Change, forgotten
from towline.backends.queue.dialect import ListedEntry, Phase, Verdict
from towline.backends.queue.facts import Fact, Order
from towline.backends.queue.state import Attempt, Place
from towline.backends.queue.times import Times
from towline.model.job import Ending

#: What is cancelled again and again is meant to be.
_MOST_CANCELLED = 3
_TIMES = Times()
_VOID = Ending(cause="void", text="stopped before it started")


def step(
    attempt: Attempt, fact: Fact, now: float, times: Times = _TIMES
) -> tuple[Attempt, tuple[Order, ...]]:
    """What becomes of an attempt by a fact, and what is to be done about it."""
    if attempt.is_over and not isinstance(fact, facts.Accepted):
        return attempt, ()
    change = Change(attempt, now, times)
    _HANDLERS[type(fact)](change, fact)
    return change.attempt, tuple(change.orders)


def asks_whether_restarted(attempt: Attempt, verdict: Verdict | None) -> bool:
    """Whether it matters for `Settled` when the controller was started."""
    suspicious = verdict is None or verdict.cancelled
    unbegun = attempt.place is Place.IN_QUEUE or attempt.never_began
    return suspicious and unbegun and not attempt.stop


def asks_for_details(attempt: Attempt, verdict: Verdict) -> bool:
    """Whether it matters for `Settled` what else the queue knows of its end."""
    begins_elsewhere = verdict.not_begun and not (attempt.claimed or attempt.stop)
    told = len(attempt.ended.union(attempt.evicted)) == attempt.count
    return not (begins_elsewhere or told)


# --- of the one who wants it -------------------------------------------------------------------


def _stop_asked(change: Change, fact: facts.StopAsked) -> None:
    change.set(stop=True, stop_now=change.attempt.stop_now or fact.now)
    if change.attempt.place is Place.NOT_SENT:
        change.end_all(_VOID)
    elif change.attempt.id:
        change.orders.append(facts.Stop())


def _rechained(change: Change, _: facts.Rechained) -> None:
    change.set(early=False)
    change.orders.append(facts.AskSoon())


def _stop_due(change: Change, _: facts.StopDue) -> None:
    """What a queue would kill at once is asked itself first, as several processes always are."""
    attempt = change.attempt
    abrupt = attempt.count > 1 or attempt.kills_at_once
    if abrupt and attempt.claimed and not attempt.again:
        patience_s = change.times.patience_s + attempt.grace_s
        until = attempt.patience_until or change.now + patience_s
        change.set(patience_until=until)
    if attempt.id and change.now >= change.attempt.patience_until:
        change.orders.append(facts.CancelEntry())


def _stop_told(change: Change, _: facts.StopTold) -> None:
    if change.attempt.is_unsent(change.now):
        change.end_all(_VOID)
    change.orders.append(facts.AskSoon())


# --- of submitting -----------------------------------------------------------------------------


def _submitted(change: Change, fact: facts.Submitted) -> None:
    if change.move("submit"):
        change.set(array=fact.array, index=fact.index)


def _accepted(change: Change, fact: facts.Accepted) -> None:
    attempt = change.attempt
    # Meanwhile another entry may have shown that it runs it.
    change.in_queue(attempt.id or attempt.number_in(fact.ticket))
    change.set(known_at=change.now, vanished=False)
    change.enter(number=change.attempt.id)
    if not change.attempt.is_over:
        change.tell_while_waiting(f"in {attempt.title}'s queue")
        change.orders.append(facts.AskSoon())
        if attempt.stop:
            change.orders.append(facts.Stop())


def _put_off(change: Change, fact: facts.PutOff) -> None:
    if change.move("put off"):
        tries = change.attempt.tries + 1
        change.set(tries=tries, not_before=change.now + fact.pause_s)
        change.tell(fact.reason)
    change.orders.append(facts.AskSoon())


def _no_answer(change: Change, fact: facts.NoAnswer) -> None:
    if change.move("put off"):
        change.set(not_before=change.now + fact.pause_s)


def _not_as_array(change: Change, fact: facts.NotAsArray) -> None:
    if change.move("put off"):
        change.set(array="", vanished=True)
        if fact.reason:
            change.tell(fact.reason)
        if not change.attempt.stop:
            change.orders.append(facts.Submit())


def _refused(change: Change, fact: facts.Refused) -> None:
    """Another submission of it may have been taken."""
    if change.attempt.place not in (Place.IN_QUEUE, Place.CLAIMED):
        change.end_all(fact.ending)


# --- of its files ------------------------------------------------------------------------------


def _recorded(change: Change, fact: facts.Recorded) -> None:
    attempt = change.attempt
    name, index = fact.array or ("", 0)
    if fact.claim:
        # Once it has begun that stays so, though somebody removes its folder later.
        change.move("claim")
        number = fact.claim[0]
        task = number.partition("_")[2]
        index = int(task) if task.isdecimal() and len(task) < 10 else 0
        change.set(id=number, array=fact.claim[2] if len(fact.claim) > 2 else "", index=index)
    elif not attempt.vanished and attempt.array in ("", name):
        change.set(array=name, index=index)
        if number := attempt.id or change.attempt.number_in(fact.ticket):
            change.in_queue(number)
    if change.attempt.place is Place.IN_QUEUE and change.attempt.id in fact.returned:
        _came_back(change)


def _came_back(change: Change) -> None:
    """Its node did not run it, since nobody over there knew how what it follows has ended."""
    change.set(given_up=change.attempt.given_up | {change.attempt.id}, early=True)
    change.hand_over_again("its node could not see how what it waits for has ended", 0.0)


def _rank_seen(change: Change, seen: facts.RankSeen) -> None:
    if seen.is_news:
        change.move("claim")
    attempt, ending = change.attempt, seen.ending
    if seen.rank in attempt.ended:
        return
    if ending is not None:
        if ending.started:
            change.begin(seen, ending.started)
        if ending.cause == EVICTED and not attempt.stop:
            _evict(change, seen, ending)
        else:
            node = "" if seen.rank in change.attempt.started else seen.node
            change.end(seen.rank, ending, node)
    elif seen.state == "running" and (seen.run or 0) >= attempt.run:
        change.begin(seen, seen.started)
    elif seen.state == "waiting" and seen.run is not None and seen.rank in attempt.started:
        change.set(run=seen.run)
        change.taken_back(TIME_WAS_OVER if seen.why == "timeout" else "")


def _evict(change: Change, seen: facts.RankSeen, ending: Ending) -> None:
    """The queue stopped it, and is asked why."""
    if seen.rank not in change.attempt.evicted:
        change.set(evicted={**change.attempt.evicted, seen.rank: ending})
        change.set(run=max(change.attempt.run, seen.run or 0))
        change.set(over_since=change.attempt.over_since or change.now)
        change.orders.append(facts.AskSoon())


# --- of the queue's word -----------------------------------------------------------------------


def _found(change: Change, fact: facts.Found) -> None:
    """Take up the entry of a submission that gave no answer, or submit it again."""
    attempt = change.attempt
    counting = [one for one in fact.entries if _counts(change, one)]
    alive = tuple(one.id for one in counting if not one.has_ended)
    if counting and not attempt.id and attempt.place is not Place.ASKING:
        change.in_queue(alive[0] if alive else counting[0].id)
        change.tell_while_waiting(f"in {attempt.title}'s queue")
    elif attempt.is_unsent(change.now) and not attempt.stop:
        change.orders.append(facts.Submit())
    if change.attempt.claimed and any(number != change.attempt.id for number in alive):
        change.orders.append(facts.EndDoubles(alive))


def _counts(change: Change, listed: ListedEntry) -> bool:
    """Whether it may be the entry that runs it: not refused, nor one that was given up."""
    return listed.phase is not Phase.REFUSED and listed.id not in change.attempt.given_up


def _judged(change: Change, fact: facts.Judged) -> None:
    attempt, listed = change.attempt, fact.listed
    if not (attempt.id or attempt.claimed) or (fact.late and _waits_for(change, fact.late)):
        return
    if listed is not None:
        change.set(known_at=fact.asked_at)
    if listed is None or listed.has_ended:
        # A list may be older than its number: its record is waited for since the queue knew an end.
        since = 0.0 if listed is not None and attempt.unlisted else change.attempt.over_since
        change.set(over_since=since or change.now, unlisted=listed is None)
        change.orders += [facts.AskSoon(), facts.Settle()]
        return
    change.set(over_since=0.0, unlisted=False, suspended=listed.suspended)
    told = {"partition": listed.partition, "account": listed.account}
    change.enter(number=attempt.id, time_limit=listed.time_limit, **told)
    if listed.phase is not Phase.WAITING:
        # It is no longer set aside, or whatever else kept it.
        change.set(word="", in_error=False)
        where = listed.nodes or "a node"
        change.tell_while_waiting(
            f"in allocation {attempt.id} on {where}, after lines before it"
            if attempt.is_packed
            else f"{attempt.title} starts it on {where}"
        )
        return
    change.set(word=listed.word, expected=listed.expected, in_error=listed.has_error)
    if listed.never and not attempt.claimed:
        change.set(stop=True, never=listed.why)
        change.orders.append(facts.Stop())
        return
    if attempt.started and attempt.begun_at < fact.asked_at - change.times.race_s:
        change.taken_back()
    if not change.attempt.started:
        change.tell(listed.why)


def _waits_for(change: Change, late: str) -> bool:
    """Wait for what the accounts will say of its end, but not for ever."""
    if change.attempt.stop:
        return False
    change.set(over_since=change.attempt.over_since or change.now)
    change.tell_while_waiting(late)
    longest_s = change.times.forgotten_s if change.attempt.evicted else change.times.accounts_s
    return change.now - change.attempt.over_since < longest_s


def _settled(change: Change, fact: facts.Settled) -> None:
    """Where its files stay silent, the queue's word is the last."""
    attempt, verdict = change.attempt, fact.verdict
    if not attempt.over_since:
        return  # its files have just said that it goes on
    if verdict is None:
        _forgotten(change, fact)
    elif (why := _why_not_begun(attempt, verdict, fact.restarted)) and attempt.evicted:
        change.end_unbegun(why)
    elif why or (why := _why_left_over(change, verdict)):
        change.set(given_up=attempt.given_up | {attempt.id})
        change.hand_over_again(why, fact.chance)
    else:
        change.end_evicted(verdict)
        running = attempt.claimed and not attempt.again
        certain = verdict.killed or (verdict.certain and not running)
        if certain or change.now - attempt.over_since >= change.times.settle_s:
            change.end_all(verdict.ending)


def _why_not_begun(attempt: Attempt, verdict: Verdict, restarted: bool) -> str:
    """Why it never began although nobody wanted that; empty where that is not so.

    A controller that was killed gives out numbers again that nodes still know, and these then
    have it cancel what has such a number: a whole array, sometimes.
    """
    if attempt.stop or (attempt.claimed and not attempt.never_began):
        return ""
    few = len(attempt.given_up) < _MOST_CANCELLED
    if not verdict.not_begun and verdict.cancelled and restarted and few:
        return f"{attempt.title} cancelled it soon after its controller had restarted"
    return verdict.not_begun


def _why_left_over(change: Change, verdict: Verdict) -> str:
    """Why a line of a pack never had its turn; empty where that is not certain, or meant so.

    Its allocation is over, and what ran the pack there was killed before it could say more.
    """
    attempt, waited_s = change.attempt, change.now - change.attempt.over_since
    meant = attempt.stop or (verdict.certain and verdict.cause != "oom")
    few = len(attempt.given_up) < _MOST_CANCELLED
    if not attempt.is_packed or attempt.claimed or meant or not few:
        return ""
    return "its allocation ended before its turn" if waited_s >= change.times.settle_s else ""


def _forgotten(change: Change, fact: facts.Settled) -> None:
    """Neither its files nor the queue say anything."""
    attempt, times = change.attempt, change.times
    since_s = change.now - attempt.over_since
    remembered_s = min(times.remembered_s, fact.remembered_s)
    recently = attempt.over_since - attempt.known_at < remembered_s
    vanished = attempt.stop or recently or attempt.known_at < fact.up_since
    if not attempt.claimed and vanished:
        if since_s >= times.race_s:
            change.hand_over_again(f"{attempt.title} has lost it", fact.chance)
    elif since_s >= times.forgotten_s:
        change.end_evicted(None)
        change.end_all(forgotten(attempt.title, change.now))


def _explained(change: Change, fact: facts.TakenBack) -> None:
    change.enter(requeued=fact.why)


def _positioned(change: Change, fact: facts.Positioned) -> None:
    change.set(position=fact.position)


def _silent(change: Change, fact: facts.Silent) -> None:
    attempt = change.attempt
    change.tell_while_waiting(f"{attempt.title} does not answer: {fact.error}")
    if attempt.evicted and change.now - attempt.over_since > change.times.forgotten_s:
        change.end_evicted(None)


def _unreachable(change: Change, fact: facts.Unreachable) -> None:
    if not change.attempt.started:
        change.tell(fact.reason)


def _held_back(change: Change, _: facts.HeldBack) -> None:
    if not change.attempt.reason:
        change.tell(f"others of its batch are before it in {change.attempt.title}'s queue")


_HANDLERS: dict[type, Callable[[Change, Any], None]] = {
    facts.StopAsked: _stop_asked,
    facts.Rechained: _rechained,
    facts.StopDue: _stop_due,
    facts.StopTold: _stop_told,
    facts.Submitted: _submitted,
    facts.Accepted: _accepted,
    facts.PutOff: _put_off,
    facts.NoAnswer: _no_answer,
    facts.NotAsArray: _not_as_array,
    facts.Refused: _refused,
    facts.Recorded: _recorded,
    facts.RankSeen: _rank_seen,
    facts.Found: _found,
    facts.Judged: _judged,
    facts.Settled: _settled,
    facts.TakenBack: _explained,
    facts.Positioned: _positioned,
    facts.Silent: _silent,
    facts.Unreachable: _unreachable,
    facts.HeldBack: _held_back,
}
