"""Only some paths of a folder travel, because they were named."""

from pathlib import Path

import pytest

from snapshot.conftest import git
from towline.config.settings import SnapshotSettings
from towline.errors import UsageError
from towline.snapshot.folder import list_tree, only_these


def found(folder: Path, *only: str, exclude: tuple[str, ...] = ()) -> list[str]:
    tree = list_tree(str(folder), only_these(SnapshotSettings(exclude=list(exclude)), only))
    assert (tree.root, tree.subfolder) == (str(folder), "")
    return sorted(tree.found)


@pytest.fixture
def project(repo: Path) -> Path:
    """A repository with a folder in it that holds what git ignores."""
    project = repo / "project"
    for path in ("data/big.bin", "data/empty/", "a.py", "other.py", "nested/.git/HEAD"):
        place = project / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.mkdir() if path.endswith("/") else place.touch()
    (project / "nested" / "in").touch()
    (project / "job_results" / "1").mkdir(parents=True)
    (project / "link").symlink_to("data")
    (repo / ".gitignore").write_text("data\n")
    git(repo, "add", "-A", "--", ".gitignore")
    return project


def test_named_paths_travel_though_git_ignores_them_and_nothing_else_does(project: Path) -> None:
    assert found(project, "data", "a.py") == ["a.py", "data/big.bin", "data/empty"]
    assert found(project, "./data/big.bin", "link") == ["data/big.bin", "link"]
    assert found(project) == []


def test_a_point_stands_for_everything_but_results_and_git(project: Path) -> None:
    assert found(project, ".") == [
        "a.py",
        "data/big.bin",
        "data/empty",
        "link",
        "nested/in",
        "other.py",
    ]


def test_what_is_left_out_on_purpose_stays_unless_it_is_named_itself(project: Path) -> None:
    (project / ".towignore").write_text("*.bin\n")
    assert found(project, "data", "other.py", exclude=("other.py",)) == ["data/empty", "other.py"]
    assert found(project, "data/big.bin") == ["data/big.bin"]


@pytest.mark.parametrize("path", ["..", "../other", "/etc", "link/big.bin", "a/../../x"])
def test_nothing_outside_can_be_named(project: Path, path: str) -> None:
    with pytest.raises(UsageError, match="is not inside"):
        found(project, path)


def test_what_is_not_there_is_told(project: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no gone\.py in"):
        found(project, "gone.py")


def test_all_of_the_home_folder_is_refused_but_a_part_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "part").touch()
    assert found(tmp_path, "part") == ["part"]
    with pytest.raises(UsageError, match="your home folder"):
        found(tmp_path, ".")
