"""`combine_folders`: everything is taken, or nothing is written."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.tow import Tow
from towline.cli.compat.combining import combine
from towline.errors import TowlineError

#: A tree: path -> content of a file, target of a link, or None for an empty folder.
Tree = dict[str, bytes | str | None]

NAMES = st.sampled_from(["a", "b", "c", "ü 雪", "-x"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
THINGS = st.one_of(st.sampled_from([b"", b"1", b"2"]), st.sampled_from(["a", "../b"]), st.none())


def fits(tree: Tree) -> Tree:
    """Without what lies below a file or a link."""
    kept: Tree = {}
    for path in sorted(tree):
        above = [path.rpartition("/")[0]]
        while "/" in above[-1]:
            above.append(above[-1].rpartition("/")[0])
        if all(kept.get(folder) is None for folder in above):
            kept[path] = tree[path]
    return kept


TREES = st.lists(st.dictionaries(PATHS, THINGS, max_size=5).map(fits), min_size=1, max_size=4)


def grow(folder: Path, tree: Tree) -> str:
    folder.mkdir(parents=True)
    for path, thing in tree.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if thing is None:
            place.mkdir(exist_ok=True)
        elif isinstance(thing, str):
            place.symlink_to(thing)
        else:
            place.write_bytes(thing)
    return str(folder)


def seen(folder: str | Path) -> Tree:
    """What is in a folder; every folder counts, and one that is not there is empty."""
    found: Tree = {}
    for place, folders, names in os.walk(folder):
        for name in [*folders, *names]:
            path = Path(place, name)
            inside = str(path.relative_to(folder))
            if path.is_symlink():
                found[inside] = os.readlink(path)
            else:
                found[inside] = None if path.is_dir() else path.read_bytes()
    return found


@settings(max_examples=60, deadline=None)
@given(trees=TREES, before=st.booleans())
def test_all_is_taken_or_nothing_is_written(trees: list[Tree], before: bool) -> None:
    with tempfile.TemporaryDirectory() as top:
        sources = [grow(Path(top, f"src{n}"), tree) for n, tree in enumerate(trees)]
        dest = sources.pop(0) if before else os.path.join(top, "deep", "dest")
        wanted: Tree = {}
        agree = True
        for source in [*([dest] if before else []), *sources]:
            for path, thing in seen(source).items():
                agree = agree and wanted.setdefault(path, thing) == thing
        untouched = seen(top)
        if agree:
            combine(dest, sources)
            assert seen(dest) == wanted
            assert {path for path in seen(top) if "combining" in path} == set()
            combine(dest, sources)
            assert seen(dest) == wanted
        else:
            with pytest.raises(TowlineError) as caught:
                combine(dest, sources)
            assert caught.value.hint == "nothing was written"
            assert seen(top) == untouched


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def told(dest: str, *sources: str) -> str:
    with pytest.raises(TowlineError) as caught:
        combine(dest, list(sources))
    return caught.value.text


def test_both_of_two_that_differ_are_named(folders: Path) -> None:
    grow(folders / "a", {"x/same": b"1", "x/other": b"1", "y": b"1", "l": "p"})
    grow(folders / "b", {"x/same": b"1", "x/other": b"2", "y/z": b"1", "l": "q"})
    lines = told("dest", "a", "b").splitlines()
    assert sorted(map(str.strip, lines)) == [
        "a/l and b/l are different",
        "a/x/other and b/x/other are different",
        "a/y is a file, but b/y is a folder",
    ]
    assert not (folders / "dest").exists()


def test_of_very_many_differences_the_first_are_told(folders: Path) -> None:
    grow(folders / "a", {str(n): b"1" for n in range(30)})
    grow(folders / "b", {str(n): b"2" for n in range(30)})
    assert told("dest", "a", "b").endswith("and 20 more")


def test_a_destination_cannot_be_inside_a_source(folders: Path) -> None:
    grow(folders / "a", {"x": b"1"})
    (folders / "link").symlink_to("a")
    assert "inside a" in told("a/dest", "a")
    assert "inside link" in told("a/dest", "link")
    assert seen("a") == {"x": b"1"}


def test_a_destination_that_is_a_file_is_refused(folders: Path) -> None:
    grow(folders / "a", {"x": b"1"})
    Path("dest").write_bytes(b"mine")
    assert told("dest", "a") == "dest is not a folder"
    assert Path("dest").read_bytes() == b"mine"


def test_a_source_that_is_the_destination_changes_nothing(folders: Path) -> None:
    grow(folders / "all", {"x": b"1"})
    grow(folders / "b", {"y": b"1"})
    assert combine("all", ["all", "b", "b"]) == (1, 2)


def test_pipes_and_sockets_are_refused(folders: Path) -> None:
    grow(folders / "a", {"x": b"1"})
    os.mkfifo("a/pipe")
    assert told("dest", "a") == "a/pipe is neither a file nor a folder nor a link"


def test_modes_and_times_of_files_are_kept(folders: Path) -> None:
    grow(folders / "a", {"x/tool": b"1"})
    os.chmod("a/x/tool", 0o750)
    os.utime("a/x/tool", (1, 2))
    combine("dest", ["a"])
    facts = os.stat("dest/x/tool")
    assert (facts.st_mode & 0o777, facts.st_mtime) == (0o750, 2)


def test_what_cannot_be_written_leaves_nothing_behind(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow(folders / "a", {"x": b"1", "y/z": b"1"})
    grow(folders / "dest", {"mine": b"1"})
    before = seen(folders)
    rename = os.rename

    def full(source: str, target: str) -> None:
        if target.endswith("z") or target.endswith("new"):
            raise OSError(28, "No space left on device", target)
        rename(source, target)

    monkeypatch.setattr(os, "rename", full)
    for dest in ("dest", "far/away/new"):
        with pytest.raises(OSError, match="No space left"):
            combine(dest, ["a"])
        assert seen(folders) == before


def test_typed_it_says_what_was_done(tow: Tow) -> None:
    grow(tow.folder / "a", {"x": b"1"})
    grow(tow.folder / "b", {"x": b"1", "y": b"1"})
    tow.program = [tow.program[0], "-m", "towline.cli.compat.combine_folders"]
    done = tow("dest", "a", "b")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "dest has 2 files, 2 of them new\n"
    (tow.folder / "a" / "y").write_text("other")
    done = tow("dest", "a", "b")
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == "combine_folders: dest/y and a/y are different"
