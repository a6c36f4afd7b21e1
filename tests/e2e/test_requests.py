"""Requests: several processes, all or none, GPUs, and what no machine can ever give."""

import json
from typing import Any

import pytest

from e2e.jobs import complaint, configure, ended, show, submit, wait_for
from testbed.hosts import Hosts
from testbed.tow import Tow
from testbed.waiting import wait_until

pytestmark = pytest.mark.real

GTX_1060 = {"name": "NVIDIA GeForce GTX 1060 6GB", "memory_total": 6144}
GTX_1070 = {"name": "NVIDIA GeForce GTX 1070", "memory_total": 8192}
VARIABLES = "import json, os; print(json.dumps({**os.environ, 'CWD': os.getcwd()}))"
MEET = """\
import os, socket, time
rank, host = os.environ["RANK"], os.environ["HOST_GROUP0_PROCESS0"]
port = int(os.environ["MASTER_PORT"])
if rank == "0":
    with socket.create_server((host, port)) as server:
        peer, _ = server.accept()
        print("heard", peer.makefile().readline().strip(), flush=True)
else:
    while True:
        try:
            peer = socket.create_connection((host, port), timeout=5)
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    peer.sendall(f"from {socket.gethostname()}".encode() + b"\\n")
"""


def by_process(output: str) -> dict[str, list[str]]:
    """The lines of each process, by the prefix in front of them."""
    found: dict[str, list[str]] = {}
    for line in output.splitlines():
        label, _, text = line.removeprefix("[").partition("] ")
        found.setdefault(label, []).append(text)
    return found


def seen_gpus(tow: Tow, job: int) -> list[Any]:
    """The GPUs of a job's processes."""
    return [process["gpus"] for process in show(tow, job)["processes"]]


def why(tow: Tow, job: int) -> str:
    return tow("why", str(job)).stdout


def test_every_process_knows_who_and_where_all_are(tow: Tow, hosts: Hosts) -> None:
    configure(tow, "h1", "h2", "in1")
    request = "2:[exclusive],1:[exclusive,cpus=2]"
    done = tow("run", "-c", "lab", "-r", request, "python3", "-c", VARIABLES)
    assert done.returncode == 0, done.stderr
    lines = by_process(done.stdout)
    assert sorted(lines) == ["0.0", "0.1", "1.0"]
    variables = {label: json.loads(text[0]) for label, text in lines.items()}
    machines = show(tow, 1)["machines"]
    assert sorted(machines) == ["h1", "h2", "in1"]
    for rank, (label, own) in enumerate(sorted(variables.items())):
        group, process = label.split(".")
        assert (own["GROUP_INDEX"], own["PROCESS_INDEX"]) == (group, process)
        assert own["NUM_GROUPS"] == "2"
        assert (own["NUM_PROCESSES_GROUP0"], own["NUM_PROCESSES_GROUP1"]) == ("2", "1")
        assert (own["RANK"], own["WORLD_SIZE"], own["LOCAL_RANK"]) == (str(rank), "3", "0")
        addresses = [
            own[name]
            for name in ("HOST_GROUP0_PROCESS0", "HOST_GROUP0_PROCESS1", "HOST_GROUP1_PROCESS0")
        ]
        assert addresses == [hosts.address(machine) for machine in machines]
        assert own["MASTER_ADDR"] == addresses[0]
        assert own["SRC_DIR"].startswith(own["JOB_DIR"] + "/")
        assert own["CWD"] == own["SRC_DIR"]
        assert "CUDA_VISIBLE_DEVICES" not in own
    assert len({own["MASTER_PORT"] for own in variables.values()}) == 1


def test_processes_on_two_machines_reach_each_other(tow: Tow, hosts: Hosts) -> None:
    configure(tow, "h1", "h2")
    (tow.folder / "meet.py").write_text(MEET)
    done = tow("run", "-c", "lab", "-r", "2:[exclusive]", "python3", "meet.py")
    assert done.returncode == 0, done.stderr
    machines = show(tow, 1)["machines"]
    assert done.stdout == f"[0.0] heard from {machines[1]}\n"


def test_when_one_process_fails_the_others_are_stopped_and_it_is_named(
    tow: Tow, hosts: Hosts
) -> None:
    configure(tow, "h1", "h2")
    script = "[ $RANK != 1 ] || exit 3; sleep 302"
    done = tow("run", "-c", "lab", "-r", "2:[exclusive]", "sh", "-c", script)
    assert done.returncode == 3, done.stderr
    found = show(tow, 1)
    assert found["state"] == "failed"
    assert f"1 on {found['machines'][1]}: exit code 3" in found["reason"]
    assert found["reason"] in done.stderr
    for name in ("h1", "h2"):
        assert "sleep 302" not in hosts.run(name, ["ps", "-eo", "args"]).stdout


def test_job_of_several_processes_waits_whole(tow: Tow, hosts: Hosts) -> None:
    configure(tow, "h1", "h2")
    blocker = submit(tow, "-c", "lab", "--exclusive", "sleep", "60")
    wait_for(tow, blocker, "running")
    script = "touch ~/began-$TOWLINE_JOB"
    gang = submit(tow, "-c", "lab", "-r", "2:[exclusive]", "sh", "-c", script)
    assert f"job {blocker} has the whole machine" in why(tow, gang)
    # The machine that is free is kept for the gang, and yet runs none of it.
    assert show(tow, gang)["state"] == "queued"
    began = [hosts.home(name) / f"began-{gang}" for name in ("h1", "h2")]
    assert not any(file.exists() for file in began)
    tow("stop", str(blocker))
    assert ended(tow, gang)["state"] == "done"
    assert all(file.exists() for file in began)


def test_named_gpus_are_found_by_model_and_alias(tow: Tow, hosts: Hosts) -> None:
    hosts.set_gpus("h1", [GTX_1060, GTX_1070])
    hosts.set_gpus("h2", [GTX_1070, GTX_1070, GTX_1060])
    configure(tow, "h1", "h2", more='[aliases]\nsmall = "GTX 1060"\n')
    gpus = "echo $(hostname):$CUDA_VISIBLE_DEVICES"
    for request, expected in (
        ("[2:gtx1070]", "h2:0,1"),
        ("[small,2:GTX 1070]", "h2:"),
        ("[gtx1060,geforce]", ""),
    ):
        done = tow("run", "-c", "lab", "-r", request, "sh", "-c", gpus)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(expected)
    last = seen_gpus(tow, 2)
    assert sorted(last[0]) == [0, 1, 2]
    table = tow("machines", "-c", "lab").stdout
    assert "1060" in table
    assert "1070" in table


def test_freed_gpu_goes_to_the_job_that_waits_for_one(tow: Tow, hosts: Hosts) -> None:
    hosts.set_gpus("h1", [GTX_1070, GTX_1070])
    configure(tow, "h1")
    jobs = [submit(tow, "-c", "lab", "--gpus", "1", "sleep", "60") for _ in range(3)]
    for job in jobs[:2]:
        wait_for(tow, job, "running")
    first, second = (seen_gpus(tow, job)[0] for job in jobs[:2])
    assert sorted(first + second) == [0, 1]
    assert show(tow, jobs[2])["state"] == "queued"
    reason = why(tow, jobs[2])
    assert f"job {jobs[0]}" in reason
    assert f"job {jobs[1]}" in reason
    tow("stop", str(jobs[0]))
    wait_for(tow, jobs[2], "running")
    assert seen_gpus(tow, jobs[2])[0] == first


def test_gpu_that_others_use_counts_as_used(tow: Tow, hosts: Hosts) -> None:
    busy = {**GTX_1070, "memory_used": 4000, "utilization": 90}
    hosts.set_gpus("h1", [busy], [{"gpu_uuid": "GPU-0", "pid": 4242, "used_memory": 4000}])
    configure(tow, "h1")
    job = submit(tow, "-c", "lab", "--gpus", "1", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    assert "other programs" in why(tow, job)
    assert show(tow, job)["state"] == "queued"
    hosts.set_gpus("h1", [GTX_1070])
    assert tow("attach", str(job)).stdout == "0\n"


def test_gpu_is_shared_while_its_memory_suffices(tow: Tow, hosts: Hosts) -> None:
    hosts.set_gpus("h1", [GTX_1070])
    configure(tow, "h1")
    request = ["-c", "lab", "-r", "[gpumem=3G]"]
    jobs = [submit(tow, *request, "sleep", "60") for _ in range(3)]
    for job in jobs[:2]:
        wait_for(tow, job, "running")
    assert seen_gpus(tow, jobs[0]) == seen_gpus(tow, jobs[1]) == [[0]]
    assert "3.0 GB" in why(tow, jobs[2])
    assert show(tow, jobs[2])["state"] == "queued"


def test_request_that_no_machine_can_satisfy_is_refused_at_once(tow: Tow, hosts: Hosts) -> None:
    hosts.set_gpus("h2", [GTX_1070, GTX_1070])
    configure(tow, "h1", "h2")
    said = complaint(tow("run", "-c", "lab", "-r", "[4:gtx1070]", "true"), 2)
    assert "closest is h2: it has 2 gtx1070, 4 are asked for" in said
    assert "rtx4090" in complaint(tow("run", "-c", "lab", "-d", "--gpus", "1:rtx4090", "true"), 2)
    assert "CPUs" in complaint(tow("run", "-c", "lab", "--cpus", "500", "true"), 2)
    assert "memory" in complaint(tow("run", "-c", "lab", "--mem", "900T", "true"), 2)
    assert "never" in complaint(tow("run", "-c", "lab", "-r", "3:[exclusive]", "true"), 2)
    assert tow.json("status")["jobs"] == []


def test_dry_run_says_where_it_would_go_or_why_not_at_once(tow: Tow, hosts: Hosts) -> None:
    hosts.set_gpus("h2", [GTX_1070])
    configure(tow, "h1", "h2")
    ask = ["-c", "lab", "--gpus", "1"]
    plan = tow.json("run", "--dry-run", *ask, "true")
    assert plan["placement"] == [{"machine": "h2", "gpus": [0]}]
    blocker = submit(tow, *ask, "sleep", "60")
    wait_for(tow, blocker, "running")
    shown = tow("run", "--dry-run", *ask, "true").stdout
    assert "not at once" in shown
    assert f"job {blocker}" in shown


def test_machines_table_shows_what_is_free_and_what_uses_it(tow: Tow, hosts: Hosts) -> None:
    hosts.set_gpus("h1", [GTX_1070])
    configure(tow, "h1", "h2")
    job = submit(tow, "-c", "lab", "--gpus", "1", "--cpus", "8", "sleep", "60")
    wait_for(tow, job, "running")
    machines = {m["name"]: m for m in tow.json("machines", "-c", "lab")["machines"]}
    assert machines["h1"]["jobs"] == [job]
    assert machines["h1"]["gpus"][0]["used_by"] == f"job {job}"
    assert machines["h1"]["cpus_free"] <= 24
    assert machines["h2"]["gpus"] == []
    hosts.kill("h2")
    state = lambda: tow.json("machines", "-c", "lab")["machines"][1]["state"]  # noqa: E731
    wait_until(lambda: state() == "offline", every=0.2)
