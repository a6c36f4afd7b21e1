"""Grid Engine's words: the options of qsub, the columns of qstat, the answers of all."""

import re
import time
from pathlib import Path
from typing import Any

import pytest

from cli.stub import Stub, answer, job
from testbed.tow import Tow
from towline.cli.compat.gridengine.listing import (
    Entries,
    Entry,
    folded,
    hard_resources,
    task_numbers,
    task_text,
)
from towline.cli.compat.gridengine.qdel import Deletion
from towline.cli.compat.gridengine.submit import mail
from towline.cli.compat.gridengine.submit.options import read_script, read_words
from towline.cli.compat.gridengine.submit.refusals import Refused
from towline.cli.compat.gridengine.submit.values import (
    Tasks,
    check_name,
    moment,
    resources,
    variables,
)
from towline.cli.compat.gridengine.submit.wanted import Wanted
from towline.client.local import path_without_shims


@pytest.mark.parametrize(
    ("text", "shown", "count"),
    [("1-3", "1-3:1", 3), ("1-10:3", "1-10:3", 4), ("5", "5-5:1", 1), ("3-1", "1-3:1", 3)],
)
def test_arrays_are_said_as_grid_engine_says_them(text: str, shown: str, count: int) -> None:
    assert (str(Tasks(text)), len(Tasks(text).numbers)) == (shown, count)


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        (["-zzz"], 'qsub: invalid option argument "-zzz"', 2),
        (["-pe", "smp", "job.sh"], 'The initial portion of string "job.sh" contains no', 7),
        (["-hold_jid_ad", "1", "x.sh"], "not supported", 1),
    ],
)
def test_wrong_options_are_refused_in_its_words(words: list[str], said: str, code: int) -> None:
    with pytest.raises(Refused) as refused:
        read_words(words)
    assert said in refused.value.text and refused.value.code_of_qsub == code


@pytest.mark.parametrize(
    ("check", "said"),
    [
        (lambda: Tasks("0-3"), "job rejected: 0 is an invalid task id"),
        (lambda: Tasks("1-100000"), "more than 75000 tasks"),
        (lambda: check_name("1abc"), '"1abc" is not a valid object name (cannot start with a'),
        (lambda: check_name("none"), 'Keyword ("NONE") not allowed as objectname'),
        (lambda: check_name("a b"), '"a b" is not a valid object name (a blank, a quote or not'),
        (lambda: resources("nosuchres=1"), 'unknown resource "nosuchres"'),
        (lambda: resources("h_rt=abc"), 'attribute "h_rt" is not a time value'),
        (lambda: resources("h_vmem=1X"), 'attribute "h_vmem" is not a memory value'),
    ],
)
def test_what_is_rejected_says_so_and_exits(check: Any, said: str) -> None:
    with pytest.raises(Refused) as refused:
        check()
    text = refused.value.text
    assert text.startswith("Unable to run job: ") and text.endswith("\nExiting.") and said in text
    assert refused.value.code_of_qsub == 1


def test_lines_of_a_script_are_options_and_the_command_line_wins() -> None:
    text = '#!/bin/sh\n#$ -N x -j y\necho\n#$-terse\n# $ -N no\n#$ -v A="x y",B=2 # why\n'
    assert read_script(text, "#$") == {"-N": "x", "-j": "y", "-terse": "y", "-v": "A=x y,B=2"}
    assert read_script(text, "") == {}
    assert read_script("#% -N y\n#$ -N x\n", "#%") == {"-N": "y"}


def test_variables_split_at_every_comma_and_are_not_expanded_here() -> None:
    found = variables("A=$HOME/x,B=a=b,C=,D", {"D": "here"})
    assert found == {"A": "$HOME/x", "B": "a=b", "C": "", "D": "here"}
    with pytest.raises(Refused) as refused:
        variables("=1", {})
    assert refused.value.code_of_qsub == 7


def test_a_time_to_begin_is_read_as_grid_engine_reads_it() -> None:
    noon = time.mktime((2030, 1, 2, 12, 30, 0, 0, 0, -1))
    for text in ("203001021230", "3001021230", "01021230", "203001021230.00"):
        assert moment(text, noon) == noon
    assert moment("01021230.30", noon) == noon + 30
    for wrong in ("99", "20301201000000", "203013010000", "tomorrow"):
        with pytest.raises(Refused) as refused:
            moment(wrong, noon)
        what = "month specification" if "13" in wrong else "format of date/hour-minute field"
        said = f'\nInvalid {what}.\nqsub: Wrong date/time format "{wrong}" '
        assert refused.value.text == f"{said}specified to -a option"
        assert refused.value.code_of_qsub == 7


@pytest.mark.parametrize("letters", ["e", "n"])
def test_who_has_no_sendmail_is_told_that_nobody_is_written_to(
    letters: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mail, "_PLACES", ())
    monkeypatch.setenv("PATH", "/nowhere")
    wanted = Wanted(["-m", letters, "-M", "me@x.org", "-b", "y", "true"])
    assert mail.wanted_here(wanted, {}) == {}
    told = "warning: no mail will be sent: there is no sendmail on this machine\n"
    assert capsys.readouterr().err == (told if letters == "e" else "")


def test_resources_are_time_memory_and_gpus() -> None:
    found = resources("h_rt=1:00:30,h_vmem=4G,gpu=2,arch=lx-amd64")
    assert found == {"time": "3630s", "mem": "4G", "gpus": "2"}
    assert resources("h_rt=90,gpu=0") == {"time": "90s"}


@pytest.mark.parametrize(
    ("tasks", "text"),
    [
        ([1, 3], "1,3"),
        ([1, 2], "1,2"),
        ([1, 2, 3], "1-3:1"),
        ([2, 4, 5, 6, 7], "2,4-7:1"),
        ([1, 4, 7, 10], "1-10:3"),
        ([5], "5"),
    ],
)
def test_task_lists_read_as_they_are_written(tasks: list[int], text: str) -> None:
    assert (task_text(tasks), sorted(task_numbers(text))) == (text, tasks)


def test_hosts_that_do_not_answer_have_dashes_and_patterns_choose(tow: Tow, stub: Stub) -> None:
    there = {"cpus": 8.0, "cpus_free": 6.0, "mem_mb": 2048, "mem_free_mb": 1024}
    machines = [
        {"name": "gpu1", "clusters": ["lab"], "state": "online", **there},
        {"name": "gpu2", "clusters": ["lab"], "state": "offline", "cpus": None},
    ]
    stub.on("GET /v1/machines", answer({"machines": machines}))
    head, _, _, one, two = tow("qhost").stdout.splitlines()
    assert one.split() == ["gpu1", "-", "8", *"---", "2.00", "2.0G", "1.0G", "-", "-"]
    assert two.split() == ["gpu2", *"-" * 10] and head.startswith("HOSTNAME ")
    assert "gpu1" not in tow("qhost", "-h", "*2").stdout
    assert "0/2/8" in tow("qhost", "-q").stdout
    from xml.etree import ElementTree

    tree = ElementTree.fromstring(tow("qhost", "-xml").stdout)
    assert [host.get("name") for host in tree.iter("host")] == ["global", "gpu1", "gpu2"]
    for words in (("-zzz",), ("-h", "gpu3"), ("-h",)):
        wrong = tow("qhost", *words)
        assert (wrong.returncode, wrong.stdout) == (1, "") and "\nerror: " in wrong.stderr


@pytest.mark.parametrize(
    ("state", "more", "letters"),
    [
        ("queued", {}, "qw"),
        ("waiting", {"because": {"kind": "held"}}, "hqw"),
        ("waiting", {"waits_for": [{"job": 1}]}, "hqw"),
        ("waiting", {"begin": 9e9}, "qw"),
        ("starting", {}, "t"),
        ("running", {}, "r"),
        ("stopping", {"started": 1.0}, "dr"),
        ("stopping", {"started": None}, "dqw"),
        ("queued", {"queue": {"kind": "gridengine", "reason": "Eqw"}}, "Eqw"),
        ("queued", {"queue": {"kind": "gridengine", "reason": "Rq"}}, "Rq"),
        ("running", {"queue": {"kind": "gridengine", "suspended": True}}, "s"),
        ("queued", {"queue": {"kind": "gridengine", "partition": "cpu", "reason": ""}}, "t"),
        ("queued", {"queue": {"kind": "gridengine", "partition": "cpu", "reason": "qw"}}, "qw"),
        ("queued", {"queue": {"kind": "slurm", "reason": "Priority"}}, "qw"),
        ("queued", {"queue": {"kind": "slurm", "partition": "gpu"}}, "qw"),
    ],
)
def test_states_are_grid_engines_letters(state: str, more: dict[str, Any], letters: str) -> None:
    entry = Entry(job(12, state, machines=[], **more))
    assert entry.state == letters
    assert entry.is_kept_back == (letters == "hqw" or "begin" in more)


@pytest.mark.parametrize(
    ("request_text", "options", "environment", "slots", "asked"),
    [
        ("[]", None, "", 1, []),
        ("[cpus=3,mem=1.5G]", None, "smp", 3, ["h_vmem=1.5G"]),
        ("4:[cpus=2,gpu],[]", None, "smp", 9, ["gpu=1"]),
        ("[2:gpu]", ["-q", "cpu", "-pe", "mpi", "2-4"], "mpi", 2, ["gpu=2"]),
        ("[mem=1G]", ["-p", "-5", "-l", "h_vmem=1G,h_rt=9"], "", 1, ["h_vmem=1G", "h_rt=9"]),
    ],
)
def test_slots_and_resources_are_those_that_were_asked_for(
    request_text: str, options: list[str] | None, environment: str, slots: int, asked: list[str]
) -> None:
    queue = {"kind": "gridengine", "options": [options]} if options else None
    entry = Entry(job(12, "queued", request=request_text, queue=queue))
    assert (entry.environment, entry.slots) == (environment, slots)
    assert hard_resources(entry, note="") == asked
    limited = [one for one in asked if not one.startswith("h_rt=")] + ["h_rt=7"]
    assert sorted(hard_resources(entry, "", 7.0)) == sorted(limited)


def test_a_job_that_was_taken_back_waits_since_then() -> None:
    queue = {"kind": "gridengine", "reason": "Rq", "requeued_at": 50.0}
    assert Entry(job(12, "queued", submitted=1.0, started=None, queue=queue)).at == 50.0
    assert Entry(job(12, "running", submitted=1.0, started=60.0, queue=queue)).at == 60.0


def array(state: str, lines: dict[int, str]) -> list[Entry]:
    batch = {"first": 104, "name": "arr", "waits_for": []}
    return [Entry(job(103 + n, one, line=n), batch) for n, one in lines.items()]


def test_tasks_that_wait_share_a_line_and_those_that_run_do_not() -> None:
    tasks = array("", {1: "running", 2: "running", **dict.fromkeys(range(3, 11), "queued")})
    shown = [(entry.number, entry.state, text) for entry, text in folded(tasks)]
    assert shown == [(104, "r", "1"), (104, "r", "2"), (104, "qw", "3-10:1")]
    assert len(folded(tasks, each=True)) == 10


def active(stub: Stub, *views: dict[str, Any]) -> None:
    stub.on("GET /v1/jobs", answer({"jobs": list(views)}))
    stub.on("GET /v1/batches", answer({"batches": []}))


def deletions(*named: tuple[str, str]) -> list[str]:
    """Told of an array: two tasks run, one is being deleted, the others wait."""
    entries = Entries.__new__(Entries)
    states = {1: "running", 2: "running", 3: "stopping", **dict.fromkeys(range(4, 11), "queued")}
    entries.all = array("", states)
    deletion = Deletion(entries, "student")
    for name, tasks in named:
        found = [
            one for one in entries.called(name) if not tasks or one.task in task_numbers(tasks)
        ]
        deletion.add(found, bool(tasks) or "." in name)
    return deletion.told


def test_qdel_of_tasks_is_told_as_grid_engine_tells_it() -> None:
    registered = "student has registered the job-array task 104.{} for deletion"
    assert deletions(("104.1", "")) == [registered.format(1)]
    assert deletions(("104", "2")) == [registered.format(2)]
    assert deletions(("104.5-7", "")) == ["student has deleted job-array tasks 5-7:1 of job 104"]
    assert deletions(("104", "2-4")) == [
        registered.format(2),
        "job 104 is already in deletion",
        "student has deleted job-array task 104.4",
    ]
    assert deletions(("104", "")) == [
        registered.format(1),
        registered.format(2),
        "job 104 is already in deletion",
        "student has deleted job 104",
    ]
    assert deletions(("104.5", ""), ("104.5", ""))[1] == "job 104 is already in deletion"


def test_qdel_by_user_and_without_a_word(tow: Tow, stub: Stub) -> None:
    active(stub, job(12, "running", owner="anna"))
    stub.on("POST /v1/jobs/stop", answer({"jobs": [], "unknown": []}))
    for user, code, said in (
        ("*", 1, 'denied: "'),
        ("nobody", 1, "There is no job registered for the following users: nobody\n"),
        ("anna", 0, "has registered the job 12 for deletion\n"),
    ):
        done = tow("qdel", "-u", user)
        assert done.returncode == code and said in done.stdout
    nothing = tow("qdel")
    assert (nothing.returncode, nothing.stdout) == (1, "ERROR! no option argument\n")
    assert nothing.stderr.startswith("usage: qdel [options] job_task_list\n")
    unknown = tow("qdel", "nosuch")
    assert unknown.returncode == 1 and unknown.stdout.startswith("The job nosuch of user(s) ")


def test_qdel_tells_what_was_waiting_and_what_ran(tow: Tow, stub: Stub) -> None:
    active(stub, job(12, "running"), job(13, "queued"), job(14, "stopping"))
    stub.on("POST /v1/jobs/stop", answer({"jobs": [], "unknown": []}))
    done = tow("qdel", "12", "13,14", "99999")
    lines = [re.sub(r"^\S+ has", "me has", line) for line in done.stdout.splitlines()]
    assert (done.returncode, lines) == (
        1,
        [
            "me has registered the job 12 for deletion",
            "me has deleted job 13",
            "job 14 is already in deletion",
            'denied: job "99999" does not exist',
        ],
    )
    assert stub.asked_of("POST /v1/jobs/stop")[0].json == {"ids": [12, 13, 14]}
    assert tow("qdel").returncode == 1


def test_qstat_says_nothing_of_nothing_and_knows_what_is_not_there(tow: Tow, stub: Stub) -> None:
    active(stub)
    assert (tow("qstat").returncode, tow("qstat").stdout) == (0, "")
    unknown = tow("qstat", "-j", "99999")
    assert (unknown.returncode, unknown.stderr) == (1, "Following jobs do not exist: \n99999\n")
    assert tow("qstat", "-zzz").returncode == 1


def test_qstat_as_xml_has_running_and_pending(tow: Tow, stub: Stub) -> None:
    waits = [{"when": "any", "job": 12, "batch": "", "state": "running"}]
    held = job(13, "waiting", machines=[], waits_for=waits)
    active(stub, job(12, "running", title="a<b"), held)
    from xml.etree import ElementTree

    tree = ElementTree.fromstring(tow("qstat", "-xml").stdout)
    jobs = [(one.get("state"), one.findtext("JB_job_number")) for one in tree.iter("job_list")]
    assert jobs == [("running", "12"), ("pending", "13")]
    assert [one.text for one in tree.iter("state")] == ["r", "hqw"]
    assert next(tree.iter("JB_name")).text == "a<b"


def test_shims_call_the_commands_of_tow(tow: Tow, stub: Stub, tmp_path: Path) -> None:
    import subprocess

    active(stub, job(12, "running"))
    assert tow("shims", str(tmp_path / "bin")).returncode == 0
    assert sorted(path.name for path in (tmp_path / "bin").iterdir()) == [
        "qacct",
        "qdel",
        "qhold",
        "qhost",
        "qrls",
        "qstat",
        "qsub",
    ]
    # An Engine that is started here calls the `qsub` of a queue, and not itself.
    assert path_without_shims(f"{tmp_path}/bin:/usr/bin:/nosuch") == "/usr/bin:/nosuch"
    environ = {"TOWLINE_HOME": str(tow.home), "PATH": "/usr/bin:/bin"}
    shown = subprocess.run(
        [tmp_path / "bin" / "qstat"], env=environ, capture_output=True, text=True, timeout=60
    )
    assert "\n     12 0." in shown.stdout
