"""What a job sees of a team's data on its machine: only what is really there, and as it may."""

from pathlib import Path
from typing import Any

import pytest

from towline.agent.remote.content import team_data
from towline.agent.remote.refusal import Refusal


def data_at(root: Path) -> dict[str, Any]:
    return {
        "root": str(root),
        "mark": ".mark-x",
        "word": "secret",
        "places": {
            "SHARED_DIR": [f"{root}/shared", "ro"],
            "USER_DIR": [f"{root}/home/ann", "rw"],
        },
    }


def test_a_job_is_told_of_the_data_if_the_mark_is_there(tmp_path: Path) -> None:
    (tmp_path / ".mark-x").write_text("secret")
    spec: dict[str, Any] = {"data": team_data.checked_data(data_at(tmp_path))}
    team_data.settle(spec)
    assert team_data.variables(spec) == {
        b"SHARED_DIR": f"{tmp_path}/shared".encode(),
        b"USER_DIR": f"{tmp_path}/home/ann".encode(),
    }
    assert "box" not in spec


@pytest.mark.parametrize("mark", [None, "another", "secret and more"])
def test_without_the_mark_there_is_no_variable(tmp_path: Path, mark: str | None) -> None:
    if mark is not None:
        (tmp_path / ".mark-x").write_text(mark)
    spec: dict[str, Any] = {"data": data_at(tmp_path), "box": {"network": "own", "binds": []}}
    team_data.settle(spec)
    assert team_data.variables(spec) == {}
    assert spec["box"]["binds"] == []


def test_walls_let_through_what_the_job_may_see_with_its_rights(tmp_path: Path) -> None:
    (tmp_path / ".mark-x").write_text("secret")
    own = ["/sw", "/sw", "ro"]
    spec: dict[str, Any] = {"data": data_at(tmp_path), "box": {"network": "own", "binds": [own]}}
    team_data.settle(spec)
    home, shared = f"{tmp_path}/home/ann", f"{tmp_path}/shared"
    assert spec["box"] == {
        "network": "own",
        "binds": [own, [home, home, "rw"], [shared, shared, "ro"]],
    }


@pytest.mark.parametrize(
    "wrong",
    [
        {"root": "relative"},
        {"root": "/a/../b"},
        {"mark": "../up"},
        {"word": 1},
        {"places": []},
        {"places": {"PATH": ["/r/x", "rw"]}},
        {"places": {"USER_DIR": ["/elsewhere", "rw"]}},
        {"places": {"USER_DIR": ["/r/../etc", "rw"]}},
        {"places": {"USER_DIR": ["/r/x", "rx"]}},
        {"places": {"USER_DIR": "/r/x"}},
    ],
)
def test_what_leads_elsewhere_is_refused(wrong: dict[str, Any]) -> None:
    assert team_data.checked_data(None) is None
    with pytest.raises(Refusal):
        team_data.checked_data({**data_at(Path("/r")), **wrong})
