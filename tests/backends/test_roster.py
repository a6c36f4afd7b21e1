"""Which machine is which: by where it is and by what it says of itself, never by its name alone."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from towline.backends.machines.backend import Machines
from towline.backends.machines.channel import Channel
from towline.backends.machines.wanted import WantedProcess
from towline.backends.membership import Membership
from towline.errors import HostError, Unreachable
from towline.model.events import MachineRemoved, MachineSeen
from towline.model.identity import Identity, identity_from, is_another, is_one
from towline.model.machine import Machine, Slot
from towline.probes.machine import ALL_OF_IT
from towline.snapshot.blobs import BlobStore

GPU1 = Identity("gpu1", "m1", "b1", 1)


class Away:
    """A machine that cannot be dialled."""

    def __init__(self, name: str, place: str) -> None:
        self.name = name
        self.place = place

    async def prepare(self) -> None: ...

    def channel(self, boot: str, *arguments: str) -> list[str]:
        return ["false"]

    def failure(self, returncode: int | None, stderr: str) -> HostError:
        return Unreachable("away")

    def login(self) -> list[str] | None:
        return ["ssh", self.place]


class Answering:
    """Stands for an open channel."""

    closed = False

    def __init__(self, user: str) -> None:
        self.hello = {"user": user, "cpus": 4}

    def close(self) -> None: ...


class Lab:
    def __init__(self, folder: Path) -> None:
        self.facts: list[Any] = []
        self.machines = Machines("e", self.facts.append, BlobStore(folder), lambda _: None, 5.0)

    def join(self, cluster: str, **places: str) -> None:
        """Make these the machines of a cluster: what each is called, and what is dialled."""
        self.machines.join(cluster, [member(name, place) for name, place in places.items()])

    def names(self) -> dict[str, str]:
        """What is dialled by which name."""
        return {name: one.host.place for name, one in self.machines.members.items()}

    def run(self, name: str, key: str = "e-1-1-0") -> Slot:
        """Let a process run on a machine; the place that it was given."""
        self.machines.drivers[name].wanted[key] = WantedProcess(key, 1, 1, 0, order=None, sent=True)
        return Slot(name, target=self.machines.members[name].target)

    def answers(self, name: str, identity: Identity | None, user: str = "me") -> None:
        """The machine of this name answers, and says what it has."""
        driver = self.machines.drivers[name]
        driver.channel.link, driver.channel.error = Answering(user), None  # type: ignore[assignment]
        driver.identity = identity
        self.machines._probed(driver, {})

    def seen(self) -> dict[str, Machine]:
        """The machines that the core has."""
        found: dict[str, Machine] = {}
        for fact in self.facts:
            if isinstance(fact, MachineSeen):
                found[fact.machine.name] = fact.machine
            elif isinstance(fact, MachineRemoved):
                found.pop(fact.name, None)
        return found


def member(name: str, place: str) -> Membership:
    return Membership(Away(name, place), "~/.towline", ALL_OF_IT, 86400.0)


Play = Callable[[Callable[[Lab], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    monkeypatch.setattr(Channel, "open", lambda self: None)

    def play(scenario: Callable[[Lab], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            lab = Lab(tmp_path)
            try:
                await scenario(lab)
            finally:
                await lab.machines.close()

        asyncio.run(whole())

    return play


def test_a_name_that_is_configured_anew_leads_to_the_new_place(play: Play) -> None:
    async def scenario(lab: Lab) -> None:
        lab.join("lab", gpu1="s1")
        lab.join("lab", gpu1="s3")
        assert lab.names() == {"gpu1": "s3"}

    play(scenario)


def test_what_runs_stays_with_its_machine_and_the_new_one_has_a_name_of_its_own(play: Play) -> None:
    async def scenario(lab: Lab) -> None:
        lab.join("lab", gpu1="s1")
        slot = lab.run("gpu1")
        lab.join("lab", gpu1="s3")
        assert lab.names() == {"gpu1": "s1", "gpu1~s3": "s3"}
        assert lab.machines.members["gpu1"].clusters == set()
        assert lab.machines.members["gpu1~s3"].clusters == {"lab"}
        driver = lab.machines.driver_of(slot)
        assert driver is not None and driver.host.place == "s1"
        # Asked again, it is the same machine, under the name it has.
        lab.join("lab", gpu1="s3")
        assert lab.names() == {"gpu1": "s1", "gpu1~s3": "s3"}

    play(scenario)


def test_two_clusters_with_machines_of_one_name_have_two_machines(play: Play) -> None:
    async def scenario(lab: Lab) -> None:
        lab.join("here", gpu1="s1")
        lab.join("there", gpu1="s2")
        assert lab.names() == {"gpu1": "s1", "gpu1~s2": "s2"}
        lab.join("here", gpu1="s1")
        assert lab.machines.members["gpu1"].clusters == {"here"}
        lab.machines.leave("there")
        assert lab.names() == {"gpu1": "s1"}

    play(scenario)


def test_where_an_older_version_noted_only_a_name_that_is_what_counts(play: Play) -> None:
    async def scenario(lab: Lab) -> None:
        lab.join("lab", gpu1="s1")
        driver = lab.machines.driver_of(Slot("gpu1"))
        assert driver is not None and driver.host.place == "s1"
        assert lab.machines.driver_of(Slot("gpu1", target="s9 ~/.towline")) is None

    play(scenario)


def test_a_machine_with_two_names_is_seen_once_for_both_clusters(play: Play) -> None:
    async def scenario(lab: Lab) -> None:
        lab.join("lab", gpu1="s1")
        lab.join("other", gpu1b="s1b")
        lab.answers("gpu1", GPU1)
        lab.answers("gpu1b", GPU1)
        assert list(lab.seen()) == ["gpu1"]
        assert lab.seen()["gpu1"].clusters == ("lab", "other")
        assert lab.machines.twins == {"gpu1b": "gpu1"}

    play(scenario)


def test_of_two_names_the_other_one_counts_while_the_first_does_not_answer(play: Play) -> None:
    async def scenario(lab: Lab) -> None:
        lab.join("lab", gpu1="s1", gpu1b="s1b")
        lab.answers("gpu1", GPU1)
        lab.answers("gpu1b", GPU1)
        lab.machines.drivers["gpu1"].channel.link = None
        lab.answers("gpu1b", GPU1)
        assert lab.machines.twins == {} and "gpu1b" in lab.seen()

    play(scenario)


def test_jobs_under_the_other_name_are_counted_where_they_are_and_none_follows(play: Play) -> None:
    async def scenario(lab: Lab) -> None:
        lab.join("lab", gpu1="s1", gpu1b="s1b")
        lab.run("gpu1b")
        lab.answers("gpu1", GPU1)
        lab.answers("gpu1b", GPU1)
        twin = lab.seen()["gpu1b"]
        assert (twin.clusters, twin.closed) == ((), "is gpu1 under another name")
        lab.machines.drivers["gpu1b"].wanted.clear()
        lab.answers("gpu1b", GPU1)
        assert list(lab.seen()) == ["gpu1"]

    play(scenario)


@pytest.mark.parametrize(
    ("identity", "user"),
    [
        (Identity("gpu2", "m2", "b2", 1), "me"),
        (Identity("gpu1", "m1", "b1", 2), "me"),
        (GPU1, "somebody else"),
        (None, "me"),
    ],
)
def test_machines_that_may_be_two_are_two(play: Play, identity: Identity | None, user: str) -> None:
    async def scenario(lab: Lab) -> None:
        lab.join("lab", gpu1="s1", gpu2="s2")
        lab.answers("gpu1", GPU1)
        lab.answers("gpu2", identity, user)
        assert set(lab.seen()) == {"gpu1", "gpu2"}

    play(scenario)


def test_a_machine_that_restarted_or_was_renamed_is_still_the_same() -> None:
    assert not is_another(GPU1, Identity("gpu1", "m1", "b2", 1))
    assert not is_another(GPU1, Identity("renamed", "m1", "b1", 1))
    assert not is_another(GPU1, None) and not is_another(None, GPU1)
    assert is_another(GPU1, Identity("gpu1", "m2", "b2", 1))
    assert is_another(GPU1, Identity("gpu2", "m1", "b1", 2))
    assert is_another(Identity("gpu1"), Identity("gpu2"))
    assert is_one(GPU1, Identity("renamed", "m1", "b1", 1))
    assert not is_one(GPU1, Identity("gpu1", "m1", "b2", 1))


def test_what_a_machine_says_of_itself_is_read_with_care() -> None:
    assert identity_from({}) is None
    told = {"host": "n\x1b1", "machine": "m" * 99, "boot": 5, "pidns": "x"}
    assert identity_from(told) == Identity("n1", "m" * 12, "", 0)
