"""What a job wrote for TensorBoard, as it is kept here."""

from pathlib import Path
from typing import Any, cast

from cli.stub import job
from towline.cli.event_files import EventFiles
from towline.client.session import Session


class Answers:
    """An Engine that knows one job."""

    def __init__(self, **facts: Any) -> None:
        self.view = job(state="done", **facts)

    def call(self, method: str, target: str) -> dict[str, Any]:
        return self.view


def kept(root: Path, **facts: Any) -> EventFiles:
    return EventFiles(cast("Session", Answers(**facts)), 12, "", str(root))


def test_runs_keep_the_names_that_the_job_itself_gave_them(tmp_path: Path) -> None:
    """Its own TensorBoard showed the folder that it worked in, not that of the whole tree."""
    home = tmp_path / "job_results/12"
    (home / "sub/runs").mkdir(parents=True)
    root = tmp_path / "root"
    root.mkdir()
    place = Path(kept(root, home={"kind": "home", "path": str(home)}, subfolder="sub").own_place())
    assert [child.name for child in place.iterdir()] == ["runs"]


def test_without_results_at_home_they_are_where_they_are_fetched_to(tmp_path: Path) -> None:
    files = kept(tmp_path, home={"kind": "none"}, subfolder="sub")
    assert files.own_place() == files.folder
