"""What was sent ahead to a machine comes back from that very machine, or stays wanted there."""

from pathlib import Path

from msgspec.structs import replace

from backends.test_elsewhere import KEY, Scene, play

VOID = {"state": "ended", "ending": {"cause": "void", "text": "it never started"}}


def ahead(folder: Path, sent: bool = True) -> Scene:
    """Job 12 was sent ahead, or is about to be."""
    scene = Scene(folder)
    wanted = replace(scene.wanted, sent=sent, started=False, ahead=True, order=dict)
    scene.wanted = scene.driver.wanted[KEY] = wanted
    return scene


def test_all_that_are_asked_back_together_share_a_message(tmp_path: Path) -> None:
    async def scenario() -> None:
        scene = ahead(tmp_path)
        line = await scene.reaches("n1", {"state": "running"})
        other = replace(scene.wanted, key="e-13-1-0", job=13)
        scene.driver.wanted[other.key] = other
        line.known = VOID
        for key in (KEY, other.key):
            scene.driver.recall(key)
        await scene.settle()
        assert line.asked.count("void") == 1
        assert [ending.cause for ending in scene.endings()] == ["void", "void"]

    play(scenario)


def test_one_that_has_begun_meanwhile_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        scene = ahead(tmp_path)
        line = await scene.reaches("n1", {"state": "running"})
        scene.driver.recall(KEY)
        await scene.settle()
        assert line.asked[-1] == "void" and "stop" not in line.asked
        assert not scene.endings() and KEY in scene.driver.wanted

    play(scenario)


def test_one_that_was_not_sent_yet_comes_back_without_asking(tmp_path: Path) -> None:
    async def scenario() -> None:
        scene = ahead(tmp_path, sent=False)
        scene.driver.recall(KEY)
        assert [ending.cause for ending in scene.endings()] == ["void"]

    play(scenario)


def test_an_agent_that_does_not_know_it_never_begins_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        scene = ahead(tmp_path)
        line = await scene.reaches("n1", {"state": "unknown"})
        assert line.asked.count("void") == 1 and "start" not in line.asked

    play(scenario)


def test_another_machine_under_its_name_cannot_give_it_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        scene = ahead(tmp_path)
        line = await scene.reaches("n2", VOID)
        scene.driver.recall(KEY)
        await scene.settle()
        assert "void" not in line.asked
        assert not scene.endings() and KEY in scene.driver.wanted

    play(scenario)
