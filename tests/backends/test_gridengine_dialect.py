"""From what a job needs to the words of qsub, and from its answers to what they mean."""

import itertools
from pathlib import Path

import pytest
from msgspec.structs import replace

from towline.backends.gridengine.dialect import GridEngineDialect
from towline.backends.gridengine.fitting import verifiable
from towline.backends.queue.dialect import Phase, Refusal, Site, Words
from towline.errors import UsageError
from towline.model.grammar import parse_request
from towline.model.job import Job, JobSpec, Queueing, State
from towline.probes.gridengine_site import Environment, read_site

RECORDED = Path(__file__).parents[1] / "probes" / "recorded" / "gridengine"
SITE = Site(own=read_site((RECORDED / "site.txt").read_text()))
DIALECT = GridEngineDialect()


def asked(request: str = "[]", time_s: float = 0.0, **given: str) -> Words:
    (words,) = DIALECT.options(parse_request(request), time_s, {}, given)
    return words


def fitted(request: str = "[]", **given: str) -> Words:
    return DIALECT.fit(["qsub", *asked(request, **given), "job"], SITE)


def test_options_are_those_of_qsub_and_the_command_line_wins() -> None:
    configured = {"q": "cpu", "l": "h_vmem=1G,gpu=1", "P": "lab"}
    given = {"l": "h_vmem=4G", "pe": "smp 4", "P": "no", "notify": "yes"}
    (words,) = DIALECT.options(parse_request("[]"), 0.0, configured, given)
    assert words == ["-q", "cpu", "-pe", "smp", "4", "-notify", "-l", "h_vmem=4G,gpu=1"]


def test_the_time_limit_of_the_queue_comes_after_the_one_that_is_kept_gently() -> None:
    assert asked(time_s=3600.0) == ["-l", "h_rt=3660"]
    assert asked(time_s=3600.0, l="h_rt=10") == ["-l", "h_rt=10"]


def test_what_hosts_report_is_verified_by_what_they_have_in_all() -> None:
    """`qsub -w v` thinks of empty hosts: what is free on them is unknown to it."""
    told = DIALECT.test_words(Queueing("gridengine", options=[["--mem=8192M", "--cpus=2"]]), SITE)
    assert told is not None and "mem_total=8192M" in told and "smp" in told
    words = ["qsub", "-l", "mf=1G,load_avg=2,arch=lx-amd64", "-l", "np_load_avg=1", "x"]
    assert verifiable(words, None) == ["qsub", "-l", "mem_total=1G,arch=lx-amd64", "x"]
    own = SITE.own
    assert own is not None
    counted = replace(own.complexes["mem_free"], consumable="YES")
    site = replace(own, complexes={**own.complexes, "mem_free": counted})
    assert verifiable(["-l", "mem_free=1G"], site) == ["-l", "mem_free=1G"]


def test_a_queue_can_be_named_by_a_pattern() -> None:
    words = ["qsub", "-q", "*@h3", "--cpus=2", "job"]
    assert DIALECT.fit(words, SITE)[1:4] == ["-pe", "smp", "2"]


@pytest.mark.parametrize("value", ["", True])
def test_an_option_without_its_value_is_refused(value: str | bool) -> None:
    with pytest.raises(UsageError, match="-q needs a value"):
        DIALECT.check_options({"q": value})
    DIALECT.check_options({"notify": value})
    assert asked("[]", R="yes", notify="true") == ["-R", "yes", "-notify"]


@pytest.mark.parametrize("name", ["N", "o", "t", "wd", "V", "-h", "q q", "1"])
def test_options_of_our_own_and_odd_ones_are_refused(name: str) -> None:
    with pytest.raises(UsageError):
        asked(**{name: "x"})


def test_needs_wait_for_the_words_of_the_site() -> None:
    assert asked("[cpus=4,mem=8G]") == ["--cpus=4", "--mem=8192M"]
    assert fitted("[cpus=4]") == ["qsub", "-pe", "smp", "4", "job"]
    assert fitted("[2:gpu]") == ["qsub", "-l", "gpu=2", "job"]
    with pytest.raises(UsageError, match="need 4 slots"):
        asked("4:[]", pe="mpi 3")
    # Of memory that is counted by slot, each of the four that were named has its share.
    shaped = asked("[mem=8G]", pe="smp 4")
    assert shaped == ["-pe", "smp", "4", "--shape=4x1", "--mem=8192M"]
    assert "h_vmem=2048M" in DIALECT.fit(["qsub", *shaped, "--memory-is=h_vmem", "job"], SITE)
    # Of what this site has, only a load value is about memory, and it is of the host as a whole.
    assert fitted("[cpus=4,mem=8G]")[4:6] == ["-l", "mem_free=8192M"]
    named = ["qsub", "--mem=8192M", "--cpus=4", "--memory-is=h_vmem", "job"]
    assert DIALECT.fit(named, SITE) == ["qsub", "-pe", "smp", "4", "-l", "h_vmem=2048M", "job"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--cpus=4", "-q", "other"], "no parallel environment for 4 CPUs on one host"),
        (["--cpus=2", "--processes=2", "--pe-is=mpi"], "2 processes of 2 CPUs each; it has: mpi"),
        (["--processes=1000"], "no parallel environment for 1000 processes"),
        (["--gpus=1", "--cpus=2"], "counts GPUs (gpu) by slot"),
        (["--mem=1M", "--memory-is=nosuch"], "no complex for memory"),
        (["--exclusive=yes"], "to one job alone"),
    ],
)
def test_what_a_site_cannot_do_is_refused_with_what_it_has(words: Words, told: str) -> None:
    with pytest.raises(UsageError) as refused:
        DIALECT.fit(["qsub", *words, "job"], SITE)
    assert told in refused.value.text


@pytest.mark.parametrize(
    ("rule", "reaches", "cpus", "count", "fits"),
    [
        ("$pe_slots", False, 4, 1, True),
        ("$pe_slots", False, 4, 2, True),
        ("$round_robin", True, 1, 8, True),
        ("$round_robin", False, 1, 8, False),
        ("$fill_up", True, 2, 2, False),
        ("$fill_up", True, 4, 1, False),
        ("4", True, 4, 1, True),
        ("4", True, 2, 4, True),
        ("4", True, 2, 3, False),
        ("4", True, 3, 4, False),
        ("4", False, 4, 2, False),
        ("4", False, 2, 2, True),
        ("0", True, 1, 1, False),
    ],
)
def test_an_environment_fits_where_each_process_has_its_cpus_on_one_host(
    rule: str, reaches: bool, cpus: int, count: int, fits: bool
) -> None:
    assert Environment("pe", rule, 99, ("cpu",), reaches).is_for(cpus, count) is fits


def test_processes_go_where_there_is_room_and_ask_for_their_share() -> None:
    assert fitted("3:[]") == ["qsub", "-pe", "mpi", "3", "job"]
    assert fitted("2:[gpu]") == ["qsub", "-pe", "mpi", "2", "-l", "gpu=1", "job"]
    assert fitted("2:[cpus=2]") == ["qsub", "-pe", "smp", "4", "job"]
    words = ["qsub", "--mem=4096M", "--cpus=2", "--processes=2", "--memory-is=h_vmem", "job"]
    assert DIALECT.fit(words, SITE) == ["qsub", "-pe", "smp", "4", "-l", "h_vmem=2048M", "job"]


def test_a_submission_says_all_that_matters_whatever_the_defaults_of_a_site_are() -> None:
    queue = Queueing("gridengine", (("-q", "cpu"),))
    title = "1 train: it's/all*"
    spec = JobSpec(argv=("true",), cluster="msc", owner="me", title=title, queue=queue)
    queued = Job(id=7, spec=spec, state=State.STARTING, submitted=0.0)
    words = DIALECT.submit_words(queued, "e-1-1-x", "/home/me/.towline")
    assert words[-3:] == ["/home/me/.towline/handed/e-1-1-x/script", "/home/me/.towline", "e-1-1-x"]
    said = dict(itertools.pairwise(words))
    assert said["-N"] == "j1_train__it_s_all.tow.e-1-1-x"
    assert (said["-A"], said["-r"], said["-j"]) == ("tow.e-1-1-x", "n", "y")
    array = DIALECT.submit_words(queued, "e-a1", "/r", [3, 1, 2], 5)
    assert "-t 1-3 -tc 5 -q cpu" in " ".join(array)


def test_entries_are_named_by_their_mark_and_those_of_others_are_left_out() -> None:
    entries = DIALECT.read_list((RECORDED / "list.xml").read_text())
    by_name = {entry.name: entry for entry in entries}
    assert by_name["eng-12-1-abc"].phase is Phase.RUNNING
    assert (by_name["eng-a0123_7"].id, by_name["eng-a0123_7"].phase) == ("2_7", Phase.WAITING)
    assert by_name["eng-13-1-abc"].has_error and by_name["eng-14-1-abc"].why == "held"
    assert not any(name.startswith("other") or entry.suspended for name, entry in by_name.items())
    assert DIALECT.cancel_words(["2_6", "2_7", "5"]) == ["qdel", "2.6-7", "5"]


def test_what_it_took_with_a_warning_is_no_refusal() -> None:
    warned = 'Unable to run job: warning: not allowed\nYour job 754 ("wx") has been submitted\n'
    assert DIALECT.ticket_in({"code": 1, "out": "", "err": warned}) == "754"
    refused = {"code": 1, "out": "", "err": "Unable to run job: unknown resource\nExiting.\n"}
    assert DIALECT.ticket_in(refused) == ""
    assert DIALECT.refusal(refused, False) is Refusal.WRONG


ACCOUNT = """\
==============================================================
hostname     h2
jobname      x.tow.e-1-1-x
jobnumber    5
taskid       undefined
account      tow.e-1-1-x
failed       {failed}
exit_status  {status}
ru_wallclock {wallclock}s
category     {category}
"""


@pytest.mark.parametrize(
    ("failed", "status", "category", "claimed", "cause", "text"),
    [
        ("0", "3", "NONE", True, "lost", "exit code 3, but there is no record"),
        ("0", "97", "NONE", False, "failed", "does not see Towline's folder"),
        ("0", "98", "NONE", False, "failed", "no python3 on h2"),
        ("100 : assumedly after job", "137 (Killed)", "NONE", True, "cancelled", "qdel"),
        ("37  : qmaster enforced", "137", "-l h_rt=3", True, "timeout", "time limit (3 s)"),
        ("37  : qmaster enforced", "137", "-l h_vmem=1G", True, "oom", "over its memory"),
        ("19  : before writing exit_status", "0", "NONE", True, "lost", "its host h2 failed"),
    ],
)
def test_the_accounts_word_for_an_end_without_a_record(
    failed: str, status: str, category: str, claimed: bool, cause: str, text: str
) -> None:
    told = ACCOUNT.format(failed=failed, status=status, category=category, wallclock=3)
    (entry,) = DIALECT.read_recalled(told)
    assert entry.name == "e-1-1-x"
    verdict = DIALECT.verdict(entry, "", claimed, now=1.0)
    assert verdict.ending.cause == cause
    assert text in verdict.ending.text


def test_a_run_that_the_queue_took_back_is_not_its_end() -> None:
    told = ACCOUNT.format(failed="25  : rescheduling", status=0, category="NONE", wallclock=0)
    assert not DIALECT.read_recalled(told)[0].has_ended


def test_what_is_gone_without_a_word_was_deleted_unless_it_had_begun() -> None:
    assert DIALECT.vanished(claimed=True, stopped=False, now=1.0) is None
    deleted = DIALECT.vanished(claimed=False, stopped=False, now=1.0)
    assert deleted is not None and "qdel" in deleted.ending.text and not deleted.certain
    stopped = DIALECT.vanished(claimed=False, stopped=True, now=1.0)
    assert stopped is not None and stopped.certain


def test_a_submission_follows_others_beside_those_that_the_user_names() -> None:
    dialect = GridEngineDialect()
    words = dialect.following(["qsub", "-terse", "script"], ["7", "8_3", "8_4"])
    assert words == ["qsub", "-hold_jid", "7,8", "-terse", "script"]
    own = dialect.following(["qsub", "-hold_jid", "mine", "script"], ["7"])
    assert own == ["qsub", "-hold_jid", "mine,7", "script"]


def test_a_time_to_begin_is_said_in_the_clock_of_the_head_node() -> None:
    spec = JobSpec(
        argv=("true",), cluster="msc", owner="me", begin=1900000000.2, queue=Queueing("gridengine")
    )
    job = Job(1, spec, State.QUEUED, 0.0)
    words = DIALECT.fit(DIALECT.submit_words(job, "key", "/root"), SITE)
    assert words[:2] == ["sh", "-c"] and words[3:6] == ["qsub", "@1900000001", "-terse"]
    assert "-a" not in words[3:] and words[-3:] == ["/root/handed/key/script", "/root", "key"]
    assert spec.begin_here == 0.0
