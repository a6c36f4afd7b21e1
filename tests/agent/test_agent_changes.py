"""Unchanged files are told from changed ones on coarse clocks, and when a clock is put back."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.waiting import wait_until
from towline.agent.remote.content import changes, trees
from towline.agent.remote.home import Home

from .test_agent_trees import digest

SECOND_NS = 1_000_000_000
LARGE = bytes(70_000_000)


class Tree:
    """The folder of a job on a machine, with the files that it started with."""

    def __init__(self, root: Path) -> None:
        self.home = Home(str(root))
        self.home.make()
        os.mkdir(self.home.new_record("a"))
        self.place = self.home.place("a")
        self.source = Path(self.place.job) / "src"
        self.spec: dict[str, Any] = {"cwd": "", "folder": "", "snapshot": "", "links": {}}

    def make(self, **files: bytes) -> None:
        """As a supervisor makes it, before the command starts."""
        entries = []
        for name, content in sorted(files.items()):
            place = Path(self.home.blob(digest(content)))
            place.parent.mkdir(exist_ok=True)
            place.write_bytes(content)
            entries.append([name, "f", digest(content)])
        self.spec["snapshot"] = digest(trees.canonical(entries))
        trees.store_snapshot(self.home, self.spec["snapshot"], entries)
        self.source.mkdir(parents=True)
        changes.begin(self.place.record)
        largest = trees.make_tree(self.home, entries, str(self.source), lambda: None)
        changes.complete(self.place.record, largest, lambda: None)

    def changed(self) -> list[str]:
        found = changes.changed(self.home, self.place, self.spec)
        return sorted(entry["name"] for entry in found)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "root")


class CoarseClock:
    """`os`, on a file system that counts whole seconds."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def coarse(self, facts: os.stat_result) -> Any:
        whole = {name: getattr(facts, name) for name in dir(facts) if name.startswith("st_")}
        for name in ("st_mtime_ns", "st_ctime_ns"):
            whole[name] -= whole[name] % SECOND_NS
        return SimpleNamespace(**whole)

    def stat(self, path: str) -> Any:
        return self.coarse(os.stat(path))

    def lstat(self, path: str) -> Any:
        return self.coarse(os.lstat(path))


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of files that are read to be compared."""
    names: list[str] = []
    hash_of = changes.hash_of

    def noting(path: str) -> Any:
        names.append(os.path.basename(path))
        return hash_of(path)

    monkeypatch.setattr(changes, "hash_of", noting)
    return names


def test_a_large_file_that_came_last_is_neither_a_result_nor_read_again(
    tree: Tree, compared: list[str]
) -> None:
    tree.make(a=b"small", zz=LARGE)
    assert tree.changed() == []
    assert "zz" not in compared


def test_on_a_coarse_clock_large_files_are_no_results_either(
    tree: Tree, compared: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "os", CoarseClock())
    tree.make(a=b"small", zz=LARGE)
    assert tree.changed() == []
    assert "zz" not in compared


def test_on_a_coarse_clock_what_changes_at_once_is_a_result(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "os", CoarseClock())
    tree.make(a=b"one", b=b"two")
    (tree.source / "a").write_bytes(b"1ne")
    (tree.source / "new").touch()
    assert tree.changed() == ["a", "new"]


def test_a_large_file_that_was_only_touched_is_no_result_and_a_changed_one_is(tree: Tree) -> None:
    tree.make(a=LARGE, b=LARGE)
    os.utime(tree.source / "a")
    with open(tree.source / "b", "r+b") as file:
        file.write(b"x")
    assert tree.changed() == ["b"]


def test_a_clock_that_is_put_back_hides_nothing(tree: Tree) -> None:
    tree.make(a=b"one", b=b"two", c=b"three")
    (tree.source / "a").write_bytes(b"1ne")
    (tree.source / "new").touch()
    changed_ns = (tree.source / "new").stat().st_ctime_ns

    def made_later() -> bool:
        changes.begin(tree.place.record)
        return os.stat(tree.place.record + changes.MARK).st_mtime_ns > changed_ns

    # As if the tree had been made later than this, by a clock that was put back since.
    wait_until(made_later)
    changes.complete(tree.place.record, changes.LARGE + 1, lambda: None)
    assert tree.changed() == ["a", "new"]


def test_a_clock_that_is_put_back_into_the_time_in_which_the_tree_was_made_hides_nothing(
    tree: Tree,
) -> None:
    tree.make(a=b"one", b=b"two", c=b"three")
    (tree.source / "a").write_bytes(b"1ne")
    changes.complete(tree.place.record, changes.LARGE + 1, lambda: None)
    assert tree.changed() == []
    mark = Path(tree.place.record + changes.MARK)
    ahead, times = float(mark.read_bytes()), (mark.stat().st_atime, mark.stat().st_mtime)
    mark.write_bytes(b"%.6f" % (ahead + 3600.0))
    os.utime(mark, times)
    assert tree.changed() == ["a"]


def test_small_jobs_do_not_wait_for_a_clock(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes.time, "sleep", lambda seconds: pytest.fail("it waits"))
    tree.make(a=b"one", b=b"two")
    assert tree.changed() == []


def test_what_an_older_version_marked_and_listed_is_understood(tree: Tree) -> None:
    tree.make(a=b"one")
    Path(tree.place.record + changes.MARK).write_bytes(b"")
    (tree.source / "new").touch()
    assert tree.changed() == ["new"]
    Path(tree.place.record + changes.LIST).write_text('[{"name": "x"}, {"name": "y"}]')
    found = changes.page(tree.home, tree.place, tree.spec, 0)
    assert found == ([{"name": "x"}, {"name": "y"}], None)


@pytest.mark.parametrize("ended", [True, False])
def test_a_long_list_is_told_in_pages(
    tree: Tree, ended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "MOST", 3)
    tree.make(a=b"one")
    for number in range(10):
        (tree.source / f"made-{number}").touch()
    if ended:
        assert changes.keep(tree.home, tree.place, tree.spec) == 10
    names: list[str] = []
    after: int | None = 0
    while after is not None:
        found, after = changes.page(tree.home, tree.place, tree.spec, after)
        assert len(found) <= 3
        names += [entry["name"] for entry in found]
    assert sorted(names) == [f"made-{number}" for number in range(10)]


def test_the_last_page_of_a_list_is_told_as_the_last(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "MOST", 3)
    tree.make(a=b"one")
    for number in range(6):
        (tree.source / f"made-{number}").touch()
    assert changes.keep(tree.home, tree.place, tree.spec) == 6
    _, after = changes.page(tree.home, tree.place, tree.spec, 0)
    assert after is not None
    found, after = changes.page(tree.home, tree.place, tree.spec, after)
    assert (len(found), after) == (3, None)


def test_a_list_that_does_not_fit_on_the_disk_is_made_when_it_is_asked_for(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.make(a=b"one")
    (tree.source / "made").touch()
    monkeypatch.setattr(changes, "LIST", "/no/such/folder/changed")
    assert changes.keep(tree.home, tree.place, tree.spec) == -1
    [entry], following = changes.page(tree.home, tree.place, tree.spec, 0)
    assert (entry["name"], following) == ("made", None)


def test_a_long_list_for_which_there_is_no_room_at_all_is_told_in_pages(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "MOST", 3)
    tree.make(a=b"one")
    for number in range(9):
        (tree.source / f"made-{number}").touch()
    for name in ("LIST", "LIST_SO_FAR"):
        monkeypatch.setattr(changes, name, "/no/such/folder/changed")
    names: list[str] = []
    after: int | None = 0
    while after is not None:
        found, after = changes.page(tree.home, tree.place, tree.spec, after)
        names += [entry["name"] for entry in found]
    assert sorted(names) == [f"made-{number}" for number in range(9)]
