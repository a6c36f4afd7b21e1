"""What comes home replaces what came home before, and never what a person made of it."""

import os
from pathlib import Path

import pytest

from towline.workspace.brought import Brought, decoded
from towline.workspace.placing import InTheWay, Placer


class Home:
    """A `job_results` that attempts of one job bring their files to."""

    def __init__(self, top: Path) -> None:
        self.top = top / "job_results"
        self.folder = self.top / "1"
        self.brought = Brought("", {})

    def attempt(
        self, number: int, files: dict[str, str], umask: int = 0o022, complete: bool = True
    ) -> list[str]:
        """Bring these home; the names of what went beside something of a person's."""
        placer = Placer(str(self.folder), decoded(self.brought.encoded()), number, umask)
        for name, content in files.items():
            if content.startswith("-> "):
                placer.place_link(str(self.folder / name), content[3:])
            else:
                placer.place_whole(str(self.folder / name), content.encode(), 0o644)
        placer.close()
        if complete:
            placer.remove_older()
        self.brought = placer.brought()
        return [os.path.relpath(newer, self.folder) for _, newer in placer.conflicts]

    def seen(self) -> dict[str, str]:
        found = {}
        for path in sorted(self.folder.rglob("*")):
            if path.is_symlink():
                found[str(path.relative_to(self.folder))] = f"-> {os.readlink(path)}"
            elif path.is_file():
                found[str(path.relative_to(self.folder))] = path.read_text()
        return found


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_what_was_brought_and_not_touched_is_replaced(home: Home) -> None:
    assert home.attempt(1, {"out.csv": "partial", "link": "-> out.csv"}) == []
    assert home.attempt(2, {"out.csv": "good", "link": "-> other"}) == []
    assert home.seen() == {"out.csv": "good", "link": "-> other"}


def test_what_a_person_changed_stays_and_the_newer_copy_goes_beside_it(home: Home) -> None:
    home.attempt(1, {"out.csv": "partial", "notes": "x"})
    (home.folder / "out.csv").write_text("by hand")
    assert home.attempt(2, {"out.csv": "good", "notes": "x"}) == ["out.csv.2"]
    assert home.seen() == {"out.csv": "by hand", "out.csv.2": "good", "notes": "x"}
    # The copy beside it is ours: it is replaced again, not followed by a third.
    assert home.attempt(3, {"out.csv": "better"}) == ["out.csv.2"]
    assert home.seen() == {"out.csv": "by hand", "out.csv.2": "better"}


def test_a_change_that_keeps_size_and_content_is_told_from_one_that_does_not(home: Home) -> None:
    home.attempt(1, {"a": "12345", "b": "12345"})
    os.utime(home.folder / "a")
    (home.folder / "b").write_text("54321")
    assert home.attempt(2, {"a": "newer", "b": "newer"}) == ["b.2"]
    assert home.seen() == {"a": "newer", "b": "54321", "b.2": "newer"}


def test_what_only_an_earlier_attempt_made_goes_unless_a_person_changed_it(home: Home) -> None:
    home.attempt(1, {"deep/er/old": "1", "mine": "2", "kept": "3"})
    (home.folder / "mine").write_text("noted down")
    home.attempt(2, {"kept": "3"})
    assert home.seen() == {"mine": "noted down", "kept": "3"}
    assert not (home.folder / "deep").exists()


def test_what_the_same_attempt_brought_stays_though_the_job_removed_it(home: Home) -> None:
    home.attempt(1, {"checkpoint-1": "1"}, complete=False)
    home.attempt(1, {"checkpoint-2": "2"})
    assert home.seen() == {"checkpoint-1": "1", "checkpoint-2": "2"}


def test_a_folder_takes_the_place_of_an_older_file_and_the_other_way_round(home: Home) -> None:
    home.attempt(1, {"a": "file", "b/c": "below"})
    assert home.attempt(2, {"a/d": "below", "b": "file"}) == []
    assert home.seen() == {"a/d": "below", "b": "file"}


def test_a_file_of_a_persons_own_is_never_made_a_folder(home: Home) -> None:
    home.attempt(1, {"a": "file"})
    (home.folder / "a").write_text("mine")
    with pytest.raises(InTheWay):
        home.attempt(2, {"a/d": "below"})
    assert home.seen() == {"a": "mine"}


def test_what_cannot_be_remembered_is_taken_for_a_persons_own(home: Home) -> None:
    home.attempt(1, {"a": "1"})
    assert decoded(b"damaged") == decoded(None) == Brought("", {})
    home.brought = Brought("", {})
    assert home.attempt(2, {"a": "2"}) == ["a.2"]


def test_many_are_remembered_and_none_is_forgotten(home: Home) -> None:
    home.attempt(1, {f"f{n}": str(n) for n in range(300)})
    home.attempt(2, {"one": "1"})
    assert home.seen() == {"one": "1"}


def test_modes_follow_the_submitters_umask(home: Home) -> None:
    before = os.umask(0)
    try:
        home.attempt(1, {"deep/file": "1"}, umask=0o077)
    finally:
        os.umask(before)
    modes = [p.stat().st_mode & 0o777 for p in (home.folder / "deep/file", home.folder / "deep")]
    assert modes == [0o600, 0o700]


def test_git_does_not_see_results(home: Home) -> None:
    home.attempt(1, {"a": "1"})
    assert (home.top / ".gitignore").read_text() == "*\n"
