"""What Slurm's commands print, as recorded from a real one, and what it means."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.probes.slurm import (
    SlurmEntry,
    account_words,
    complaint,
    expected,
    has_no_accounting,
    is_full,
    is_passing,
    joined,
    queue_words,
    read_accounts,
    read_all_states,
    read_array_limit,
    read_details,
    read_memory_s,
    read_plain_number,
    read_queue,
    read_site,
    read_ticket,
    spans,
    why_waiting,
)
from towline.probes.slurm_places import place_of, read_pending

QUEUE = """\
9+0|PENDING|Resources|2026-11-16T00:50:56||main|(null)|1:00:00|/home/me/.towline/handed/abc-9-1|towline:abc-9-1
9+1|PENDING|Resources|2026-11-16T00:50:56||main|(null)|1:00:00|/home/me/.towline/handed/abc-9-1|towline:abc-9-1
53|FAILED|NonZeroExitCode|2026-11-16T01:22:06|h[2-3]|main|(null)|1:00:00|/home/me|towline:5c36173a-18-1
11|RUNNING|None|2026-11-16T00:36:00|h2|main|(null)|1:00:00|/home/me|(null)
12_7|PENDING|ReqNodeNotAvail, UnavailableNodes:h[2-3]|N/A||main|(null)|1:00:00|/home/me|a | b
2|FAILED|BadConstraints|N/A||main|(null)|1:00:00|/home/me|(null)
"""


def test_queue_is_read_with_the_parts_of_a_job_under_one_number() -> None:
    found = read_queue(QUEUE)
    start = "2026-11-16T00:50:56"
    assert found[0] == found[1]
    assert found[0] == SlurmEntry(
        "9",
        "PENDING",
        "Resources",
        start,
        comment="towline:abc-9-1",
        folder="/home/me/.towline/handed/abc-9-1",
        partition="main",
        time_limit="1:00:00",
    )
    assert found[2].nodes == "h[2-3]"
    assert (found[3].reason, found[3].nodes, found[3].comment) == ("", "h2", "")
    assert (found[4].id, found[4].start, found[4].comment) == ("12_7", "", "a | b")
    assert found[5].reason == "BadConstraints"


def test_one_call_asks_for_all_jobs_of_a_user() -> None:
    words = queue_words("me")
    assert "squeue" in words
    assert {"--noheader", "--states=all", "--user=me"} < set(words)
    assert "--jobs=1,2" in account_words(["1", "2"])


def test_what_a_login_shell_prints_is_passed_over() -> None:
    noise = "Welcome to cedar!\n|||\nquota: 3|of|4\n"
    assert read_queue(noise + QUEUE) == read_queue(QUEUE)
    assert read_ticket("Welcome to node 7\n12\n") == "12"


def test_accounts_are_read_and_the_last_run_of_a_job_counts() -> None:
    text = (
        "12|NODE_FAIL|0:0|2026-11-16T00:10:00|h2|/home/me/a\n"
        "12|COMPLETED|0:0|2026-11-16T00:12:00|h3|/home/me/a|b\n"
        "13|CANCELLED by 1000|0:15|Unknown|None assigned|\n"
        "14+0|OUT_OF_MEMORY|0:125|2026-11-16T00:12:00|h3|/home/me\n"
    )
    first, second, third = read_accounts(text)
    assert (first.state, first.nodes, first.folder) == ("COMPLETED", "h3", "/home/me/a|b")
    assert (second.id, second.state, second.start, second.nodes) == ("13", "CANCELLED", "", "")
    assert (third.id, third.state) == ("14", "OUT_OF_MEMORY")


def test_details_of_a_job_have_its_exit_code() -> None:
    text = (
        "JobId=10 HetJobId=9 HetJobOffset=1 JobName=h.sh UserId=worker(7700) "
        "JobState=FAILED Reason=NonZeroExitCode Dependency=(null) ExitCode=97:0 "
        "StartTime=2026-11-16T00:35:39 NodeList=h4 Comment=towline:x-1-1\n"
    )
    (found,) = read_details(text)
    assert found == SlurmEntry(
        "9",
        "FAILED",
        "NonZeroExitCode",
        "2026-11-16T00:35:39",
        "h4",
        "towline:x-1-1",
        "97:0",
    )


@pytest.mark.parametrize(
    ("text", "number"),
    [("12\n", "12"), ("12;cedar\n", "12"), ("", ""), ("sbatch: error: no\n", "")],
)
def test_ticket_is_the_number_that_sbatch_prints(text: str, number: str) -> None:
    assert read_ticket(text) == number


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Priority", "other jobs are before it"),
        ("ReqNodeNotAvail, UnavailableNodes:h2", "no node of that kind is up now"),
        ("QOSMaxCpuPerUserLimit", "quality of service"),
        ("AssocGrpMemLimit", "your account"),
        ("JobHeldUser", "scontrol release"),
        ("SomethingNew", "Slurm: SomethingNew"),
    ],
)
def test_reasons_are_told_in_words_with_slurms_own_beside_them(reason: str, words: str) -> None:
    told = why_waiting(SlurmEntry("1", "PENDING", reason))
    assert words in told
    assert reason in told


def test_job_without_a_reason_is_just_in_the_queue() -> None:
    assert why_waiting(SlurmEntry("1", "PENDING")) == "in Slurm's queue"


@pytest.mark.parametrize(
    "error",
    [
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying",
        "sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received",
        "timed out: no answer for 60 s\nConnection timed out",
    ],
)
def test_troubles_of_the_moment_are_told_from_refusals(error: str) -> None:
    assert is_passing(error)
    assert not is_passing("sbatch: error: Invalid --mem specification")


def test_a_full_queue_is_no_refusal() -> None:
    assert is_full(
        "sbatch: error: QOSMaxSubmitJobPerUserLimit\n"
        "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy "
        "(job submit limit, user's size and/or time limits)"
    )
    assert not is_full("sbatch: error: Batch job submission failed: Invalid account")


def test_site_without_accounts_is_recognised() -> None:
    assert has_no_accounting("Slurm accounting storage is disabled\n")


def test_expected_start_is_told() -> None:
    said = (
        "sbatch: Job 41 to start at 2026-11-16T01:12:39 using 3 processors on nodes h[2-4] "
        "in partition main\n"
    )
    assert expected(said) == "it would start on h[2-4] on 2026-11-16 at 01:12:39"
    assert expected("sbatch: something new\n") == "something new"


def test_complaints_are_one_line_without_prefixes() -> None:
    error = (
        "sbatch: error: invalid partition specified: nope\n"
        "sbatch: error: Batch job submission failed: Invalid partition name specified\n"
    )
    assert complaint(error) == (
        "invalid partition specified: nope; Invalid partition name specified"
    )
    unknown = (
        "sbatch: unrecognized option '--foo=abc'\nTry \"sbatch --help\" for more information\n"
    )
    assert complaint(unknown) == "unrecognized option '--foo=abc'"
    assert complaint("") == "it said nothing"


@given(st.text())
def test_no_text_breaks_a_reader(text: str) -> None:
    for read in (read_queue, read_accounts, read_details, read_ticket, complaint):
        read(text)


def test_tasks_of_arrays_are_read_one_by_one() -> None:
    assert "--array" in queue_words("me")
    rows = (
        "12_7|RUNNING|None|N/A|h2|main|(null)|1:00|/x|towline:a\n"
        "12_[8-9%2]|PENDING|Priority|N/A||main|(null)|1:00|/x|towline:a\n"
    )
    assert [one.id for one in read_queue(rows)] == ["12_7"]
    (found,) = read_details("JobId=20 ArrayJobId=12 ArrayTaskId=7 JobState=FAILED ExitCode=97:0\n")
    assert (found.id, found.exit_code) == ("12_7", "97:0")
    assert read_plain_number("JobId=20 ArrayJobId=12 ArrayTaskId=7") == "20"


def test_numbers_of_an_array_are_one_word() -> None:
    assert spans([3, 1, 2, 7, 9, 8]) == "1-3,7-9"
    assert joined(["12_1", "9", "12_2", "12_5"]) == ["12_[1-2,5]", "9"]


def test_how_long_the_controller_remembers_what_ended_is_read() -> None:
    assert read_memory_s("MinJobAge               = 300 sec\n") == 300
    assert read_memory_s("MinJobAge               = 0 sec\n") == math.inf
    assert read_memory_s("slurm_load_ctl_conf error") == math.inf


def test_when_the_controller_was_started_is_read() -> None:
    text = (
        "Configuration data as of 2026-11-16T12:00:30\n"
        "AccountingStorageBackupHost = (null)\nBOOT_TIME               = 2026-11-16T11:59:00\n"
    )
    site = read_site(text)
    assert (site.booted, site.as_of) == ("2026-11-16T11:59:00", "2026-11-16T12:00:30")
    assert read_site("slurm_load_ctl_conf error").booted == ""


def test_limit_on_arrays_is_the_smaller_of_both() -> None:
    assert read_array_limit("MaxArraySize            = 1001\n") == 1001
    both = "MaxArraySize = 1001\nSchedulerParameters = bf_interval=1,max_array_tasks=300\n"
    assert read_array_limit(both) == 300
    assert read_array_limit("slurm_load_ctl_conf error: Unable to contact slurm controller") is None


def test_moments_are_read_where_they_are_the_same_for_everybody() -> None:
    assert SlurmEntry("1", "PENDING", start="1800000000").start_at() == 1_800_000_000
    assert SlurmEntry("1", "PENDING", start="2026-11-16T00:50:56").start_at() == 0
    assert "SLURM_TIME_FORMAT=%s" in queue_words("me")


def test_the_place_of_a_job_is_that_among_those_of_its_partition() -> None:
    told = "8|main|100\n9|main|300\n10|gpu|999\n11|main|100\nnonsense\n12|main|N/A\n"
    waiting = read_pending(told)
    assert place_of("9", waiting) == (1, 3)
    assert place_of("8", waiting) == (2, 3)
    assert place_of("11_7", waiting) == (3, 3)
    assert place_of("10", waiting) == (1, 1)
    assert place_of("99", waiting) == (0, 0)


def test_the_ends_of_earlier_runs_are_read_from_the_accounts() -> None:
    told = "7|NODE_FAIL|0:0|x|h2|/f\n8|FAILED|1:0|x|h2|/f\n7|REQUEUED|0:0|x|h2|/f\n"
    assert read_all_states(told, "7") == ["NODE_FAIL", "REQUEUED"]
