"""Jobs of several processes on a real Slurm: who is where, and that they end together."""

import json

import pytest

from e2e.jobs import ended, show, submit, wait_for
from e2e.slurm_jobs import configure
from testbed.slurm import Slurm
from testbed.tow import Tow

pytestmark = pytest.mark.real

#: Each tells what it knows, then all meet at a port of the first.
MEET = """\
import json, os, socket, time
env = {name: os.environ.get(name) for name in NAMES}
hosts = {name: value for name, value in os.environ.items() if name.startswith("HOST_")}
print(json.dumps({**env, "hosts": hosts, "here": socket.gethostname()}), flush=True)
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    server = socket.create_server(("", place[1]))
    ranks = sorted(int(server.accept()[0].recv(10)) for _ in range(world - 1))
    assert ranks == list(range(1, world)), ranks
    print("all met")
else:
    for _ in range(300):
        try:
            socket.create_connection(place).send(str(rank).encode())
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
"""
NAMES = ("RANK", "LOCAL_RANK", "GROUP_INDEX", "PROCESS_INDEX", "CUDA_VISIBLE_DEVICES", "NUM_GROUPS")


def meet(tow: Tow, *words: str, cluster: str = "cedar") -> list[dict[str, str]]:
    """Run a job whose processes meet; what each knew, by rank."""
    (tow.folder / "meet.py").write_text(f"NAMES = {NAMES!r}\n{MEET}")
    done = tow("run", "-c", cluster, *words, "python3", "meet.py", timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.partition("] ")[2] for line in done.stdout.splitlines()]
    assert "all met" in lines
    told = [json.loads(line) for line in lines if line.startswith("{")]
    return sorted(told, key=lambda known: int(known["RANK"]))


def test_processes_with_gpus_are_on_nodes_of_their_own(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    told = meet(tow, "-r", "2:[2:gtx1070,cpus=4]")
    assert [known["here"] for known in told] == ["h2", "h3"]
    hosts = {"HOST_GROUP0_PROCESS0": "h2", "HOST_GROUP0_PROCESS1": "h3"}
    assert all(known["hosts"] == hosts for known in told)
    assert [known["CUDA_VISIBLE_DEVICES"] for known in told] == ["0,1", "0,1"]
    assert [known["LOCAL_RANK"] for known in told] == ["0", "0"]
    assert show(tow, 1)["machines"] == ["h2", "h3"]


def test_groups_of_different_shape_start_together(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    told = meet(tow, "-r", "1:[],2:[gtx1070]")
    assert [(k["GROUP_INDEX"], k["PROCESS_INDEX"]) for k in told] == [
        ("0", "0"),
        ("1", "0"),
        ("1", "1"),
    ]
    assert [known["here"] for known in told[1:]] == ["h2", "h3"]
    assert told[0]["CUDA_VISIBLE_DEVICES"] is None
    assert [known["CUDA_VISIBLE_DEVICES"] for known in told[1:]] == ["0", "0"]
    assert all(known["hosts"]["HOST_GROUP0_PROCESS0"] == told[0]["here"] for known in told)
    assert told[0]["NUM_GROUPS"] == "2"


def test_processes_that_share_a_node_share_its_gpus_out(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    told = meet(tow, "-o", "nodes=2", "-r", "4:[gtx1070]")
    assert [known["here"] for known in told] == ["h2", "h2", "h3", "h3"]
    assert [known["CUDA_VISIBLE_DEVICES"] for known in told] == ["0", "1", "0", "1"]
    assert [known["LOCAL_RANK"] for known in told] == ["0", "1", "0", "1"]


def test_when_one_process_fails_the_others_end_with_it(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    script = "[ $RANK = 1 ] && { echo failing; exit 3; }; exec sleep 300"
    done = tow("run", "-c", "cedar", "-r", "3:[cpus=2]", "sh", "-c", script)
    assert done.returncode == 3
    shown = show(tow, 1)
    assert "process 0.1 on h" in shown["reason"]
    assert shown["reason"].endswith("exit code 3")
    assert {process["state"] for process in shown["processes"]} == {"ended"}


@pytest.mark.parametrize("request_", ["2:[cpus=4]", "[],[2:gtx1060]"])
def test_commands_run_beside_the_process_that_is_named(
    tow: Tow, slurm: Slurm, request_: str
) -> None:
    configure(tow)
    job = submit(tow, "-c", "cedar", "-r", request_, "sleep", "300")
    wait_for(tow, job, "running")
    said = [tow("exec", "--process", n, str(job), "hostname").stdout for n in ("0", "1")]
    assert said == [f"{name}\n" for name in show(tow, job)["machines"]]
    assert tow("stop", str(job)).returncode == 0
    assert ended(tow, job)["state"] == "stopped"


def test_each_process_has_a_folder_of_its_own(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    done = tow("run", "-c", "cedar", "-r", "2:[cpus=4]", "sh", "-c", "echo $RANK > mine; ls")
    assert done.stdout.count("mine") == 2
    made = sorted((tow.folder / "job_results/1").rglob("mine"))
    assert [path.read_text() for path in made] == ["0\n", "1\n"]


def test_srun_in_the_script_of_several_processes_does_not_wait_for_them(
    tow: Tow, slurm: Slurm
) -> None:
    configure(tow)
    script = "srun --ntasks=2 sh -c 'echo step on $SLURMD_NODENAME' && echo went on"
    done = tow("run", "-c", "cedar", "-r", "2:[]", "-o", "nodes=2", "bash", "-c", script)
    assert done.returncode == 0, done.stderr
    lines = [line.partition("] ")[2] for line in done.stdout.splitlines()]
    assert sorted(lines) == sorted(["went on", "step on h2", "step on h3"] * 2)
