"""How one attempt goes through a queue, fact by fact."""

import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from towline.backends.queue import facts
from towline.backends.queue.attempt import step
from towline.backends.queue.dialect import ListedEntry, Phase, Verdict
from towline.backends.queue.facts import Fact, Order
from towline.backends.queue.state import TRANSITIONS, Attempt, Place, diagram
from towline.backends.queue.times import Times
from towline.model.events import AttemptWaits, ProcessEnded, ProcessStarted
from towline.model.job import Ending

NEW = Attempt("e-1-1", 1, 1, 1, "Slurm")
WAITING = ListedEntry("7", Phase.WAITING, "e-1-1", why="others are before it")
RUNNING = ListedEntry("7", Phase.RUNNING, "e-1-1", nodes="n1")
GONE = Verdict(Ending(cause="lost", text="its node failed"), certain=True, not_begun="node failed")
CANCELLED = Verdict(Ending(cause="cancelled"), certain=True, cancelled=True)


def after(*told: Fact, attempt: Attempt = NEW, now: float = 1000.0) -> Attempt:
    for fact in told:
        attempt, _ = step(attempt, fact, now)
    return attempt


def orders(attempt: Attempt, fact: Fact, now: float = 1000.0) -> tuple[Order, ...]:
    return step(attempt, fact, now)[1]


def endings(attempt: Attempt, fact: Fact, now: float = 1000.0) -> list[Ending]:
    reports = [one.fact for one in orders(attempt, fact, now) if isinstance(one, facts.Report)]
    return [fact.ending for fact in reports if isinstance(fact, ProcessEnded)]


def seen(state: str = "running", **more: Any) -> facts.RankSeen:
    return facts.RankSeen(0, state, 0, 5.0, "n1", **more)  # type: ignore[arg-type]


ASKING = after(facts.Submitted())
QUEUED = after(facts.Accepted("7"), attempt=ASKING)
RUNS = after(seen(is_news=True), attempt=QUEUED)


def test_the_usual_way_of_an_attempt() -> None:
    assert (ASKING.place, ASKING.id) == (Place.ASKING, "")
    assert (QUEUED.place, QUEUED.id) == (Place.IN_QUEUE, "7")
    assert (RUNS.place, RUNS.id, RUNS.started) == (Place.CLAIMED, "7", {0})
    ended = after(seen("ended", ending=Ending(code=0, started=5.0)), attempt=RUNS)
    assert ended.place is Place.OVER


def test_submission_without_an_answer_is_looked_for_before_it_is_repeated() -> None:
    lost = after(facts.NoAnswer(5.0), attempt=ASKING)
    assert lost.place is Place.UNANSWERED
    assert orders(lost, facts.Found((WAITING,)), 1010.0) != (facts.Submit(),)
    assert after(facts.Found((WAITING,)), attempt=lost).id == "7"
    # The command may still be at it.
    assert orders(lost, facts.Found(), 1004.0) == ()
    assert orders(lost, facts.Found(), 1005.0) == (facts.Submit(),)


def test_nothing_is_submitted_while_an_answer_is_awaited() -> None:
    assert orders(ASKING, facts.Found(), 9999.0) == ()
    assert after(facts.Found((WAITING,)), attempt=ASKING).id == ""


def test_entry_that_the_queue_refused_or_that_was_given_up_is_not_taken_up() -> None:
    lost = replace(after(facts.NoAnswer(0.0), attempt=ASKING), given_up=frozenset({"7"}))
    refused = ListedEntry("8", Phase.REFUSED, "e-1-1")
    assert orders(lost, facts.Found((WAITING, refused))) == (facts.Submit(),)


def test_double_is_ended_only_when_another_has_the_claim() -> None:
    double = ListedEntry("6", Phase.WAITING, "e-1-1")
    assert orders(QUEUED, facts.Found((WAITING, double))) == ()
    assert orders(RUNS, facts.Found((RUNNING, double))) == (facts.EndDoubles(("7", "6")),)


def test_claim_says_which_entry_runs_it() -> None:
    one = after(facts.Recorded("7", None, ("6", "0")), attempt=QUEUED)
    assert (one.place, one.id) == (Place.CLAIMED, "6")


@pytest.mark.parametrize("late", [facts.Accepted("9"), facts.PutOff("", 5.0), facts.NoAnswer(5.0)])
def test_answer_that_comes_after_its_news_changes_nothing(late: Fact) -> None:
    one = after(late, attempt=RUNS)
    assert (one.place, one.id, one.not_before) == (Place.CLAIMED, "7", 0.0)


def test_refusal_of_a_second_submission_does_not_end_what_the_first_put_into_the_queue() -> None:
    refused = facts.Refused(Ending(cause="refused"))
    assert endings(ASKING, refused)
    for attempt in (QUEUED, RUNS):
        assert after(refused, attempt=attempt) == attempt


def test_what_began_is_never_handed_over_again() -> None:
    over = after(facts.Judged(None, 1000.0), attempt=RUNS)
    settled = facts.Settled(GONE)
    assert [ending.cause for ending in endings(over, settled, 1030.0)] == ["lost"]
    assert endings(over, settled, 1010.0) == []  # its record may come yet
    assert [e.cause for e in endings(over, facts.Settled(None), 1100.0)] == ["lost"]


def test_what_had_not_begun_is_handed_over_again_later_each_time() -> None:
    attempt, waits = QUEUED, []
    for number in ("7", "8", "9"):
        over = after(facts.Judged(None, 1000.0), attempt=attempt)
        again = after(facts.Settled(GONE), attempt=over)
        assert (again.place, again.id, again.vanished) == (Place.UNANSWERED, "", True)
        assert number in again.given_up
        waits.append(again.not_before - 1000.0)
        attempt = after(facts.Submitted(), facts.Accepted(str(int(number) + 1)), attempt=again)
    assert waits == sorted(waits) and len(set(waits)) == 3


def test_what_the_queue_cancelled_is_handed_over_again_only_after_a_restart_and_not_for_ever() -> (
    None
):
    over = after(facts.Judged(None, 1000.0), attempt=QUEUED)
    assert endings(over, facts.Settled(CANCELLED, restarted=False))
    again = after(facts.Settled(CANCELLED, restarted=True), attempt=over)
    assert again.place is Place.UNANSWERED
    often = replace(over, given_up=frozenset({"4", "5", "6"}))
    assert endings(often, facts.Settled(CANCELLED, restarted=True))


STOPPED_EARLY = Ending(cause="evicted", text="stopped before it started")


def test_what_was_claimed_and_cancelled_before_it_began_is_another_attempt_after_a_restart() -> (
    None
):
    waits = after(seen("ended", is_news=True, ending=STOPPED_EARLY), attempt=QUEUED)
    assert waits.never_began and not waits.started
    (again,) = endings(waits, facts.Settled(CANCELLED, restarted=True))
    assert (again.cause, again.started) == ("void", 0.0)
    assert [one.cause for one in endings(waits, facts.Settled(GONE))] == ["void"]
    by_somebody = endings(waits, facts.Settled(CANCELLED, restarted=False))
    assert [one.cause for one in by_somebody] == ["evicted"]
    asked = replace(waits, stop=True)
    assert [one.cause for one in endings(asked, facts.Settled(GONE))] != ["void"]


@pytest.mark.parametrize("told", [{"started": 5.0}, {"run": 1}])
def test_what_began_in_any_run_of_it_is_never_another_attempt_unasked(told: dict[str, int]) -> None:
    ending = replace(STOPPED_EARLY, started=told.get("started", 0.0))
    last = facts.RankSeen(0, "ended", told.get("run", 0), 0.0, "n1", ending=ending, is_news=True)
    waits = after(last, attempt=QUEUED)
    for verdict in (CANCELLED, GONE):
        over = endings(waits, facts.Settled(verdict, restarted=True))
        assert [one.cause for one in over] == ["evicted"]


def test_what_a_controller_knew_before_it_restarted_may_be_what_it_has_lost() -> None:
    """The Engine may have been killed with it, so that nobody saw it in the queue lately."""
    found = replace(QUEUED, known_at=500.0)
    over = after(facts.Judged(None, 1000.0), attempt=found)
    restarted, old = facts.Settled(None, up_since=600.0), facts.Settled(None, up_since=400.0)
    assert after(restarted, attempt=over, now=1010.0).place is Place.UNANSWERED
    assert after(old, attempt=over, now=1010.0).place is Place.IN_QUEUE
    assert [ending.cause for ending in endings(over, old, 1100.0)] == ["lost"]


def test_what_is_to_stop_is_not_handed_over_again() -> None:
    asked = after(facts.StopAsked(), facts.Judged(None, 1000.0), attempt=QUEUED)
    assert endings(asked, facts.Settled(GONE), 1030.0)


def test_what_was_never_sent_stops_at_once_and_what_was_is_looked_for_first() -> None:
    assert [ending.cause for ending in endings(NEW, facts.StopAsked())] == ["void"]
    assert orders(ASKING, facts.StopAsked()) == ()
    asked = after(facts.StopAsked(), facts.NoAnswer(5.0), attempt=ASKING)
    assert orders(asked, facts.Found(), 1010.0) == ()
    assert endings(asked, facts.StopTold(), 1001.0) == []
    assert [ending.cause for ending in endings(asked, facts.StopTold(), 1010.0)] == ["void"]
    assert facts.Stop() in orders(after(facts.StopAsked(), attempt=ASKING), facts.Accepted("7"))


def test_several_processes_have_time_to_stop_by_themselves() -> None:
    two = replace(RUNS, count=2, stop=True)
    assert orders(two, facts.StopDue()) == ()
    told = after(facts.StopDue(), attempt=two)
    assert orders(told, facts.StopDue(), 1000.0 + Times().patience_s) == (facts.CancelEntry(),)
    assert orders(replace(RUNS, stop=True), facts.StopDue()) == (facts.CancelEntry(),)


def test_run_that_the_queue_stopped_ends_with_the_reason_that_the_queue_gives() -> None:
    evicted = Ending(signal=15, cause="evicted", text="stopped", started=5.0)
    waits = after(seen("ended", ending=evicted), attempt=RUNS)
    assert waits.place is Place.CLAIMED
    reason = Verdict(Ending(cause="lost"), cause="timeout", reason="its time was over")
    (ending,) = endings(waits, facts.Settled(reason))
    assert (ending.cause, ending.text, ending.signal) == ("timeout", "its time was over", 15)


def test_entry_that_waits_again_after_it_ran_was_taken_back() -> None:
    later = facts.Judged(WAITING, RUNS.begun_at + 60.0)
    told = orders(RUNS, later, 1060.0)
    assert facts.ExplainReturn() in told
    reports = [one.fact for one in told if isinstance(one, facts.Report)]
    assert next(fact.again for fact in reports if isinstance(fact, AttemptWaits))
    back = after(later, attempt=RUNS, now=1060.0)
    assert (back.again, back.started) == (True, frozenset())
    # What the list said may be older than the news of its start.
    assert facts.ExplainReturn() not in orders(RUNS, facts.Judged(WAITING, RUNS.begun_at + 1.0))
    # News of the earlier run are old.
    assert not after(seen(), attempt=back).started
    began = orders(back, replace(seen(), run=1))
    assert any(
        isinstance(one.fact, ProcessStarted) for one in began if isinstance(one, facts.Report)
    )


def test_files_that_say_it_goes_on_overrule_a_list_that_called_it_over() -> None:
    over = after(facts.Judged(None, 1000.0), attempt=RUNS)
    back = after(seen("waiting", why="timeout"), attempt=over)
    assert (back.again, back.over_since) == (True, 0.0)
    assert step(back, facts.Settled(GONE), 1100.0) == (back, ())


def test_what_is_over_stays_so() -> None:
    over = after(seen("ended", ending=Ending(code=0, started=5.0)), attempt=RUNS)
    for fact in (facts.StopAsked(), facts.Found((RUNNING,)), facts.Settled(GONE), seen()):
        assert step(over, fact, 2000.0) == (over, ())


def test_every_place_has_a_way_to_the_end_and_none_leads_back_from_it() -> None:
    assert {place for place, happening in TRANSITIONS if happening == "end"} == {*Place} - {
        Place.OVER
    }
    assert not [place for place, _ in TRANSITIONS if place is Place.OVER]
    assert not [after for (place, _), after in TRANSITIONS.items()
                if place is Place.CLAIMED and after is not Place.OVER]  # fmt: skip


def test_architecture_shows_the_table() -> None:
    text = (Path(__file__).resolve().parents[2] / "ARCHITECTURE.md").read_text()
    shown = re.findall(r"```mermaid\n(.*?)\n```", text, re.DOTALL)
    assert diagram() in shown


def test_a_list_older_than_the_number_does_not_shorten_the_wait_for_a_record() -> None:
    """A shared file system may show the record of a short job only after a while."""
    stale = after(facts.Judged(None, 995.0), attempt=RUNS, now=1000.0)
    ended = ListedEntry("7", Phase.ENDED, "e-1-1")
    unexplained = facts.Settled(Verdict(Ending(cause="lost")), False, 0.0, 300.0, 0.5)
    over = after(facts.Judged(ended, 1030.0), attempt=stale, now=1030.0)
    assert endings(over, unexplained, 1030.0) == []
    still = after(facts.Judged(ended, 1049.0), attempt=over, now=1049.0)
    assert endings(still, unexplained, 1049.0) == []
    assert [one.cause for one in endings(still, unexplained, 1050.0)] == ["lost"]


def test_what_its_node_could_not_judge_is_handed_over_again_once_more_is_known() -> None:
    returned = facts.Recorded("7", returned=frozenset({"7"}))
    back = after(returned, attempt=QUEUED)
    assert (back.place, back.id, back.early, back.given_up) == (Place.UNANSWERED, "", True, {"7"})
    listed = ListedEntry("7", Phase.ENDED, "e-1-1")
    assert orders(back, facts.Found((listed,)), 1100.0) == (facts.Submit(),)
    assert not after(facts.Rechained(), attempt=back).early
    begun = facts.Recorded("8", claim=("8", "0"), returned=frozenset({"7"}))
    assert after(begun, attempt=QUEUED).claimed


def test_an_entry_that_its_queue_will_never_start_is_cancelled_and_skipped() -> None:
    never = ListedEntry("7", Phase.WAITING, "e-1-1", why="another ended otherwise", never=True)
    told = facts.Judged(never, 1000.0)
    assert facts.Stop() in orders(QUEUED, told)
    doomed = after(told, facts.Judged(None, 1010.0), attempt=QUEUED)
    (ending,) = endings(doomed, facts.Settled(CANCELLED), 1011.0)
    assert (ending.cause, ending.text) == ("skipped", "another ended otherwise")


def test_a_run_that_somebody_suspends_says_so_until_it_goes_on() -> None:
    still = ListedEntry("7", Phase.RUNNING, suspended=True)
    attempt = after(facts.Judged(still, 1000.0), attempt=RUNS)
    assert attempt.standing() == {"suspended": True}
    going = facts.Judged(ListedEntry("7", Phase.RUNNING), 1001.0)
    assert after(going, attempt=attempt).standing() == {}


def test_what_kept_an_entry_is_no_longer_told_once_it_has_a_node() -> None:
    aside = ListedEntry("7", Phase.WAITING, "e-1-1", word="Eqw", has_error=True)
    attempt = after(facts.Judged(aside, 1000.0), attempt=QUEUED)
    assert (attempt.word, attempt.in_error) == ("Eqw", True)
    attempt = after(facts.Judged(RUNNING, 1001.0), attempt=attempt)
    assert (attempt.word, attempt.in_error, attempt.place) == ("", False, Place.IN_QUEUE)
