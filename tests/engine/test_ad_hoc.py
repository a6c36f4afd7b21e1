"""Clusters that no configuration names: made of the machines that somebody typed."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from engine.bench import AdHocBench
from towline.backends.clusters import Clusters
from towline.backends.membership import Membership
from towline.backends.router import Backends
from towline.config.settings import Config, MachineEntry, MachinesCluster
from towline.errors import UsageError
from towline.hosts.ssh import SshHost, real_target

SSH_CONFIG = """\
Host gpu1
  HostName 10.9.8.7
  User ben
Host gpu2
  HostName 10.9.8.6
  User ben
  Port 2222
"""


class Joined:
    """Stands for the machines: keeps what they were told."""

    def __init__(self) -> None:
        self.clusters: dict[str, list[Membership]] = {}
        self.drivers: dict[str, Any] = {}
        self.members: dict[str, Membership] = {}
        self.report = print

    def join(self, cluster: str, members: Iterable[Membership]) -> None:
        self.clusters[cluster] = list(members)

    def driver_at(self, target: str) -> None:
        """None is driven here."""

    def labels(self, cluster: str) -> list[str]:
        return [member.host.name for member in self.clusters[cluster]]


class Bench(AdHocBench):
    def restart(self) -> None:
        self.joined = Joined()
        backends = Backends(self.joined, {})  # type: ignore[arg-type]
        self.clusters = Clusters(backends, self.store, self.paths)

    def ad_hoc(self, *entries: MachineEntry, config: Config | None = None) -> str:
        return asyncio.run(self.clusters.ad_hoc(entries, config or Config()))


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch, SSH_CONFIG)


def configured(*machines: str | MachineEntry) -> Config:
    return Config(clusters={"lab": MachinesCluster(list(machines))})


A, B = MachineEntry("ben@a"), MachineEntry("ben@b:23", key="/keys/b")


def test_the_same_machines_share_one_cluster(bench: Bench) -> None:
    name = bench.ad_hoc(A, B)
    assert bench.joined.labels(name) == ["ben@a", "ben@b:23"]
    assert bench.ad_hoc(B, A, B) == name
    assert bench.ad_hoc(A) != name
    assert ":" in name


def test_it_is_there_again_after_a_restart(bench: Bench) -> None:
    name = bench.ad_hoc(A, B)
    bench.restart()
    assert bench.clusters.remembered(name) is not None
    bench.clusters.rejoin({name})
    assert bench.joined.labels(name) == ["ben@a", "ben@b:23"]
    host = bench.joined.clusters[name][1].host
    assert isinstance(host, SshHost)
    assert (host.destination, host.port, host.key) == ("ben@b", 23, "/keys/b")
    assert bench.clusters.remembered("lab") is None


@pytest.mark.parametrize("typed", ["gpu1", "ben@10.9.8.7", "ben@gpu1", "ben@10.9.8.7:22"])
def test_a_configured_machine_is_recognised_by_where_ssh_goes(bench: Bench, typed: str) -> None:
    config = configured("other", MachineEntry("gpu1", name="big", cpus=3, folder="~/jobs"))
    name = bench.ad_hoc(MachineEntry(typed, key="/keys/mine"), config=config)
    assert bench.joined.labels(name) == ["big"]
    member = bench.joined.clusters[name][0]
    assert (member.limits.cpus, member.root) == (3, "~/jobs")


@pytest.mark.parametrize("typed", ["eve@10.9.8.7", "ben@10.9.8.7:23", "ben@10.9.8.6"])
def test_another_user_or_port_is_another_machine(bench: Bench, typed: str) -> None:
    name = bench.ad_hoc(MachineEntry(typed), config=configured("gpu1", "gpu2"))
    assert bench.joined.labels(name) == [typed]


def test_a_name_that_another_machine_has_is_not_taken(bench: Bench) -> None:
    config = configured(MachineEntry("gpu1", name="a"))
    assert bench.joined.labels(bench.ad_hoc(MachineEntry("a"), config=config)) == ["a~"]


def test_what_cannot_be_a_machine_is_refused_and_nothing_joined(bench: Bench) -> None:
    for config in (Config(), configured("gpu1")):
        with pytest.raises(UsageError):
            bench.ad_hoc(A, MachineEntry("-oProxyCommand=x"), config=config)
    assert bench.joined.clusters == {}
    assert bench.store.clusters() == {}


def test_a_key_is_the_only_one_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOWLINE_SSH_CONFIG", raising=False)
    argv = SshHost("m", "ben@a", 23, "/run", "/keys/100%").channel("boot", "x")
    assert argv[:7] == ["ssh", "-p", "23", "-i", "/keys/100%%", "-o", "IdentitiesOnly=yes"]
    assert "-i" not in SshHost("m", "ben@a", 23, "/run").channel("boot", "x")


def test_where_ssh_goes_is_read_from_what_it_says() -> None:
    said = "host gpu1\nuser ben\nhostname 10.9.8.7\nport 22\nsetenv A=user x\n"
    assert real_target(said) == ("ben", "10.9.8.7", "22")
