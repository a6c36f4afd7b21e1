"""Nodes of a real Slurm that are drained or down: jobs for them wait, and none is refused."""

import pytest

from e2e.jobs import complaint, ended, show, submit
from e2e.slurm_jobs import configure
from testbed.slurm import Slurm
from testbed.tow import Tow
from testbed.waiting import wait_until

pytestmark = pytest.mark.real


def _set(slurm: Slurm, nodes: str, state: str) -> None:
    slurm.control("scontrol", "update", f"nodename={nodes}", f"state={state}", "reason=maintenance")


def _take_down(slurm: Slurm, nodes: str) -> None:
    """A node that is only down is up again when it next registers, which a busy one does soon."""
    _set(slurm, nodes, "drain")
    _set(slurm, nodes, "down")


def test_a_job_for_nodes_that_are_drained_waits_for_them_and_runs(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    _set(slurm, "h[2-4]", "drain")
    some = [
        submit(tow, "-c", "cedar", "true"),
        submit(tow, "-c", "cedar", "--gpus", "2:gtx1060", "true"),
        submit(tow, "-c", "cedar", "-o", "nodelist=h4", "true"),
    ]
    plan = tow.json("run", "--dry-run", "-c", "cedar", "true")
    assert "no node of that kind is up now" in plan["why"]
    for job in some:
        wait_until(lambda n=job: "no node of that kind is up now" in show(tow, n)["reason"])
    slurm.resume_nodes()
    assert [ended(tow, job)["state"] for job in some] == ["done", "done", "done"]


def test_a_job_for_the_one_node_that_is_down_waits(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    _take_down(slurm, "h4")
    job = submit(tow, "-c", "cedar", "--gpus", "1:gtx1060", "true")
    wait_until(lambda: "no node of that kind is up now" in show(tow, job)["reason"])
    assert tow("run", "-c", "cedar", "echo", "elsewhere").stdout == "elsewhere\n"


def test_what_drained_nodes_could_never_do_is_refused_all_the_same(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    _set(slurm, "h[2-4]", "drain")
    for options in (["--cpus", "99"], ["--gpus", "1:a100"], ["--mem", "9G"]):
        said = complaint(tow("run", "-c", "cedar", *options, "true"), 2)
        assert "its nodes have at most 4 CPUs, 4000 MB, GPUs 2:gtx1060, 2:gtx1070" in said


def test_a_refusal_says_what_there_is_instead(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    said = complaint(tow("run", "-c", "cedar", "-o", "partition=nope", "true"), 2)
    assert "its partitions are main, gpu, short" in said
    said = complaint(tow("run", "-c", "cedar", "-o", "constraint=ib", "true"), 2)
    assert "its nodes have no features" in said
    said = complaint(tow("run", "-c", "cedar", "-o", "nodelist=h9", "true"), 2)
    assert "its nodes are h2, h3, h4" in said
    said = complaint(tow("run", "-c", "cedar", "-o", "licenses=matlab", "true"), 2)
    assert "at most" not in said


def test_the_doctor_names_nodes_that_take_no_jobs(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    _set(slurm, "h2", "drain")
    some = tow("doctor", "-c", "cedar")
    assert some.returncode == 0, some.stdout
    assert "1 of 3 take no jobs now: h2 (drain: maintenance)" in some.stdout
    _take_down(slurm, "h[3-4]")
    none = tow("doctor", "-c", "cedar")
    assert none.returncode == 1
    assert "3 of 3 take no jobs now" in none.stdout
