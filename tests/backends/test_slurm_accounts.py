"""What the accounts say counts where the controller has forgotten a job; their silence does not."""

import asyncio
from typing import Any, cast

from msgspec.structs import replace

from backends.test_slurm_queue import KEY, Cedar, Scene
from towline.agent.link import Link
from towline.backends.machines.driver import Driver
from towline.backends.queue.commands import Commands
from towline.backends.queue.handover import Handover
from towline.backends.queue.state import Attempt, Place
from towline.backends.queue.times import Times
from towline.backends.slurm.dialect import SlurmDialect
from towline.model.events import AttemptWaits

FOLDER = f"/home/me/.towline/handed/{KEY}"


class Accounted(Cedar):
    """The same Slurm with accounts."""

    def __init__(self) -> None:
        super().__init__()
        #: What sacct prints; None: it gets no answer.
        self.accounts: str | None = None
        self.asked: list[str] = []

    def _call(self, fields: dict[str, Any]) -> dict[str, Any]:
        if fields["argv"][0] != "sacct":
            return super()._call(fields)
        self.asked.append(next(word for word in fields["argv"] if word.startswith("--jobs=")))
        if self.accounts is None:
            error = "sacct: error: Problem talking to the database: Connection refused"
            return {"code": 1, "out": "", "err": error}
        return {"code": 0, "out": self.accounts, "err": ""}


class AccountedScene(Scene):
    times = Times(often_s=0.01, soon_s=0.01, settle_s=0.0, race_s=0.0, forgotten_s=0.0)

    def __init__(self) -> None:
        super().__init__()
        self.cedar: Accounted = Accounted()
        self.queue.driver.link = cast("Link", self.cedar)

    async def hand_over_and_forget(self) -> None:
        self.want()
        await self.until(lambda: self.number == "7")
        await self.until(lambda: self.queue.wanted[KEY].attempt.known_at)
        del self.cedar.jobs[7]


def play(story: Any) -> None:
    async def whole() -> None:
        scene = AccountedScene()
        try:
            await story(scene)
        finally:
            scene.queue.close()

    asyncio.run(whole())


def test_silent_accounts_are_waited_for() -> None:
    async def story(scene: AccountedScene) -> None:
        await scene.hand_over_and_forget()
        await scene.until(lambda: "accounts do not answer" in scene.reasons[-1])
        await scene.until(lambda: len(scene.cedar.asked) > 3)
        assert scene.ending is None
        scene.cedar.accounts = f"7|CANCELLED by 7|0:0|Unknown|None assigned|{FOLDER}\n"
        await scene.until(lambda: scene.ending)
        ending: Any = scene.ending
        assert (ending.cause, ending.text) == ("cancelled", "cancelled in Slurm")
        assert len(scene.cedar.handed_over) == 1

    play(story)


def test_accounts_that_never_hear_of_an_end_are_not_waited_for_for_ever() -> None:
    async def story(scene: AccountedScene) -> None:
        scene.cedar.accounts = f"7|PENDING|0:0|Unknown|None assigned|{FOLDER}\n"
        await scene.hand_over_and_forget()
        await scene.until(lambda: "have not heard" in scene.reasons[-1])
        scene.queue.table.times = replace(scene.times, accounts_s=0.0)
        await scene.until(lambda: len(scene.cedar.handed_over) == 2)

    play(story)


def test_account_of_another_job_with_the_same_number_is_not_taken_for_ours() -> None:
    async def story(scene: AccountedScene) -> None:
        scene.cedar.accounts = "7|FAILED|5:0|Unknown|h2|/home/me\n"
        await scene.hand_over_and_forget()
        await scene.until(lambda: len(scene.cedar.handed_over) == 2)
        assert scene.ending is None

    play(story)


def test_job_is_not_handed_over_again_where_the_controller_soon_forgets_what_ended() -> None:
    async def story(scene: AccountedScene) -> None:
        scene.cedar.accounts = ""
        scene.queue.watcher.remembered_s = 0.0
        await scene.hand_over_and_forget()
        await scene.until(lambda: scene.ending)
        assert scene.ending.cause == "lost"
        assert len(scene.cedar.handed_over) == 1

    play(story)


def test_job_that_ran_is_lost_and_never_run_again_when_its_folders_are_gone() -> None:
    async def story(scene: AccountedScene) -> None:
        scene.cedar.accounts = ""
        never = cast("Any", None)
        ran = Attempt(KEY, 1, 1, 1, "Slurm", Place.CLAIMED, started=frozenset({0}))
        scene.queue.want(Handover(ran, never, never))
        await scene.until(lambda: scene.ending)
        assert scene.ending.cause == "lost"
        assert not scene.cedar.handed_over
        assert not [fact for fact in scene.facts if isinstance(fact, AttemptWaits)]

    play(story)


def test_many_forgotten_jobs_are_asked_for_in_few_calls() -> None:
    cedar = Accounted()
    cedar.accounts = ""
    commands = Commands(cast("Driver", None), SlurmDialect())
    asyncio.run(commands.recall(cast("Link", cedar), [str(n) for n in range(1200)]))
    asyncio.run(commands.recall(cast("Link", cedar), [f"3000_{n}" for n in range(1200)]))
    assert [len(asked.split(",")) for asked in cedar.asked] == [500, 500, 200, 1]
