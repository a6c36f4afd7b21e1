"""The nodes of a Slurm, as recorded from a real one: what they have, and what is free."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.probes.nodes import QueueNode
from towline.probes.slurm_nodes import gpus_of, read_nodes

MIXED = (
    "NodeName=h2 Arch=x86_64 CoresPerSocket=4  CPUAlloc=2 CPUEfctv=4 CPUTot=4 CPULoad=5.94"
    " AvailableFeatures=(null) ActiveFeatures=(null) Gres=gpu:gtx1070:2 GresDrain=N/A"
    " GresUsed=gpu:gtx1070:1(IDX:0) NodeAddr=h2 NodeHostName=h2 Version=22.05.8"
    " OS=Linux 6.1.0 #1 SMP PREEMPT_DYNAMIC @0  RealMemory=4000 AllocMem=100 FreeMem=22047"
    " Sockets=1 Boards=1 State=MIXED ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A"
    " Partitions=main,gpu,short  CfgTRES=cpu=4,mem=4000M,billing=4 AllocTRES=cpu=2,mem=100M"
)


def test_what_a_node_has_and_what_of_it_is_free() -> None:
    has, free, of = {"gtx1070": 2}, {"gtx1070": 1}, ("main", "gpu", "short")
    assert read_nodes(MIXED) == [QueueNode("h2", 4, 4000, has, 2, 3900, free, partitions=of)]


def test_a_node_without_gpus_and_without_details() -> None:
    (node,) = read_nodes("NodeName=x CPUAlloc=64 CPUTot=64 Gres=(null) RealMemory=5000 State=IDLE")
    assert node == QueueNode("x", 64, 5000, {}, 0, 5000, {})


@pytest.mark.parametrize(
    ("state", "closed", "down"),
    [
        ("IDLE", "", ""),
        ("ALLOCATED", "", ""),
        ("IDLE+CLOUD+POWERED_DOWN", "", ""),
        ("IDLE~", "", ""),
        ("MIXED+PLANNED", "", ""),
        ("ALLOCATED+DRAIN", "Slurm calls it drain", ""),
        ("IDLE+MAINT+RESERVED", "Slurm calls it maint and reserved", ""),
        ("DOWN", "", "Slurm calls it down"),
        ("IDLE+DRAIN+DOWN", "", "Slurm calls it down"),
        ("DOWN*", "", "Slurm calls it down and not responding"),
        ("MIXED+NOT_RESPONDING", "", "Slurm calls it not responding"),
    ],
)
def test_whether_jobs_can_run_there(state: str, closed: str, down: str) -> None:
    (node,) = read_nodes(f"NodeName=x CPUTot=4 RealMemory=10 State={state} ThreadsPerCore=1")
    assert (node.closed, node.down) == (closed, down)


def test_the_reason_that_an_administrator_gave() -> None:
    line = "NodeName=x CPUTot=4 RealMemory=10 State=IDLE+DRAIN Weight=1 Reason=bad disk, again"
    (node,) = read_nodes(f"{line} [root@2026-11-16T07:04:00]")
    assert node.closed == "Slurm calls it drain: bad disk, again"


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("(null)", {}),
        ("gpu:2", {"": 2}),
        ("gpu:a100:4(S:0-1),shard:8", {"a100": 4}),
        ("gpu:a100:2(S:0),gpu:v100:1(S:1),nvme:1", {"a100": 2, "v100": 1}),
    ],
)
def test_gpus_of_a_node(gres: str, gpus: dict[str, int]) -> None:
    assert gpus_of(gres) == gpus


@given(st.text())
def test_no_text_breaks_the_reader(text: str) -> None:
    read_nodes(text)
    read_nodes(f"NodeName=x CPUTot=4 {text}")
