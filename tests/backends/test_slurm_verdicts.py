"""How often Slurm is asked, and what its word means where a job's own files are silent."""

import itertools
import math
import random

from towline.backends.queue.change import explained, forgotten
from towline.backends.queue.handover import by_name, leading
from towline.backends.queue.pace import Pace
from towline.backends.queue.times import Times
from towline.backends.slurm.dialect import listed_entry, uptime_s
from towline.backends.slurm.verdicts import (
    ending_by_slurm,
    is_certain,
    never_began,
    took_too_much,
    verdict,
    was_refused,
)
from towline.model.job import Ending
from towline.probes.slurm import SlurmEntry, SlurmSite

TIMES = Times()


def calls(pace: Pace, seconds: float, now: float = 0.0) -> list[float]:
    """When a Slurm is asked in so many seconds in which nothing happens."""
    found = []
    until = now + seconds
    while (now := now + max(0.0, pace.left_s(now))) < until:
        found.append(now)
        pace.asking(now)
        pace.answered()
    return found


def test_idle_slurm_is_asked_at_most_twice_a_minute() -> None:
    pace = Pace(TIMES, random.Random(1))
    pace.soon(0.0)
    asked = calls(pace, 3600.0)
    assert asked[0] == TIMES.soon_s
    late = [time for time in asked if time > 120]
    assert all(later - earlier >= 30 for earlier, later in itertools.pairwise(late))


def test_slurm_is_never_asked_in_quick_succession() -> None:
    pace = Pace(TIMES, random.Random(2))
    now, asked = 0.0, []
    for _ in range(1000):
        pace.soon(now)
        if pace.left_s(now) <= 0:
            asked.append(now)
            pace.asking(now)
        now += 0.1
    assert all(later - earlier >= TIMES.often_s for earlier, later in itertools.pairwise(asked))
    assert len(asked) > 15


def test_silent_slurm_is_left_alone_for_longer_each_time() -> None:
    pace = Pace(TIMES, random.Random(3))
    pace.soon(0.0)
    waits = []
    for _ in range(10):
        pace.silent(0.0)
        waits.append(pace.left_s(0.0))
    assert waits[0] >= TIMES.often_s
    assert waits[-1] > TIMES.seldom_s
    assert max(waits) <= TIMES.longest_s * 1.2


def test_nothing_to_ask_means_no_question() -> None:
    pace = Pace(TIMES, random.Random(4))
    assert calls(pace, 3600.0) == []
    pace.soon(0.0)
    pace.idle()
    assert calls(pace, 3600.0) == []


def test_refused_submissions_are_repeated_later_and_later() -> None:
    assert TIMES.backoff_s(1, 1.0) < 5
    assert TIMES.backoff_s(30, 0.99) <= TIMES.longest_s * 1.2


def test_part_that_waits_speaks_for_the_whole_job() -> None:
    waiting = listed_entry(SlurmEntry("9", "PENDING", "Resources"))
    running = listed_entry(SlurmEntry("9", "RUNNING"))
    assert leading([running, waiting]) == waiting
    assert leading([listed_entry(SlurmEntry("9", "COMPLETED")), running]) == running
    assert leading([]) is None


def test_unknown_is_never_failed() -> None:
    assert forgotten("Slurm", 1.0).cause == "lost"
    by_slurm = ending_by_slurm(SlurmEntry("1", "COMPLETED", exit_code="0:0"), "", True, 1.0)
    assert (by_slurm.cause, by_slurm.code) == ("lost", None)
    assert "no record" in by_slurm.text
    assert ending_by_slurm(SlurmEntry("1", "NODE_FAIL"), "", True, 1.0).cause == "lost"


def test_slurms_word_names_the_cause() -> None:
    def cause(state: str) -> str:
        return ending_by_slurm(SlurmEntry("1", state), "", True, 1.0).cause

    assert cause("TIMEOUT") == "timeout"
    assert cause("OUT_OF_MEMORY") == "oom"
    assert cause("CANCELLED") == "cancelled"


def test_folder_that_a_node_does_not_see_is_told_with_what_to_do() -> None:
    for code in ("97:0", "0:53"):
        ending = ending_by_slurm(SlurmEntry("1", "FAILED", exit_code=code), "", False, 1.0)
        assert "set `folder`" in ending.text
    ending = ending_by_slurm(SlurmEntry("1", "FAILED", exit_code="98:0"), "", False, 1.0)
    assert "python3" in ending.text


def test_last_words_of_the_script_are_passed_on() -> None:
    ending = ending_by_slurm(
        SlurmEntry("1", "FAILED", exit_code="1:0"), "a\nlast words\n\n", True, 1.0
    )
    assert ending.text.endswith("it said: last words")


def test_stopped_process_keeps_its_record_and_gets_slurms_reason() -> None:
    ending = Ending(signal=15, cause="evicted", text="Slurm stopped it", out_size=7)
    told = explained(ending, verdict(SlurmEntry("1", "PREEMPTED"), "", True, 1.0))
    assert (told.cause, told.signal, told.out_size) == ("evicted", 15, 7)
    assert "another job" in told.text
    cancelled = verdict(SlurmEntry("1", "CANCELLED"), "", True, 1.0)
    assert explained(ending, cancelled).cause == "cancelled"
    assert explained(ending, None) == ending


def test_entries_are_told_by_their_comment_or_their_folder() -> None:
    ours = SlurmEntry("7", "PENDING", comment="towline:e-1-1", folder="/home/me")
    rewritten = SlurmEntry(
        "8", "PENDING", comment="energy=7", folder="/home/me/.towline/handed/e-2-1"
    )
    strange = SlurmEntry("7", "RUNNING", comment="", folder="/home/me")
    found = by_name(map(listed_entry, [ours, rewritten, strange]))
    assert found["e-1-1"] == [listed_entry(ours)]
    assert found["e-2-1"] == [listed_entry(rewritten)]


def test_job_that_slurm_did_not_accept_is_not_in_its_queue() -> None:
    assert was_refused(SlurmEntry("2", "FAILED", "BadConstraints"))
    assert not was_refused(SlurmEntry("2", "FAILED", "NonZeroExitCode", nodes="h2"))


def test_only_what_its_node_took_down_before_it_began_can_begin_elsewhere() -> None:
    assert never_began(SlurmEntry("9", "NODE_FAIL"))
    for state in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "DEADLINE"):
        assert not never_began(SlurmEntry("9", state))


def test_a_record_is_waited_for_where_slurm_does_not_explain_the_end() -> None:
    assert not is_certain(SlurmEntry("9", "COMPLETED", exit_code="0:0"))
    assert not is_certain(SlurmEntry("9", "FAILED", exit_code="1:0"))
    for state in ("CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "DEADLINE", "NODE_FAIL"):
        assert is_certain(SlurmEntry("9", state))
    assert is_certain(SlurmEntry("9", "FAILED", exit_code="0:53"))


def test_what_slurm_calls_completed_has_not_failed_though_nobody_saw_it_begin() -> None:
    assert ending_by_slurm(SlurmEntry("9", "COMPLETED"), "", False, 1.0).cause == "lost"


def test_uptime_of_the_controller_is_known_where_it_tells_both_times() -> None:
    def up(booted: str, as_of: str) -> float:
        return uptime_s(SlurmSite(None, 300.0, booted, as_of))

    assert up("2026-11-16T11:59:00", "2026-11-16T12:00:30") == 90
    assert up("", "") == up("N/A", "2026-11-16T12:00:30") == math.inf


def test_what_slurm_killed_for_its_memory_is_told_so_whatever_slurm_calls_it() -> None:
    step = "slurmstepd-h2: error: StepId=3.batch exceeded memory limit (626671616 > 104857600)"
    group = "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=3.batch cgroup."
    newer = "slurmstepd: error: Detected 1 oom_kill event in StepId=3.batch. Some tasks are gone"
    for said in (f"hello\n{step}, being killed\n", group, newer):
        ending = ending_by_slurm(SlurmEntry("3", "FAILED", exit_code="0:9"), said, True, 5.0)
        assert (ending.cause, ending.ended) == ("oom", 5.0) and "(--mem)" in ending.text
    assert not took_too_much("the job itself says: exceeded memory limit\n")
