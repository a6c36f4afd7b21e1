"""New folders of results are filled unseen, and get their names at once."""

import os
from pathlib import Path

import pytest

from towline.workspace.brought import decoded
from towline.workspace.parts import remove_parts
from towline.workspace.placing import Placer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "job_results" / "1"


@pytest.fixture
def placer(folder: Path) -> Placer:
    return Placer(str(folder), decoded(None), 1, 0o022)


def put(placer: Placer, folder: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        placer.place_whole(str(folder / name), content.encode(), 0o644)


def seen(folder: Path) -> dict[str, str]:
    """All files, with what is in them; nothing of ours lies about beside them."""
    assert [path.name for path in folder.parent.iterdir() if path.name.startswith(".t")] == []
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_text() for path in files}


def test_nothing_of_a_new_folder_is_seen_before_all_of_it(placer: Placer, folder: Path) -> None:
    files = {"made/a": "1", "made/deep/er/b": "22", "c": "333"}
    put(placer, folder, files)
    assert not folder.exists()
    placer.close()
    assert seen(folder) == files
    marks = placer.brought().files
    assert {name: mark.size for name, mark in marks.items()} == {
        "1/made/a": 1, "1/made/deep/er/b": 2, "1/c": 3,
    }  # fmt: skip
    for name, mark in marks.items():
        assert (folder.parent / name).stat().st_mtime_ns == mark.mtime_ns
    folders = (folder, folder / "made", folder / "made/deep", folder / "made/deep/er")
    assert set(map(str, folders)) <= set(placer.placed)
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o755}


def test_what_a_person_put_there_meanwhile_stays(placer: Placer, folder: Path) -> None:
    put(placer, folder, {"made/a": "ours", "made/b": "same", "c": "3"})
    (folder / "made").mkdir(parents=True)
    (folder / "made/a").write_text("theirs")
    (folder / "made/b").write_text("same")
    placer.close()
    assert seen(folder) == {"made/a": "theirs", "made/a.2": "ours", "made/b": "same", "c": "3"}
    assert [os.path.basename(newer) for _, newer in placer.conflicts] == ["a.2"]
    assert set(placer.brought().files) == {"1/made/a.2", "1/made/b", "1/c"}


def test_an_empty_folder_that_somebody_made_is_filled(placer: Placer, folder: Path) -> None:
    put(placer, folder, {"a": "1"})
    folder.mkdir()
    placer.close()
    assert seen(folder) == {"a": "1"}


def test_a_file_that_somebody_made_in_place_of_the_folder_stays(
    placer: Placer, folder: Path
) -> None:
    put(placer, folder, {"made/a": "1", "b": "2"})
    folder.write_text("mine")
    placer.close()
    assert folder.read_text() == "mine"
    assert sorted(placer.in_the_way) == [str(folder / "b"), str(folder / "made/a")]
    assert placer.brought().files == {}


def test_of_two_files_of_one_name_both_stay(placer: Placer, folder: Path) -> None:
    put(placer, folder, {"made/a": "1"})
    put(placer, folder, {"made/a": "other", "made/b": "2"})
    placer.close()
    assert seen(folder) == {"made/a": "1", "made/a.2": "other", "made/b": "2"}


def test_what_comes_in_pieces_or_is_a_link_goes_where_the_others_are(
    placer: Placer, folder: Path
) -> None:
    put(placer, folder, {"made/a": "1"})
    part = placer.begin(str(folder / "made/long"))
    part.write(b"long")
    placer.place(part, str(folder / "made/long"), 0o644)
    part.discard()
    put(placer, folder, {"new/b": "2"})
    placer.place_link(str(folder / "new/link"), "b")
    placer.close()
    assert seen(folder) == {"made/a": "1", "made/long": "long", "new/b": "2", "new/link": "2"}


def test_a_file_that_is_written_in_part_is_not_seen(
    placer: Placer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(placer, folder, {"a": "1"})
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda file, content: write(file, bytes(content)[:1]))
        with pytest.raises(OSError, match="written in part"):
            put(placer, folder, {"b": "22"})
    placer.close()
    assert seen(folder) == {"a": "1"}


def test_what_a_killed_engine_was_filling_is_removed(placer: Placer, folder: Path) -> None:
    put(placer, folder, {"made/a": "1"})
    placer.reveal()
    put(placer, folder, {"made/deep/b": "2"})
    other = Placer(str(folder.parent / "2"), decoded(None), 1, 0o022)
    put(other, folder.parent / "2", {"made/c": "3"})
    # Nothing was said of the end.
    assert remove_parts(str(folder)) == []
    assert seen(folder) == {"made/a": "1"}
    assert [path.name for path in (folder / "made").iterdir()] == ["a"]


def test_what_comes_after_the_end_is_not_hidden(placer: Placer, folder: Path) -> None:
    placer.close()
    put(placer, folder, {"made/a": "1"})
    assert seen(folder) == {"made/a": "1"}
