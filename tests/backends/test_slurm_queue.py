"""What becomes of attempts in a Slurm's queue, with an access node and a Slurm that are made up."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, cast

import pytest
from msgspec.structs import replace

from towline.agent.link import Link
from towline.backends.machines.driver import Driver
from towline.backends.queue.handover import Handover
from towline.backends.queue.queue import Queue
from towline.backends.queue.state import Attempt, Place
from towline.backends.queue.times import Times
from towline.backends.slurm.dialect import SlurmDialect
from towline.errors import Unreachable
from towline.model.events import AttemptWaits, ProcessEnded

KEY = "e-1-1"


class Cedar:
    """The channel to an access node, and the Slurm behind it."""

    def __init__(self) -> None:
        self.hello = {"root": "/home/me/.towline", "user": "me"}
        #: Number -> its state in Slurm's list.
        self.jobs: dict[int, str] = {}
        self.claim = ""
        #: Where its one process stands, as its files say.
        self.rank: dict[str, Any] = {"state": "waiting"}
        self.handed_over: list[dict[str, Any]] = []
        self.cancelled: list[str] = []
        #: The exit code of an sbatch that does its work and is killed before it says so.
        self.killed_by = 0
        #: When its controller was started; it is noon.
        self.booted = "2026-11-01T12:00:00"
        #: So often the connection breaks over the news of an end, which are then told again.
        self.breaks = 0
        #: Ends that were to be written down over there.
        self.lost: dict[str, str] = {}
        #: How often Slurm was asked for its list.
        self.listed = 0
        #: sbatch does its work at once, and answers when this is set.
        self.answers = asyncio.Event()
        self.answers.set()

    async def ask(self, op: str, blob: bytes = b"", **fields: Any) -> tuple[dict[str, Any], bytes]:
        await asyncio.sleep(0)
        answer = getattr(self, f"_{op}")(fields)
        if op == "hand_over":
            await self.answers.wait()
        return answer, b""

    def _heed(self, fields: dict[str, Any]) -> dict[str, Any]:
        return {}

    def _conclude_handed(self, fields: dict[str, Any]) -> dict[str, Any]:
        if self.breaks:
            self.breaks -= 1
            raise Unreachable("the connection was closed")
        self.lost |= fields["lost"]
        return {}

    def _call(self, fields: dict[str, Any]) -> dict[str, Any]:
        out = ""
        if fields["argv"][0] == "scancel":
            self.cancelled += fields["argv"][1:]
            self.jobs.update({int(number): "CANCELLED" for number in fields["argv"][1:]})
        if fields["argv"][:2] == ["scontrol", "show"]:
            out = f"Configuration data as of 2026-11-16T12:00:00\nBOOT_TIME = {self.booted}\n"
        if "squeue" in fields["argv"] and "--states=all" in fields["argv"]:
            self.listed += 1
            line = "{}|{}|None|N/A|h2|main||1:00|/home/me|towline:" + KEY + "\n"
            out = "".join(line.format(number, state) for number, state in self.jobs.items())
        return {"code": 0, "out": out, "err": ""}

    def _hand_over(self, fields: dict[str, Any]) -> dict[str, Any]:
        self.handed_over.append(fields)
        number = 6 + len(self.handed_over)
        self.jobs[number] = "PENDING"
        if self.killed_by:
            return {"code": self.killed_by, "out": "", "err": "Killed\n"}
        return {"code": 0, "out": f"{number}\n", "err": ""}

    def _handed(self, fields: dict[str, Any]) -> dict[str, Any]:
        told = self.handed_over and not self.killed_by
        ticket = f"{6 + len(self.handed_over)}\n" if told else ""
        known = {"array": None, "ticket": ticket, "claim": self.claim, "said": ""}
        return {"handed": {key: {**known, "ranks": [self.rank]} for key in fields["keys"]}}


class AccessNode:
    """As much of a driver as a queue needs."""

    name = "cedar"
    error = None

    def __init__(self, link: Cedar) -> None:
        self.link = link
        self.guest: Any = None

    async def bring(self, link: Cedar, snapshots: tuple[str, ...]) -> None:
        pass


class Scene:
    times = Times(often_s=0.01, soon_s=0.01, settle_s=0.0, race_s=0.0)

    def __init__(self, wanted_elsewhere: str = "") -> None:
        self.cedar = Cedar()
        self.facts: list[Any] = []
        driver = cast("Driver", AccessNode(self.cedar))
        self.queue = Queue(
            SlurmDialect(),
            "cedar",
            "e",
            driver,
            self.facts.append,
            lambda key: key in self.queue.wanted or key == wanted_elsewhere,
            self.times,
        )

    def want(self, attempt: Attempt | None = None) -> None:
        message = {"key": KEY, "script": "", "order": {}, "specs": [], "argv": ["sbatch"]}
        self.queue.want(
            Handover(
                attempt or Attempt(key=KEY, job=1, number=1, count=1, title="Slurm"),
                message=lambda root: message,
                words=lambda name, root, tasks, at_once: [],
            )
        )

    async def looks(self) -> None:
        """Slurm is asked a few times."""
        until = self.cedar.listed + 3
        await self.until(lambda: self.cedar.listed >= until)

    @property
    def number(self) -> str:
        return self.queue.wanted[KEY].attempt.id

    @property
    def reasons(self) -> list[str]:
        return [fact.reason for fact in self.facts if isinstance(fact, AttemptWaits)]

    @property
    def ending(self) -> Any:
        return next((f.ending for f in self.facts if isinstance(f, ProcessEnded)), None)

    async def until(self, true: Callable[[], Any]) -> None:
        async with asyncio.timeout(20):
            while not true():
                self.queue.watcher.soon()
                await asyncio.sleep(0.01)


def play(story: Callable[[Scene], Any], **about: str) -> None:
    async def whole() -> None:
        scene = Scene(**about)
        try:
            await story(scene)
        finally:
            scene.queue.close()

    asyncio.run(whole())


@pytest.mark.parametrize("state", ["NODE_FAIL", "BOOT_FAIL", "PREEMPTED"])
def test_attempt_that_its_node_lost_before_it_began_is_handed_over_again(state: str) -> None:
    async def story(scene: Scene) -> None:
        scene.want()
        await scene.until(lambda: scene.number == "7")
        scene.cedar.jobs[7] = state
        # The old entry stays in Slurm's list for a while; it is not taken for the new one.
        await scene.until(lambda: scene.number == "8")
        scene.cedar.jobs[8] = state
        await scene.until(lambda: scene.number == "9")
        assert any("handed over again" in reason for reason in scene.reasons)
        assert [asked["anew"] for asked in scene.cedar.handed_over] == [False, True, True]
        assert scene.ending is None

    play(story)


def test_attempt_cancelled_right_after_a_restart_of_the_controller_is_handed_over_again() -> None:
    async def story(scene: Scene) -> None:
        await scene.queue.greet(cast("Link", scene.cedar))
        scene.cedar.booted = "2026-11-16T11:58:00"
        scene.want()
        for number in (7, 8, 9):
            await scene.until(lambda number=number: scene.number == str(number))
            scene.cedar.jobs[number] = "CANCELLED"
        await scene.until(lambda: scene.number == "10")
        assert scene.ending is None
        # By now somebody means it.
        scene.cedar.jobs[10] = "CANCELLED"
        await scene.until(lambda: scene.ending)
        ending: Any = scene.ending
        assert ending.cause == "cancelled"

    play(story)


def test_attempt_that_a_killed_controller_forgot_is_handed_over_again_by_the_next_engine() -> None:
    """Which reads its number over there, but never saw it in the queue."""

    async def story(scene: Scene) -> None:
        scene.cedar.handed_over.append({})
        scene.cedar.booted = "2026-11-16T11:59:00"
        attempt = Attempt(KEY, 1, 1, 1, "Slurm", Place.UNANSWERED, known_at=time.time() - 3600)
        scene.want(attempt)
        await scene.until(lambda: len(scene.cedar.handed_over) == 2)
        assert scene.ending is None and scene.cedar.handed_over[1]["anew"]

    play(story)


@pytest.mark.parametrize("restarted", ["", "2026-11-16T11:00:00"])
def test_attempt_cancelled_in_slurm_stays_cancelled(restarted: str) -> None:
    """However young the controller is, and though it restarted, if that is long ago."""

    async def story(scene: Scene) -> None:
        scene.cedar.booted = "2026-11-16T11:59:59"
        await scene.queue.greet(cast("Link", scene.cedar))
        scene.cedar.booted = restarted or scene.cedar.booted
        scene.want()
        await scene.until(lambda: scene.number == "7")
        scene.cedar.jobs[7] = "CANCELLED"
        await scene.until(lambda: scene.ending)
        assert (scene.ending.cause, len(scene.cedar.handed_over)) == ("cancelled", 1)

    play(story)


def test_attempt_that_began_on_a_node_that_failed_is_lost_and_never_run_again() -> None:
    async def story(scene: Scene) -> None:
        scene.want()
        await scene.until(lambda: scene.number == "7")
        scene.cedar.claim, scene.cedar.jobs[7] = "7 0", "NODE_FAIL"
        await scene.until(lambda: scene.ending)
        assert (scene.ending.cause, scene.ending.text) == ("lost", "its node failed")
        assert len(scene.cedar.handed_over) == 1
        scene.cedar.breaks = 1
        scene.queue.conclude(KEY)
        await scene.until(lambda: scene.cedar.lost == {f"{KEY}-0": "its node failed"})
        await scene.until(lambda: not scene.queue.concluded)
        assert scene.cedar.breaks == 0

    play(story)


def test_attempt_that_slurm_ended_is_known_to_have_begun_so_that_its_results_are_wanted() -> None:
    async def story(scene: Scene) -> None:
        scene.want()
        await scene.until(lambda: scene.number == "7")
        scene.cedar.claim, scene.cedar.jobs[7] = "7 0", "RUNNING"
        scene.cedar.rank = {"state": "running", "started": 5.0, "run": 0, "node": "h2"}
        scene.cedar.jobs[7] = "OUT_OF_MEMORY"
        await scene.until(lambda: scene.ending)
        assert scene.ending.cause == "oom"
        assert scene.ending.started

    play(story)


def test_of_two_entries_of_one_attempt_none_is_cancelled_before_the_other_has_its_claim() -> None:
    """The first comes from an sbatch that was killed after it had done its work."""

    async def story(scene: Scene) -> None:
        cedar, queue = scene.cedar, scene.queue
        cedar.jobs[6] = "PENDING"
        cedar.answers.clear()
        scene.want()
        await scene.until(lambda: 7 in cedar.jobs)
        await scene.looks()
        cedar.answers.set()
        await scene.until(lambda: scene.number == "7")
        await scene.looks()
        assert cedar.cancelled == []
        cedar.claim, cedar.jobs[6] = "6 0", "RUNNING"
        queue.heard({"event": "handed", "news": {f"{KEY}-0": {"state": "running"}}})
        await scene.until(lambda: cedar.cancelled)
        assert cedar.cancelled == ["7"] and scene.number == "6"
        await scene.looks()
        assert scene.ending is None

    play(story)


@pytest.mark.parametrize("code", [-9, 137])
def test_attempt_whose_sbatch_was_killed_is_looked_for_and_found(code: int) -> None:
    """A shell around sbatch, as some sites have it, tells of the signal by its own exit code."""

    async def story(scene: Scene) -> None:
        scene.cedar.killed_by = code
        scene.want()
        await scene.until(lambda: scene.number == "7")
        await scene.looks()
        assert scene.ending is None and len(scene.cedar.handed_over) == 1

    play(story)


def test_attempt_that_was_to_be_stopped_is_not_handed_over_again() -> None:
    async def story(scene: Scene) -> None:
        scene.want()
        await scene.until(lambda: scene.number == "7")
        handover = scene.queue.wanted[KEY]
        handover.attempt = replace(handover.attempt, stop=True)
        scene.cedar.jobs[7] = "NODE_FAIL"
        await scene.until(lambda: scene.ending)
        assert len(scene.cedar.handed_over) == 1

    play(story)


@pytest.mark.parametrize(("elsewhere", "old"), [(KEY, {}), ("", {KEY: {}})])
def test_news_of_another_cluster_on_the_same_access_node_is_left_to_it(
    elsewhere: str, old: dict[str, dict[str, str]]
) -> None:
    async def story(scene: Scene) -> None:
        scene.queue.heard({"event": "handed", "news": {f"{KEY}-0": {"state": "running"}}})
        assert scene.queue.concluded == old

    play(story, wanted_elsewhere=elsewhere)
