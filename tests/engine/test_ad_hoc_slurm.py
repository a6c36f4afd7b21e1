"""A Slurm that no configuration names: known by its access node."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from engine.bench import AdHocBench
from towline.backends.clusters import Clusters
from towline.backends.membership import Membership
from towline.backends.router import Backends
from towline.config.settings import Config, MachinesCluster, SlurmCluster
from towline.errors import ConfigError, UsageError
from towline.hosts.ssh import SshHost

SSH_CONFIG = "Host cedar\n  HostName 10.9.8.7\n  User me\n"
FOLDER = "/scratch/me"


class Watched:
    """Stands for the machines and their queues: keeps what they were told."""

    def __init__(self) -> None:
        self.members: dict[str, Membership] = {}
        self.drivers: dict[str, Any] = {}
        self.queues: list[str] = []
        self.report = print

    def watch(self, member: Membership) -> None:
        self.members[member.host.name] = member
        self.drivers[member.host.name] = member

    def join(self, cluster: str, setup_login: str = "") -> None:
        self.queues.append(cluster)

    def leave(self, cluster: str) -> None:
        self.queues = [name for name in self.queues if name != cluster]

    def forget(self, name: str) -> None:
        self.drivers.pop(name, None)


class Bench(AdHocBench):
    def restart(self) -> None:
        self.watched = Watched()
        queues: Any = {"slurm": self.watched}
        backends = Backends(self.watched, queues)  # type: ignore[arg-type]
        self.clusters = Clusters(backends, self.store, self.paths)

    def ad_hoc(self, host: str, folder: str = "~/.towline", **configured: SlurmCluster) -> str:
        config = Config(clusters={"lab": MachinesCluster(["gpu1"]), **configured})
        given = SlurmCluster(host=host, folder=folder)
        return asyncio.run(self.clusters.ad_hoc_queue(given, config))


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch, SSH_CONFIG)


def test_it_is_called_after_its_access_node(bench: Bench) -> None:
    name = bench.ad_hoc("me@cedar.example.org")
    assert name == "slurm:me@cedar.example.org"
    assert bench.watched.queues == [name]
    host = bench.watched.members[name].host
    assert isinstance(host, SshHost) and host.destination == "me@cedar.example.org"


def test_two_names_of_one_access_node_share_one_queue(bench: Bench) -> None:
    name = bench.ad_hoc("cedar")
    assert [bench.ad_hoc(host) for host in ("me@10.9.8.7", "me@cedar", "cedar")] == [name] * 3
    assert bench.watched.queues == [name]
    others = {bench.ad_hoc("eve@cedar"), bench.ad_hoc("me@cedar:23"), bench.ad_hoc("cedar", FOLDER)}
    assert len(others | {name}) == 4


def test_one_that_is_configured_is_that_one(bench: Bench) -> None:
    assert bench.ad_hoc("me@10.9.8.7", big=SlurmCluster(host="cedar")) == "big"
    assert bench.ad_hoc("cedar", big=SlurmCluster(host="me@cedar", folder=FOLDER)) == "big"
    assert bench.ad_hoc("cedar", FOLDER, big=SlurmCluster(host="cedar")) != "big"


def test_it_is_there_again_after_a_restart(bench: Bench) -> None:
    name = bench.ad_hoc("cedar", FOLDER)
    bench.restart()
    assert bench.clusters.remembered(name) == SlurmCluster(host="cedar", folder=FOLDER)
    assert bench.ad_hoc("me@cedar", FOLDER) == name
    bench.clusters.rejoin({name})
    assert bench.watched.queues == [name]
    assert bench.watched.members[name].root == FOLDER
    assert bench.clusters.remembered("slurm:other") is None


def test_what_cannot_be_a_machine_is_refused_and_nothing_joined(bench: Bench) -> None:
    with pytest.raises(UsageError):
        bench.ad_hoc("-oProxyCommand=x")
    assert bench.store.clusters() == {}


def test_one_that_could_not_be_reached_and_never_had_a_job_is_forgotten(bench: Bench) -> None:
    name = bench.ad_hoc("nohost.invalid")
    bench.clusters.give_up_unused(name)
    assert bench.watched.queues == [] and bench.watched.drivers == {}
    assert bench.clusters.remembered(name) is None
    bench.restart()
    assert bench.clusters.remembered(name) is None


def test_a_machine_called_like_a_slurm_is_refused_with_a_way_out(bench: Bench) -> None:
    box = MachinesCluster(["cedar"])
    config = Config(clusters={"box": box, "cedar": SlurmCluster(host="cedar")})
    with pytest.raises(ConfigError, match="called like the Slurm cedar"):
        bench.clusters.join("box", box, config)


def test_people_name_it_and_hear_of_it_by_its_access_node(bench: Bench) -> None:
    name = bench.ad_hoc("cedar")
    assert bench.clusters.called("cedar") == name and bench.clusters.called("lab") == "lab"
    bench.restart()
    assert bench.clusters.called("cedar") == name
    bench.clusters.rejoin({name})
    host = bench.watched.members[name].host
    assert host.failure(255, "no route to host").text.startswith("cedar: ")
