"""What nodes could ever do, as they are configured; whether they are up is no matter here."""

import pytest

from towline.backends.slurm.fitting import could_ever_run
from towline.probes.nodes import QueueNode

NODES = [
    QueueNode("n1", 4, 4000, {"a100": 2}, partitions=("main", "gpu"), features=("ib",)),
    QueueNode("n2", 4, 4000, {"a100": 2}, closed="drained", partitions=("main", "gpu")),
    QueueNode("n3", 16, 64000, {"h100": 1}, down="down", partitions=("main", "big")),
]


@pytest.mark.parametrize(
    "options",
    [
        "",
        "--cpus-per-task=16 --mem=60G",
        "--gres=gpu:h100:1",
        "--gres=gpu:2",
        "--nodes=3",
        "--nodes=2-4 --ntasks-per-node=4",
        "--nodelist=n3",
        "--partition=big,other",
        "--constraint=ib",
        "--mem=0",
        "--mem-per-cpu=4000 --cpus-per-task=16",
        "--gres=tmpdisk:9 --constraint=[a|b] --nodelist=n[1-9] --mem=lots --exclusive",
    ],
)
def test_what_some_node_could_do_is_never_refused(options: str) -> None:
    assert could_ever_run(options.split(), NODES)


@pytest.mark.parametrize(
    "options",
    [
        "--cpus-per-task=17",
        "--cpus-per-task=5 --ntasks-per-node=4",
        "--mem=65G",
        "--mem-per-cpu=5000 --cpus-per-task=16",
        "--gres=gpu:a100:3",
        "--gres=gpu:v100:1",
        "--gpus-per-node=h100:2",
        "--gpus-per-task=a100:1 --ntasks-per-node=3",
        "--nodes=4",
        "--nodes=3 --gres=gpu:a100:1",
        "--nodelist=n1,n9",
        "--nodelist=n1 --gres=gpu:h100:1",
        "--partition=gpu --gres=gpu:h100:1",
        "--constraint=ib --cpus-per-task=16",
    ],
)
def test_what_no_node_could_ever_do_is_known(options: str) -> None:
    assert not could_ever_run(options.split(), NODES)


def test_without_a_list_of_nodes_everything_may_fit() -> None:
    assert could_ever_run(["--cpus-per-task=9999"], [])
