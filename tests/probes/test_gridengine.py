"""What Grid Engine's commands print, as recorded from a real 8.1.9, and what it means."""

from pathlib import Path

import pytest

from towline.probes import gridengine as reading
from towline.probes import gridengine_site as site

RECORDED = Path(__file__).parent / "recorded" / "gridengine"


def recorded(name: str) -> str:
    return (RECORDED / name).read_text()


@pytest.mark.parametrize(
    ("said", "number"),
    [
        ('Your job 2 ("job.sh") has been submitted\n', "2"),
        ('Your job-array 4.1-10:3 ("job.sh") has been submitted\n', "4"),
        ("6\n", "6"),
        ("7.1-3:1\n", "7"),
        ("JSV: No h_data is set\n12\n", "12"),
        (
            (
                "Unable to run job: warning: student's job is not allowed to run in any queue\n"
                'Your job 754 ("wx") has been submitted\nExiting.\n'
            ),
            "754",
        ),
        ('Unable to run job: Job was rejected because job requests unknown queue "7"\n', ""),
        ("", ""),
    ],
)
def test_number_of_a_job_is_found_in_whatever_qsub_says(said: str, number: str) -> None:
    assert reading.read_ticket(said) == number


@pytest.mark.parametrize(
    ("error", "text"),
    [
        ('Unable to run job: unknown resource "nosuch"\nExiting.\n', 'unknown resource "nosuch"'),
        ('qsub: invalid option argument "-zzz"\n', 'qsub: invalid option argument "-zzz"'),
        (
            (
                'Unable to run job: Job 32 cannot run in PE "smp" because it only offers 0 slots\n'
                "verification: no suitable queues\nExiting.\n"
            ),
            'cannot run in PE "smp" because it only offers 0 slots',
        ),
        ("", "it gave no reason"),
    ],
)
def test_complaints_are_one_line_without_what_qsub_adds(error: str, text: str) -> None:
    assert reading.complaint(error) == text


def test_a_silent_qmaster_and_a_full_one_are_told_from_what_is_wrong() -> None:
    down = (
        "error: commlib error: got select error (Connection refused)\nUnable to run job: unable to"
        ' send message to qmaster using port 16444 on host "vm": got send error\nExiting.\n'
    )
    full = "Unable to run job: job rejected: only 3 jobs are allowed per user (current job count)"
    wrong = 'Unable to run job: unknown resource "nosuch"'
    assert [reading.is_passing(text) for text in (down, full, wrong)] == [True, False, False]
    assert [reading.is_full(text) for text in (down, full, wrong)] == [False, True, False]


def test_list_has_every_job_with_its_whole_name_its_state_and_its_tasks() -> None:
    listed = reading.read_list(recorded("list.xml"))
    assert [(one.number, one.state, one.host) for one in listed][:3] == [
        ("1", "r", "h2"),
        ("2", "r", "h3"),
        ("2", "r", "h3"),
    ]
    waiting = {one.number: one for one in listed if one.is_waiting}
    assert waiting["2"].tasks == tuple(range(6, 13))
    assert {number: one.has_error for number, one in waiting.items() if one.has_error} == {
        "3": True
    }
    assert reading.mark_of(waiting["5"].name) == "eng-15-1-abc"
    assert reading.mark_of("other") == ""


@pytest.mark.parametrize("text", ["", "<?xml version='1.0'?><job_info>", "error: commlib error"])
def test_half_a_list_is_no_list(text: str) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        reading.read_list(text)


def test_lists_of_tasks_in_all_their_forms() -> None:
    forms = {"": [], "7": [7], "1,3": [1, 3], "3-10:1": [*range(3, 11)], "2,4-10:3": [2, 4, 7, 10]}
    assert {text: list(reading.tasks_in(text)) for text in forms} == forms
    assert reading.numbers(["12", "13_5", "13_6", "13_9"]) == ["12", "13.5-6", "13.9"]


def test_why_jobs_wait_and_what_went_wrong_with_those_in_error() -> None:
    whys = reading.read_whys(recorded("why.txt"))
    assert whys["3"].errors == {1: "can't chdir to /no/such: No such file or directory"}
    assert reading.in_words(whys["5"].reasons).startswith("all places are taken")
    off = (
        "=====\njob_number: 9\nscheduling info: (Collecting of scheduler job information is turned"
    )
    assert reading.read_whys(f"{off} off)\n")["9"].is_off
    checked = reading.read_checks(
        'Job 6 (-l gpu=5) cannot run at host "h2" because it offers only hc:gpu=2.000000\n'
        "verification: no suitable queues\n"
    )
    assert reading.in_words(checked["6"]).startswith('(-l gpu=5) cannot run at host "h2"')
    full = 'queue instance "cpu@ge1" dropped because it is disabled'
    assert reading.in_words([full, "Job is in error state"]) == '"cpu@ge1" is disabled'


def test_accounts_have_the_last_run_of_each_job_and_task() -> None:
    one, task = reading.read_accounts(recorded("acct.txt"))
    assert (one.id, one.account, one.failed, one.exit_status) == ("1", "tow.eng-12-1-abc", 100, 137)
    assert (task.id, task.host, task.failure) == ("2_3", "h3", "assumedly after job")


def test_hosts_have_their_slots_memory_and_gpus() -> None:
    first, second = site.read_nodes(recorded("nodes.xml"))
    assert (first.name, first.cpus, first.cpus_free, first.mem_mb) == ("h2", 4, 2, 24064)
    assert (first.gpus, second.gpus, second.cpus_free) == ({"": 2}, {}, 0)
    assert (first.partitions, first.down, first.closed) == (("cpu",), "", "")
    assert (first.facts["num_proc"], first.facts["arch_string"]) == ("2", "lx-amd64")


def test_gpus_that_jobs_have_are_still_the_hosts() -> None:
    """`qhost` itself says only how many are left."""
    left = recorded("nodes.xml").replace("'hc'>2.000000", "'hc'>0.000000")
    values = "complex_values        exclusive=true, \\\n                      gpu=2(0 1)\n"
    first, second = site.read_nodes(f"{left}hostname  h3\nhostname  h2\n{values}")
    assert (first.gpus, first.gpus_free, second.gpus) == ({"": 2}, {"": 0}, {})
    assert site.read_nodes(left)[0].gpus == {}


@pytest.mark.parametrize(
    ("state", "down", "closed"),
    [("u", "does not hear", ""), ("E", "", "qmod -cq"), ("d", "", "disabled"), ("au", "does", "")],
)
def test_a_host_that_takes_no_jobs_says_why(state: str, down: str, closed: str) -> None:
    text = recorded("nodes.xml").replace("'state_string'></", f"'state_string'>{state}</", 1)
    node = site.read_nodes(text)[0]
    assert down in node.down and closed in node.closed
    assert bool(node.down) != bool(node.closed) and node.facts["states"] == state


def test_site_says_its_parallel_environments_complexes_and_limits() -> None:
    found = site.read_site(recorded("site.txt"))
    assert found is not None
    assert {one.name: (one.rule, one.queues) for one in found.environments} == {
        "mpi": ("$round_robin", ("cpu",)),
        "smp": ("$pe_slots", ("cpu",)),
    }
    assert (found.longest, found.tells_why, found.queues) == (75000, True, ("cpu",))
    assert found.complexes["gpu"].is_counted and not found.complexes["h_vmem"].is_counted
    assert site.read_site("[configuration]\n[complexes]\n") is None


def test_what_keeps_a_job_from_hosts_that_it_is_meant_for_is_told_first() -> None:
    others = [
        f'(-l gpu=1) cannot run in queue "cpu@n{n}" because job requests unknown resource (gpu)'
        for n in range(9)
    ]
    reason = '(-l gpu=1) cannot run at host "gpu1" because it offers only hc:gpu=0.000000'
    assert reading.in_words([*others, reason]).startswith(
        f"{reason}; (-l gpu=1) cannot run in queue"
    )
