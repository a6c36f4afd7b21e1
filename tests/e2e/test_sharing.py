"""Machines shared with others: other users of Towline, and programs that know nothing of it."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from e2e.jobs import configure, ended, show, submit, wait_for
from testbed.hosts import Hosts
from testbed.leftovers import stop_all
from testbed.memory import MemoryLimit
from testbed.tow import Tow
from testbed.waiting import wait_until

pytestmark = pytest.mark.real

GTX_1070 = {"name": "NVIDIA GeForce GTX 1070", "memory_total": 8192}
#: Fails if another job is on the same GPU of the same host, whoever's it is.
ALONE = """\
import os, sys, time
place = "/tmp/gpu-" + os.environ["CUDA_VISIBLE_DEVICES"]
os.mkdir(place)
open("/tmp/began-" + sys.argv[1], "w").close()
until = time.monotonic() + 60
while not os.path.exists("/tmp/go-on") and time.monotonic() < until:
    time.sleep(0.02)
os.rmdir(place)
"""
HOG = "import sys; hog = b'x' * (3 << 30); print('full', flush=True); sys.stdin.read()"


@pytest.fixture(params=["neighbour@h1", "h1"], ids=["another user", "another Engine"])
def neighbour(
    request: pytest.FixtureRequest, tow: Tow, hosts: Hosts, tmp_path: Path
) -> Iterator[Tow]:
    """A second `tow` with an Engine of its own; both have the cluster `lab`, which is h1."""
    home = Path(tempfile.mkdtemp(prefix="tow-", dir="/tmp"))
    folder = tmp_path / "neighbour"
    folder.mkdir()
    other = Tow(home, hosts.ssh_config, folder)
    configure(tow, "h1")
    configure(other, request.param)
    try:
        yield other
    finally:
        other.close()
        stop_all(home)
        shutil.rmtree(home)


def why(tow: Tow, job: int) -> str:
    return tow("why", str(job)).stdout


def began(hosts: Hosts) -> int:
    return len(list((hosts.root("h1") / "tmp").glob("began-*")))


def test_two_engines_never_give_one_gpu_away_twice_and_all_jobs_run(
    tow: Tow, neighbour: Tow, hosts: Hosts
) -> None:
    hosts.set_gpus("h1", [GTX_1070, GTX_1070])
    for user in (tow, neighbour):
        user("machines", "-c", "lab")

    def submit_one(number: int) -> tuple[Tow, int]:
        user = (tow, neighbour)[number % 2]
        command = ["--gpus", "1", "python3", "-c", ALONE, str(number)]
        return user, submit(user, "-c", "lab", *command)

    with ThreadPoolExecutor(4) as all_at_once:
        jobs = list(all_at_once.map(submit_one, range(4)))
    wait_until(lambda: began(hosts) == 2, on_timeout=lambda: [show(*job) for job in jobs])
    waiting = [(user, job) for user, job in jobs if show(user, job)["state"] == "queued"]
    wait_until(lambda: len([1 for user, job in jobs if show(user, job)["state"] == "running"]) == 2)
    assert began(hosts) == 2
    for user, job in waiting:
        assert "2 GPUs" in why(user, job)
    (hosts.root("h1") / "tmp" / "go-on").touch()
    for user, job in jobs:
        found = ended(user, job)
        assert (found["state"], found["exit_code"]) == ("done", 0), found
        # A refused start is no failure, and is not tried again before there is room.
        assert found["attempt"] <= 5
    assert began(hosts) == 4


def test_what_another_was_granted_counts_before_it_is_used_and_says_whose_it_is(
    tow: Tow, neighbour: Tow, hosts: Hosts
) -> None:
    hosts.set_gpus("h1", [GTX_1070])
    first = submit(neighbour, "-c", "lab", "-r", "[gpumem=6G,cpus=4,mem=2G]", "sleep", "300")
    wait_for(neighbour, first, "running")
    second = submit(tow, "-c", "lab", "-r", "[gpumem=3G]", "true")
    owner = "neighbour" if "neighbour@" in show(neighbour, first)["machines"][0] else "worker"
    wait_until(
        lambda: f"by jobs of {owner}" in why(tow, second), on_timeout=lambda: why(tow, second)
    )
    assert show(tow, second)["state"] == "queued"
    assert tow("run", "-c", "lab", "-r", "[gpumem=1G]", "true").returncode == 0
    (machine,) = tow.json("machines", "-c", "lab")["machines"]
    assert machine["gpus"][0]["free_mb"] == 8192 - 6144
    assert machine["gpus"][0]["used_by"] == f"jobs of {owner}"
    assert machine["cpus_free"] <= 28
    neighbour("stop", str(first))
    assert ended(tow, second)["state"] == "done"


def test_who_sits_on_the_name_of_anothers_claims_hides_nothing_and_is_named(
    tow: Tow, neighbour: Tow, hosts: Hosts
) -> None:
    hosts.set_gpus("h1", [GTX_1070])
    tmp = hosts.root("h1") / "tmp"
    submit(tow, "-c", "lab", "sh", "-c", "id -u > /tmp/worker")
    wait_until(lambda: (tmp / "worker").exists() and (tmp / "worker").read_text())
    uid = (tmp / "worker").read_text().strip()
    shutil.rmtree(tmp / f".towline-claims-{uid}", ignore_errors=True)
    squat = tmp / f".towline-claims-{uid}"
    squat.mkdir()
    shutil.chown(squat, int(uid) + 1)
    first = submit(tow, "-c", "lab", "--gpus", "1", "sleep", "300")
    wait_for(tow, first, "running")
    second = submit(neighbour, "-c", "lab", "--gpus", "1", "true")
    wait_until(lambda: "by jobs of worker" in why(neighbour, second))
    said = tow("doctor", "-c", "lab")
    assert said.returncode == 0
    assert f"claims: /tmp/{squat.name} belongs to " in said.stdout
    tow("stop", str(first))
    assert ended(neighbour, second)["state"] == "done"
    squat.rmdir()


def test_who_asked_for_the_whole_machine_has_it_among_all_users(
    tow: Tow, neighbour: Tow, hosts: Hosts
) -> None:
    first = submit(neighbour, "-c", "lab", "--exclusive", "sleep", "300")
    wait_for(neighbour, first, "running")
    tow("machines", "-c", "lab")
    wait_until(
        lambda: "has the whole machine" in tow("run", "--dry-run", "-c", "lab", "true").stdout
    )
    second = submit(tow, "-c", "lab", "true")
    assert "has the whole machine" in why(tow, second)
    neighbour("stop", str(first))
    assert ended(tow, second)["state"] == "done"


def test_a_foreign_program_that_appears_keeps_its_gpu_and_gives_it_back(
    tow: Tow, hosts: Hosts
) -> None:
    hosts.set_gpus("h1", [GTX_1070])
    configure(tow, "h1")
    assert tow("run", "-c", "lab", "--gpus", "1", "true").returncode == 0
    busy = {**GTX_1070, "memory_used": 5000, "utilization": 80}
    hosts.set_gpus("h1", [busy], [{"gpu_uuid": "GPU-0", "pid": 4242, "used_memory": 5000}])
    wait_until(lambda: gpu_users(tow) == "other programs", timeout=10)
    job = submit(tow, "-c", "lab", "--gpus", "1", "true")
    assert "1 is used by other programs (4.9 GB)" in why(tow, job)
    assert show(tow, job)["state"] == "queued"
    # What the program leaves is still given to those who need no more.
    small = tow("run", "-c", "lab", "-r", "[gpumem=2G,gpuutil=0.3]", "true")
    assert small.returncode == 0, small.stderr
    assert show(tow, job)["state"] == "queued"
    hosts.set_gpus("h1", [GTX_1070])
    assert ended(tow, job)["state"] == "done"


def test_a_desktop_on_a_gpu_is_not_a_program_that_uses_it(tow: Tow, hosts: Hosts) -> None:
    hosts.set_gpus("h1", [{**GTX_1070, "memory_used": 10}])
    configure(tow, "h1")
    assert tow("run", "-c", "lab", "--gpus", "1", "true").returncode == 0
    assert (gpu_of(tow)["free_mb"], gpu_of(tow)["used_by"]) == (8182, "")


def gpu_users(tow: Tow) -> str:
    return str(gpu_of(tow)["used_by"])


def gpu_of(tow: Tow) -> dict[str, Any]:
    (machine,) = tow.json("machines", "-c", "lab")["machines"]
    found: dict[str, Any] = machine["gpus"][0]
    return found


def test_memory_that_a_foreign_program_takes_is_not_given_away(tow: Tow, hosts: Hosts) -> None:
    configure(tow, "h1")
    assert tow("run", "-c", "lab", "true").returncode == 0

    def free_mb() -> int:
        (machine,) = tow.json("machines", "-c", "lab")["machines"]
        return int(machine["mem_free_mb"])

    before = free_mb()
    command = ["ssh", "-F", str(hosts.ssh_config), "h1", f'python3 -c "{HOG}"']
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as hog:
        assert hog.stdout is not None
        assert hog.stdout.readline() == b"full\n"
        wait_until(lambda: free_mb() < before - 1500, timeout=15, on_timeout=free_mb)
        with_hog = free_mb()
        hog.communicate(timeout=10)
    wait_until(lambda: free_mb() > with_hog + 1500, timeout=15, on_timeout=free_mb)


def test_a_job_killed_for_want_of_memory_says_so_and_one_killed_by_a_person_does_not(
    tow: Tow, hosts: Hosts
) -> None:
    configure(tow, "h1")
    with MemoryLimit(250) as limit:
        limit.add(hosts.pid("h1"))
        hog = tow("run", "-c", "lab", "python3", "-c", "hog = b'x' * (1 << 30)")
        assert hog.returncode == 137, hog.stderr
        assert "killed because the machine ran out of memory" in hog.stderr
        assert "--mem" in hog.stderr
        found = show(tow, 1)
        assert found["state"] == "failed"
        assert found["reason"].startswith("killed because the machine ran out of memory, when it")
        assert "ran out of memory" in tow("show", "1").stdout
        assert tow("run", "-c", "lab", "sh", "-c", "kill -KILL $$").returncode == 137
        assert show(tow, 2)["reason"] == "killed by signal 9 (SIGKILL)"
