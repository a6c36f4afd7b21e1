"""Where a job stands in the queue of its cluster, as people read it."""

from typing import Any

from towline.cli.sbatch_script import script
from towline.cli.terminal.queue_wording import (
    moment,
    options_text,
    prospects,
    queue_details,
    queue_name,
    requeued,
    waiting_line,
)

NOW = 1_800_000_000.0


def in_queue(**facts: Any) -> dict[str, Any]:
    return {"queue": {"kind": "slurm", "number": "4711_3", "partition": "main", **facts}}


def test_it_has_its_number_partition_account_and_limit() -> None:
    assert queue_name(in_queue()) == "Slurm 4711_3"
    assert queue_name({"queue": {"kind": "slurm", "number": ""}}) == ""
    assert queue_name({"queue": None}) == ""
    job = in_queue(account="def-x", time_limit="1:00:00")
    assert queue_details(job) == "4711_3 (partition main, account def-x, limit 1:00:00)"
    assert queue_details(in_queue(time_limit="UNLIMITED")) == "4711_3 (partition main)"
    job = in_queue(options=[["--mem=3 G"], ["--gres=gpu:1"]])
    assert options_text(job) == "'--mem=3 G' : --gres=gpu:1"


def test_its_place_and_its_start_are_told_where_they_are_known() -> None:
    queue = in_queue(reason="Priority", place=3, waiting=12, expected=NOW + 1501)["queue"]
    assert prospects(queue, NOW) == [
        "number 3 of 12 in main",
        f"expected to start at {moment(NOW + 1501, NOW)}, in 25 min",
    ]
    assert prospects({}, NOW) == []


def test_what_nobody_can_know_is_not_told() -> None:
    """For jobs without a limit Slurm expects a start in a year; what is over is no prospect."""
    for expected in (NOW + 364 * 86400, NOW - 5, 0):
        assert prospects({"reason": "Resources", "expected": expected}, NOW) == []


def test_a_time_that_somebody_asked_for_is_told_as_that_and_without_a_place() -> None:
    queue = {"reason": "BeginTime", "place": 3, "waiting": 12, "expected": NOW + 120}
    (told,) = prospects(queue, NOW)
    assert told.startswith("not before ")


def test_a_line_says_how_long_it_has_waited() -> None:
    queue = {"since": NOW - 180, "reason": "Resources", "place": 1, "waiting": 2}
    assert waiting_line(queue, NOW) == "waits for 3 min · number 1 of 2"


def test_why_it_is_in_the_queue_again() -> None:
    told = requeued({"requeued_at": NOW - 60, "requeued": "its node failed"}, NOW)
    assert told == f"taken back into the queue at {moment(NOW - 60, NOW)}: its node failed"
    assert requeued({"requeued_at": 0.0}, NOW) == ""


def test_a_day_other_than_today_is_named() -> None:
    assert len(moment(NOW, NOW)) == 5
    assert moment(NOW + 3 * 86400, NOW).startswith("20")


def job(**facts: Any) -> dict[str, Any]:
    options = [["--ntasks=1", "--mem=300M", "--constraint=a&b"]]
    found = {"id": 12, "title": "two\nlines", "cluster": "cedar", "env": ["KEY"], "setup": ""}
    place = {"folder": "~/.towline/jobs/k-0"}
    found |= {"command": ["python", "it's.py"], "queue": {"options": options}, "processes": [place]}
    return found | facts


def test_a_script_has_all_that_sbatch_needs_and_no_secret() -> None:
    text = script(job(setup="module load python", subfolder="sub dir"))
    assert text.splitlines() == [
        "#!/bin/bash -l",
        "# job 12 of Towline, for sbatch on cedar",
        "#SBATCH '--job-name=two lines'",
        "#SBATCH --ntasks=1",
        "#SBATCH --mem=300M",
        "#SBATCH '--constraint=a&b'",
        "",
        'cd "$HOME/.towline/jobs/k-0/src/sub dir" || exit   # or: tow checkout 12',
        'export KEEP_DIR="$HOME/.towline/jobs/k-0/keep"',
        "export KEY=...   # set with -e; values are not shown",
        "module load python",
        "",
        "exec python 'it'\"'\"'s.py'",
    ]


def test_the_script_of_several_processes_starts_them_by_srun() -> None:
    place = {"folder": "/scratch/it's/jobs/k-0"}
    text = script(job(processes=[place, place]))
    assert text.endswith("srun python 'it'\"'\"'s.py'")
    assert "cd '/scratch/it'\"'\"'s/jobs/k-0/src' || exit" in text
    queue = {"options": [["--ntasks=1"], ["--ntasks=2"]]}
    text = script(job(processes=[place] * 3, queue=queue, command=["true"]))
    assert text.endswith("srun --het-group=0 true : --het-group=1 true")
    assert "#SBATCH --ntasks=1\n#SBATCH hetjob\n#SBATCH --ntasks=2" in text
