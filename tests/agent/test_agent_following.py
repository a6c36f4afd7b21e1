"""What a node does with a job that its queue started behind others: by their records."""

import json
from pathlib import Path
from typing import Any

import pytest

from towline.agent.remote.home import Home
from towline.agent.remote.node import following
from towline.agent.remote.node.attempt import Attempt


class Made(Attempt):
    """An attempt that was handed over behind others, as its node has it."""

    def __init__(self, root: Path, after: list[dict[str, Any]]) -> None:
        self.home = Home(str(root))
        self.order = {"after": after, "processes": 1}
        self.key, self.array, self.id, self.run = "e-9-1", "", "77", 0
        self.folder = self.home.handed(self.key)
        for folder in (self.folder, self.home.record("e-9-1-0"), self.home.news("e-9-1-0")):
            Path(folder).mkdir(parents=True)


def one(when: str, *keys: str, last: bool = True, batch: str = "", failed: bool = False) -> Any:
    attempts = [[key, 1, last] for key in keys]
    job = 0 if batch else int(keys[0].split("-")[1])
    return {"when": when, "job": job, "batch": batch, "failed": failed, "attempts": attempts}


def end(root: Path, key: str, code: int | None = 0, cause: str = "") -> None:
    folder = Path(Home(str(root)).record(f"{key}-0"))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "exit").write_text(json.dumps({"code": code, "cause": cause}))


FAILED = {"kind": "after", "job": 1, "batch": "", "state": "failed"}


@pytest.mark.parametrize(
    ("when", "code", "cause", "last", "does"),
    [
        ("ok", 0, "", True, ("run", {})),
        ("ok", 3, "", True, ("skip", FAILED)),
        ("any", 3, "", True, ("run", {})),
        ("failed", 3, "", True, ("run", {})),
        ("failed", 0, "", True, ("skip", FAILED | {"state": "done"})),
        ("ok", None, "stopped", False, ("skip", FAILED | {"state": "stopped"})),
        ("ok", None, "skipped", True, ("skip", FAILED | {"state": "skipped"})),
        ("ok", None, "lost", True, ("skip", FAILED | {"state": "lost"})),
        # Another attempt is made of these, which only the Engine knows of.
        ("any", 3, "", False, ("leave", {})),
        ("any", None, "void", True, ("leave", {})),
    ],
)
def test_how_another_ended_decides(
    tmp_path: Path, when: str, code: int | None, cause: str, last: bool, does: tuple[str, Any]
) -> None:
    attempt = Made(tmp_path, [one(when, "e-1-1", last=last)])
    end(tmp_path, "e-1-1", code, cause)
    assert following.decide(attempt, attempt.order["after"]) == does


def test_all_must_have_ended_and_one_that_ended_otherwise_is_enough(tmp_path: Path) -> None:
    attempt = Made(tmp_path, [one("ok", "e-1-1"), one("ok", "e-2-1")])
    after = attempt.order["after"]
    end(tmp_path, "e-1-1")
    assert following.decide(attempt, after) == ("wait", {})
    end(tmp_path, "e-2-1", 1)
    assert following.decide(attempt, after) == ("skip", FAILED | {"job": 2})


def test_a_batch_is_judged_as_a_whole(tmp_path: Path) -> None:
    attempt = Made(tmp_path, [one("ok", "e-1-1", "e-2-1", batch="sweep")])
    end(tmp_path, "e-1-1", 1)
    assert following.decide(attempt, attempt.order["after"])[0] == "wait"
    end(tmp_path, "e-2-1")
    assert following.decide(attempt, attempt.order["after"])[0] == "skip"
    end(tmp_path, "e-1-1")
    assert following.decide(attempt, attempt.order["after"])[0] == "run"
    assert following.decide(attempt, [one("ok", "e-1-1", batch="s", failed=True)])[0] == "skip"


def test_what_is_skipped_takes_the_claim_and_leaves_a_record(tmp_path: Path) -> None:
    attempt = Made(tmp_path, [one("ok", "e-1-1")])
    end(tmp_path, "e-1-1", 3)
    assert not following.may_run(attempt)
    told = json.loads(Path(attempt.home.record("e-9-1-0"), "exit").read_text())
    assert (told["cause"], told["because"]) == ("skipped", FAILED)
    assert Path(attempt.folder, "claim").exists()


def test_what_nobody_over_there_can_know_is_given_back_and_our_word_settles_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "PATIENCE_S", 0.0)
    attempt = Made(tmp_path, [one("ok", "e-1-1")])
    assert not following.may_run(attempt)
    assert Path(attempt.folder, "returned").read_text() == "77\n"
    assert not Path(attempt.folder, "claim").exists()
    Path(attempt.folder, "go").touch()
    assert following.may_run(attempt)
