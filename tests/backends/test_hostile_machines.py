"""What a machine says that it should not costs that machine, or one job, and nothing else."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from backends.hostile import HELLO, HostileHost, watch_processes
from towline.backends.machines.driver import Driver
from towline.backends.machines.wanted import WantedProcess
from towline.model.events import ProcessEnded, ProcessStarted
from towline.snapshot.blobs import BlobStore

KEYS = ("e-1-1-0", "e-2-1-0")


def order(key: str) -> dict[str, Any]:
    return {"key": key, "argv": ["true"], "env": {}, "environ": None}


class Scene:
    """One driver of one hostile machine, and what it reports."""

    def __init__(self, folder: Path) -> None:
        self.host = HostileHost()
        self.facts: list[Any] = []
        blobs = BlobStore(str(folder / "blobs"))
        self.driver = Driver(
            self.host,
            "/nowhere",
            blobs,
            self.facts.append,
            on_hold=lambda wanted: None,
            on_probe=lambda driver, raw: None,
            probe_every_s=5.0,
            lost_after_s=86400.0,
        )

    def want(self, *keys: str) -> None:
        for key in keys:
            job = int(key.split("-")[1])
            self.driver.want(WantedProcess(key, job, 1, 0, order=lambda key=key: order(key)))  # type: ignore[misc]

    def is_given_up(self) -> bool:
        return self.driver.error is not None and self.driver.link is None

    def endings(self) -> dict[int, Any]:
        return {fact.job: fact.ending for fact in self.facts if isinstance(fact, ProcessEnded)}

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                await asyncio.sleep(0.01)


@pytest.fixture
def play(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[Scene], Awaitable[None]]], None]:
    processes = watch_processes(monkeypatch)

    def play(scenario: Callable[[Scene], Awaitable[None]]) -> None:
        async def whole() -> None:
            scene = Scene(tmp_path)
            try:
                await scenario(scene)
            finally:
                await scene.driver.close()
                await scene.until(lambda: all(p.get_returncode() is not None for p in processes))

        asyncio.run(whole())

    return play


Play = Callable[[Callable[[Scene], Awaitable[None]]], None]

NONSENSE = [
    ("its greeting", lambda host: setattr(host, "hello", {**HELLO, "time": "noon"})),
    ("its greeting", lambda host: setattr(host, "hello", {"event": "hello"})),
    ("expected", lambda host: setattr(host, "hello", "5")),
    ("expected", lambda host: setattr(host, "hello", "[" * 100_000)),
    ("expected", lambda host: setattr(host, "hello", "\xff")),
    ("probe", lambda host: host.answers.update(probe={})),
    ("probe", lambda host: host.answers.update(probe={"raw": 5})),
    ("observe", lambda host: host.answers.update(observe={"states": [1]})),
    ("says nothing of e-1-1-0", lambda host: host.answers.update(observe={"states": {}})),
    ("observe", lambda host: host.answers.update(observe={"states": {"KEY": {"state": 5}}})),
    ("jobs", lambda host: host.after.update(watch=[{"event": "jobs", "ended": 5}])),
    ("probe", lambda host: host.after.update(watch=[{"event": "probe"}])),
    ("refusal", lambda host: host.answers.update(watch={"error": {"text": 5}})),
]  # fmt: skip


@pytest.mark.parametrize(("text", "spoil"), NONSENSE)
def test_a_machine_that_speaks_nonsense_is_said_to_and_called_again(
    play: Play, text: str, spoil: Callable[[HostileHost], None]
) -> None:
    async def scenario(scene: Scene) -> None:
        spoil(scene.host)
        wanted = WantedProcess(KEYS[0], 1, 1, 0, order=None, sent=True, started=True)
        scene.driver.want(wanted)
        scene.driver.channel.open()
        await scene.until(scene.is_given_up)
        assert text in str(scene.driver.error)
        scene.driver.channel.redial()
        await scene.until(lambda: scene.host.dials > 1)

    play(scenario)


def test_what_nobody_expected_while_greeting_is_said_and_the_machine_called_again(
    play: Play,
) -> None:
    async def scenario(scene: Scene) -> None:
        def broken(*_: Any) -> None:
            raise KeyError("gpu7")

        scene.driver.on_probe = broken
        scene.driver.channel.open()
        await scene.until(scene.is_given_up)
        assert "its agent does not greet as expected: 'gpu7'" in str(scene.driver.error)
        scene.driver.on_probe = lambda driver, raw: None
        scene.driver.channel.redial()
        await scene.driver.reach()
        assert scene.host.dials > 1

    play(scenario)


def test_a_machine_that_comes_to_its_senses_is_used_again(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        scene.host.hello = "[]"
        scene.driver.channel.open()
        await scene.until(scene.is_given_up)
        scene.host.hello = dict(HELLO)
        await scene.driver.reach()

    play(scenario)


def test_nonsense_is_not_asked_for_again_and_again_without_a_pause(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        scene.host.after["watch"] = ["5"]
        scene.driver.channel.open()
        await scene.until(scene.is_given_up)
        # Each of these connections opened well, and broke at once.
        pauses = []

        async def sleep(pause_s: float) -> None:
            pauses.append(pause_s)

        scene.driver.channel._sleep = sleep  # type: ignore[method-assign]
        scene.driver.channel.redial()
        await scene.until(lambda: len(pauses) >= 3)
        assert pauses[:3] == sorted(set(pauses[:3]))

    play(scenario)


@pytest.mark.parametrize("body", [{"code": "abc"}, {"code": 10**23}, {"cause": ["x"]}, 5, None])
def test_an_ending_that_cannot_be_read_harms_its_own_job_alone(play: Play, body: Any) -> None:
    async def scenario(scene: Scene) -> None:
        ended = [[KEYS[0], body], [KEYS[1], {"code": 0, "text": "\udcff"}]]
        scene.host.after["start"] = [
            {"event": "jobs", "started": [[KEYS[0], 1, "noon"], [KEYS[1], 2, 5.0]]},
            {"event": "jobs", "ended": ended},
        ]
        scene.driver.channel.open()
        await scene.driver.reach()
        scene.want(*KEYS)
        await scene.until(lambda: len(scene.endings()) == 2)
        first, second = scene.endings()[1], scene.endings()[2]
        assert (first.cause, first.code) == ("lost", None)
        assert "damaged" in first.text
        assert (second.cause, second.code) == ("", 0)
        assert scene.driver.link is not None
        started = [fact for fact in scene.facts if isinstance(fact, ProcessStarted)]
        assert {fact.job: fact.at > 1e9 for fact in started} == {1: True, 2: False}

    play(scenario)


ENDED_WELL = [{"event": "jobs", "ended": [[KEYS[1], {"code": 0}]]}]


def test_a_refused_start_ends_in_words_and_its_neighbours_start(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        refusal = {"code": "outside", "text": "not a path inside the tree: 'data/'"}
        scene.host.answers["start"] = {"accepted": [KEYS[1]], "refused": {KEYS[0]: refusal}}
        scene.host.after["start"] = ENDED_WELL
        await scene.driver.reach()
        scene.want(*KEYS)
        await scene.until(lambda: len(scene.endings()) == 2)
        assert scene.endings()[1].cause == "refused"
        assert scene.endings()[1].text == "evil: not a path inside the tree: 'data/'"
        assert scene.endings()[2].code == 0
        assert scene.driver.wanted == {}

    play(scenario)


def test_a_refusal_of_a_whole_message_ends_each_of_its_jobs_in_words(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        scene.host.answers["start"] = {"error": {"code": "bad_request", "text": "no more"}}
        scene.host.answers["void"] = {"states": {"KEY": {"state": "ended", "ending": {"code": 0}}}}
        await scene.driver.reach()
        scene.want(*KEYS)
        await scene.until(lambda: len(scene.endings()) == 2)
        assert [ending.text for ending in scene.endings().values()] == ["evil: no more"] * 2
        await scene.until(lambda: scene.driver.wanted == {})
        assert scene.driver.link is not None

    play(scenario)


def test_an_order_that_cannot_be_made_ends_its_own_job_alone(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        def broken() -> dict[str, Any]:
            raise KeyError("gpu7")

        scene.host.after["start"] = ENDED_WELL
        await scene.driver.reach()
        scene.driver.want(WantedProcess(KEYS[0], 1, 1, 0, order=broken))
        scene.want(KEYS[1])
        await scene.until(lambda: len(scene.endings()) == 2)
        assert (scene.endings()[1].cause, scene.endings()[2].code) == ("refused", 0)
        assert "gpu7" in scene.endings()[1].text

    play(scenario)


def test_contents_that_are_gone_here_end_the_job_that_needs_them_and_no_other(
    play: Play, tmp_path: Path
) -> None:
    async def scenario(scene: Scene) -> None:
        blobs = scene.driver.blobs
        gone = "ab" * 32
        listed = blobs.put_bytes(json.dumps([["f", "f", gone]]).encode())
        scene.host.answers["have_snapshot"] = {"have": False, "recent": []}
        scene.host.answers["missing"] = {"missing": [gone], "begun": {}}
        scene.host.after["start"] = ENDED_WELL
        await scene.driver.reach()
        for number, snapshot in ((1, listed), (3, "cd" * 32)):
            key = f"e-{number}-1-0"
            wanted = WantedProcess(
                key, number, 1, 0, order=lambda: order("x"), snapshots=(snapshot,)
            )
            scene.driver.want(wanted)
        scene.want(KEYS[1])
        await scene.until(lambda: len(scene.endings()) == 3)
        assert {job: ending.cause for job, ending in scene.endings().items()} == {
            1: "snapshot",
            2: "",
            3: "snapshot",
        }
        assert gone[:12] in scene.endings()[1].text or gone[2:] in scene.endings()[1].text
        assert "no longer on this machine" in scene.endings()[3].text

    play(scenario)


@pytest.mark.parametrize("spoil", [spoil for _, spoil in NONSENSE])
def test_what_is_wrong_with_a_machine_begins_with_the_name_that_people_know(
    play: Play, spoil: Callable[[HostileHost], None]
) -> None:
    async def scenario(scene: Scene) -> None:
        scene.host.name = "slurm:me@cedar"
        spoil(scene.host)
        wanted = WantedProcess(KEYS[0], 1, 1, 0, order=None, sent=True, started=True)
        scene.driver.want(wanted)
        scene.driver.channel.open()
        await scene.until(scene.is_given_up)
        assert scene.driver.error is not None
        assert scene.driver.error.text.startswith("me@cedar: ")
        assert "slurm:" not in str(scene.driver.error)

    play(scenario)
