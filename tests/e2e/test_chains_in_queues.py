"""Chains within one queue: they go on while no Engine runs, on a real Slurm and Grid Engine."""

import json
from typing import Any

import pytest

from e2e import grid_jobs, slurm_jobs
from e2e.engines import kill_engine
from e2e.jobs import ended, show, submit
from testbed.daemons import QueueHosts
from testbed.gridengine import GridEngine
from testbed.slurm import Slurm
from testbed.tow import Tow
from testbed.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

SLOW_S = 120
#: Says that it ran, and when; waits for a file where one is named.
STEP = (
    'while [ -n "$3" ] && ! [ -e "$HOME/$3" ]; do sleep 0.1; done; '
    'echo "$1" >> "$HOME/ran"; exit "$2"'
)


def step(tow: Tow, name: str, cluster: str, *options: str, code: int = 0, until: str = "") -> int:
    words = ("-t", name, "-c", cluster, *options, "--", "sh", "-c", STEP, "sh", name)
    return submit(tow, *words, str(code), until)


def in_queue(tow: Tow, *jobs: int) -> None:
    """Wait until the queue has all of them."""
    for job in jobs:
        wait_until(lambda job=job: number_of(show(tow, job)), timeout=SLOW_S)  # type: ignore[misc]


def number_of(shown: dict[str, Any]) -> str:
    return str((shown.get("queue") or {}).get("number") or "")


def ran(queue: QueueHosts) -> list[str]:
    return queue.worker("sh", "-c", "cat ran 2>/dev/null || true").split()


def recorded(queue: QueueHosts, job: int) -> dict[str, Any]:
    """How the only attempt of a job ended, by its record over there; {} while there is none."""
    text = f"cat .towline/records/*-{job}-1-*-0/exit 2>/dev/null || echo '{{}}'"
    found: dict[str, Any] = json.loads(queue.worker("sh", "-c", text))
    return found


def test_chains_in_slurm_go_on_while_no_engine_runs(tow: Tow, slurm: Slurm) -> None:
    slurm_jobs.configure(tow)
    goes_on_without_an_engine(tow, "cedar", slurm)


def test_chains_in_a_grid_engine_do_so_too(tow: Tow, gridengine: GridEngine) -> None:
    grid_jobs.configure(tow)
    goes_on_without_an_engine(tow, "msc", gridengine)


def test_what_cannot_come_true_in_slurm_is_skipped_over_there(tow: Tow, slurm: Slurm) -> None:
    slurm_jobs.configure(tow)
    is_skipped_over_there(tow, "cedar", slurm, "-r", "2:[]")


def test_what_cannot_come_true_in_a_grid_engine_is_too(tow: Tow, gridengine: GridEngine) -> None:
    grid_jobs.configure(tow)
    is_skipped_over_there(tow, "msc", gridengine)


def test_batches_are_links_of_chains_in_slurm(tow: Tow, slurm: Slurm) -> None:
    slurm_jobs.configure(tow)
    batches_are_links(tow, "cedar", slurm)


def test_batches_are_links_of_chains_in_a_grid_engine(tow: Tow, gridengine: GridEngine) -> None:
    grid_jobs.configure(tow)
    batches_are_links(tow, "msc", gridengine)


def goes_on_without_an_engine(tow: Tow, cluster: str, queue: QueueHosts) -> None:
    first = step(tow, "first", cluster, until="go")
    second = step(tow, "second", cluster, "--after", "first")
    third = step(tow, "third", cluster, "--after-any", f"{first},second")
    in_queue(tow, first, second, third)
    shown = show(tow, third)
    assert (shown["state"], shown["waits_for"][0]["job"]) == ("waiting", first)
    why = tow("why", str(second)).stdout
    assert f"it waits in {cluster}'s own queue for job {first} (" in why
    assert number_of(show(tow, second)) in why
    kill_engine(tow.home)
    queue.worker("touch", "go")
    wait_until(lambda: recorded(queue, third), timeout=SLOW_S)
    assert ran(queue) == ["first", "second", "third"]
    assert [ended(tow, job)["state"] for job in (first, second, third)] == ["done"] * 3
    assert ran(queue) == ["first", "second", "third"]


def is_skipped_over_there(tow: Tow, cluster: str, queue: QueueHosts, *options: str) -> None:
    first = step(tow, "first", cluster, until="go", code=3)
    second = step(tow, "second", cluster, "--after", "first", *options)
    third = step(tow, "third", cluster, "--after", "second")
    tell_me = step(tow, "tell-me", cluster, "--after-failed", "second")
    jobs = first, second, third, tell_me
    in_queue(tow, *jobs)
    kill_engine(tow.home)
    queue.worker("touch", "go")
    wait_until(lambda: recorded(queue, third) and recorded(queue, tell_me), timeout=SLOW_S)
    because = {"kind": "after", "job": first, "batch": "", "state": "failed"}
    assert [recorded(queue, job)["cause"] for job in (second, third)] == ["skipped"] * 2
    assert recorded(queue, second)["because"] == because
    told = [ended(tow, job) for job in jobs]
    assert [one["state"] for one in told] == ["failed", "skipped", "skipped", "done"]
    assert told[1]["because"] == {"kind": "after", "job": first, "state": "failed"}
    assert told[2]["reason"] == f"job {second} was skipped"
    assert ran(queue) == ["first", "tell-me"]
    # What was skipped stays so until it is retried as well; here an Engine sees how it ends.
    again = tow("retry", str(first))
    assert f"tow retry {second} {third}" in again.stderr
    assert ended(tow, first, SLOW_S)["state"] == "failed"
    assert tow("retry", f"{first}-{third}").returncode == 0
    states = [ended(tow, job, SLOW_S)["state"] for job in jobs]
    assert states == ["failed", "skipped", "skipped", "done"]
    assert ran(queue) == ["first", "tell-me", "first", "first"]


def batches_are_links(tow: Tow, cluster: str, queue: QueueHosts) -> None:
    first = step(tow, "first", cluster, until="go")
    sweep = batch(tow, "sweep", cluster, ["a", "b", "c"], "--after", "first")
    last = step(tow, "evaluate", cluster, "--after", "sweep")
    other = batch(tow, "other", cluster, ["d", "e"], "--after", "sweep.2,evaluate")
    jobs = [first, *sweep, last, *other]
    in_queue(tow, *jobs)
    for name in ("sweep", "sweep.2"):
        assert f"waits in {cluster}'s own queue for job {first}" in tow("why", name).stdout
    kill_engine(tow.home)
    queue.worker("touch", "go")
    wait_until(lambda: all(recorded(queue, job) for job in jobs), timeout=SLOW_S)
    order = ran(queue)
    assert (order[0], set(order[1:4]), order[4]) == ("first", {"a", "b", "c"}, "evaluate")
    assert set(order[5:]) == {"d", "e"} and len(order) == len(jobs)
    assert [ended(tow, job)["state"] for job in jobs] == ["done"] * len(jobs)


def batch(tow: Tow, name: str, cluster: str, lines: list[str], *options: str) -> list[int]:
    """Submit one whose lines write down that they ran; the numbers of its jobs."""
    text = "".join(f"sh -c 'echo {line} >> $HOME/ran'\n" for line in lines)
    file = tow.folder / f"{name}.txt"
    file.write_text(text)
    found = tow.json("batch", "-d", "--name", name, "-c", cluster, *options, str(file))
    return list(range(found["first"], found["first"] + found["count"]))


def test_a_dependency_that_slurm_can_never_satisfy_ends_as_skipped(tow: Tow, slurm: Slurm) -> None:
    slurm_jobs.configure(tow)
    first = step(tow, "first", "cedar", until="go", code=3)
    in_queue(tow, first)
    number = number_of(show(tow, first))
    own = step(tow, "own", "cedar", "-o", f"dependency=afterok:{number}")
    both = step(tow, "both", "cedar", "--after-any", "first", "-o", f"dependency=afterok:{number}")
    in_queue(tow, own, both)
    slurm.worker("touch", "go")
    told = [ended(tow, job, SLOW_S) for job in (own, both)]
    assert [one["state"] for one in told] == ["skipped", "skipped"]
    assert "DependencyNeverSatisfied" in told[0]["reason"]
    assert ran(slurm) == ["first"]


def test_qsub_hold_jid_holds_in_the_grid_engine_itself(tow: Tow, gridengine: GridEngine) -> None:
    grid_jobs.configure(tow)
    config = tow.home / "config.toml"
    config.write_text(f'default_cluster = "msc"\n{config.read_text()}')
    (tow.folder / "step.sh").write_text(f"#!/bin/sh\n{STEP}\n")
    assert tow("qsub", "-terse", "-N", "one", "step.sh", "one", "3", "go").stdout == "1\n"
    held = ("-terse", "-N", "two", "-hold_jid", "one", "step.sh", "two", "0")
    assert tow("qsub", *held).stdout == "2\n"
    in_queue(tow, 1, 2)
    assert " hqw " in tow("qstat").stdout
    wait_until(lambda: " hqw " in grid_jobs.shell(gridengine, "qstat"), timeout=SLOW_S)
    kill_engine(tow.home)
    gridengine.worker("touch", "go")
    wait_until(lambda: recorded(gridengine, 2), timeout=SLOW_S)
    assert ran(gridengine) == ["one", "two"]
    assert [ended(tow, job)["state"] for job in (1, 2)] == ["failed", "done"]


def test_what_follows_a_job_that_is_tried_again_runs_after_that(tow: Tow, slurm: Slurm) -> None:
    slurm_jobs.configure(tow)
    fails_once = (
        'until [ -e "$HOME/go" ]; do sleep 0.1; done; '
        'echo first >> "$HOME/ran"; mkdir "$HOME/tried" && exit 3; exit 0'
    )
    options = ("-t", "first", "-c", "cedar", "--retries", "1")
    first = submit(tow, *options, "--", "sh", "-c", fails_once)
    second = step(tow, "second", "cedar", "--after", "first")
    in_queue(tow, first, second)
    entry = number_of(show(tow, second))
    slurm.worker("touch", "go")
    told = ended(tow, second, SLOW_S)
    assert (told["state"], ended(tow, first)["attempt"], told["attempt"]) == ("done", 2, 1)
    assert ran(slurm) == ["first", "first", "second"]
    assert number_of(told) != entry, "it was handed over behind the second attempt"


def test_each_of_a_chain_runs_once_whenever_the_engine_is_killed(tow: Tow, slurm: Slurm) -> None:
    slurm_jobs.configure(tow)
    jobs: list[int] = []
    for name in ("a", "b", "c", "d", "e", "f"):
        after = ("--after", str(jobs[-1])) if jobs else ()
        jobs.append(step(tow, name, "cedar", *after))
        kill_engine(tow.home)
    for job in jobs:
        assert ended(tow, job, SLOW_S)["state"] == "done"
        kill_engine(tow.home)
    assert ran(slurm) == ["a", "b", "c", "d", "e", "f"]


def test_what_follows_a_job_that_died_without_a_word_waits_for_the_engine(
    tow: Tow, slurm: Slurm
) -> None:
    slurm_jobs.configure(tow)
    # What runs it is its parent, which can leave no record then.
    dies = 'until [ -e "$HOME/go" ]; do sleep 0.1; done; kill -KILL $PPID'
    first = submit(tow, "-t", "first", "-c", "cedar", "--", "sh", "-c", dies)
    second = step(tow, "second", "cedar", "--after", "first")
    third = step(tow, "third", "cedar", "--after-any", "first")
    in_queue(tow, first, second, third)
    kill_engine(tow.home)
    slurm.worker("touch", "go")
    returned = "ls .towline/handed/*/returned 2>/dev/null | wc -l"
    wait_until(lambda: slurm.worker("sh", "-c", returned).strip() == "2", timeout=SLOW_S)
    assert ran(slurm) == []
    assert ended(tow, first, SLOW_S)["state"] in ("lost", "failed")
    assert ended(tow, second, SLOW_S)["because"]["job"] == first
    assert ended(tow, third, SLOW_S)["state"] == "done"
    assert (show(tow, second)["state"], ran(slurm)) == ("skipped", ["third"])
