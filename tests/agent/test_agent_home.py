"""The folder of ours on a machine: what others do to it, and what we do not do to theirs."""

import os
import shutil
from pathlib import Path

from towline.agent.remote.clean import trash
from towline.agent.remote.home import Home
from towline.agent.remote.machine import unique

from .conftest import NewAgent


def test_a_folder_that_was_there_keeps_its_mode_and_what_we_make_is_private(
    new_agent: NewAgent, root: Path
) -> None:
    root.mkdir()
    root.chmod(0o755)
    assert new_agent().run("a", "true")["code"] == 0
    assert root.stat().st_mode & 0o777 == 0o755
    assert {folder.stat().st_mode & 0o777 for folder in root.iterdir()} == {0o700}


def test_a_job_whose_folder_is_removed_keeps_its_exit_code_and_others_start(
    new_agent: NewAgent, root: Path, tmp_path: Path
) -> None:
    agent = new_agent()
    go = tmp_path / "go"
    agent.start("a", "sh", "-c", f"until [ -e '{go}' ]; do sleep 0.05; done; exit 3")
    agent.wait_for(lambda: "a" in agent.started)
    shutil.rmtree(root)
    assert agent.call("probe")["raw"]["jobs"].keys() == {"a"}
    shutil.rmtree(root)
    assert agent.run("b", "true")["code"] == 0
    go.touch()
    assert agent.end_of("a")["code"] == 3
    assert new_agent().call("observe", keys=["a"])["states"]["a"]["ending"]["code"] == 3


def test_what_may_be_put_back_at_this_moment_is_not_removed(root: Path) -> None:
    home = Home(str(root))
    home.make()
    aside, old = root / "trash" / (trash.ASIDE + "now"), root / "trash/old"
    aside.touch()
    os.utime(aside, (5, 5))
    old.touch()
    for _ in trash.removals(home.trash):
        pass
    assert aside.exists() and not old.exists()
    trash.PUT_BACK_S, before = 0.0, trash.PUT_BACK_S
    try:
        for _ in trash.removals(home.trash):
            pass
    finally:
        trash.PUT_BACK_S = before
    assert not aside.exists()


def test_a_file_that_somebody_used_meanwhile_is_put_back(root: Path) -> None:
    home = Home(str(root))
    home.make()
    file = root / "used"
    file.write_text("x")
    assert not trash.thrown_away(home, str(file), before=file.stat().st_mtime - 1)
    assert file.read_text() == "x"
    assert trash.thrown_away(home, str(file), before=file.stat().st_mtime + 1)
    assert not file.exists() and not os.listdir(home.trash)


def test_names_of_what_is_being_written_are_never_the_same_twice() -> None:
    names = {unique() for _ in range(100)}
    assert len(names) == 100 and all(os.uname().nodename[:40] in name for name in names)
