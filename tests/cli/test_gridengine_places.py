"""Where `-q` and `-l hostname` of `qsub` send a job."""

import os
from typing import Any, cast

import pytest

from towline.cli.compat.gridengine.submit.place import Place, check_hosts, hosts_named
from towline.cli.compat.gridengine.submit.refusals import Refused
from towline.client.session import Session


class Clusters:
    """A session that knows of clusters only."""

    def __init__(self, default: str) -> None:
        kinds = {"local": "machines", "lab": "machines", "cedar": "slurm", "msc": "gridengine"}
        self.clusters = [
            {"name": name, "kind": kind, "default": name == default} for name, kind in kinds.items()
        ]

    def call(self, *_: object) -> dict[str, Any]:
        return {"clusters": self.clusters}


def place(typed: str, default: str = "local") -> Place:
    return Place(cast("Session", Clusters(default)), typed)


@pytest.mark.parametrize(
    ("typed", "default", "cluster", "queues", "name"),
    [
        ("", "msc", "msc", [], "msc"),
        ("cpu", "msc", "msc", ["cpu"], "cpu"),
        ("cpu@h3,long", "msc", "msc", ["cpu@h3", "long"], "cpu"),
        ("msc@h3", "local", "msc", ["*@h3"], "msc"),
        ("msc,cpu", "local", "msc", ["cpu"], "msc"),
        ("cedar", "local", "cedar", [], "cedar"),
        ("gpu@n1", "cedar", "cedar", ["gpu@n1"], "gpu"),
        ("lab", "local", "lab", [], "lab"),
        ("whatever@h1", "local", "local", ["whatever@h1"], "whatever"),
    ],
)
def test_a_queue_is_a_cluster_or_one_of_the_default_cluster(
    typed: str, default: str, cluster: str, queues: list[str], name: str
) -> None:
    found = place(typed, default)
    assert (found.cluster, found.queues, found.name) == (cluster, queues, name)
    assert found.is_here == (cluster == "local")


@pytest.mark.parametrize(("typed", "wrong"), [("lab@h2", "lab@h2"), ("lab,x", "x"), ("y", "y")])
def test_machines_have_no_queues(typed: str, wrong: str) -> None:
    with pytest.raises(Refused, match=f'unknown queue "{wrong}"'):
        place(typed, "lab")


def test_hosts_are_those_of_queues_and_this_machine_is_itself() -> None:
    assert hosts_named(place("cedar@n1"), "h=n2,h_rt=5,hostname=n1") == ["n1", "n2"]
    check_hosts(place("msc"), "h=n*")
    check_hosts(place("any@where"), f"h={os.uname().nodename}")
    for typed, resources in (("lab", "h=n1"), ("local", "hostname=nosuch"), ("cedar", "h=n*")):
        with pytest.raises(Refused, match="host"):
            check_hosts(place(typed), resources)
