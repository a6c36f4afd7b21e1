"""Files of a job: listed, printed, brought here and sent there, safely."""

import json
from pathlib import Path
from typing import Any

import pytest

from cli.stub import Answer, Stub, answer, refusal, stream, unpacked
from testbed.tow import Tow
from towline.cli.pulling import local_place
from towline.errors import HostError


def entry(name: str, size: int = 4, mode: int = 0o644, kind: str = "file") -> dict[str, Any]:
    return {"name": name, "size": size, "mode": mode, "kind": kind, "mtime": 1000.0}


def fetched(*contents: bytes) -> Answer:
    """Whole files, in the order they were asked for."""
    return stream(
        *(({"file": index, "offset": 0, "last": True}, data) for index, data in enumerate(contents))
    )


def asked_for(stub: Stub) -> list[list[dict[str, Any]]]:
    """The files of each request."""
    asked = stub.asked_of("POST /v1/jobs/12/fetch")
    return [json.loads(one.body)["files"] for one in asked]


def walk(*entries: dict[str, Any]) -> Answer:
    return answer({"files": list(entries)})


def gathered(*entries: dict[str, Any]) -> Answer:
    """Files that are too long to come with their names."""
    return stream(({"files": list(entries)}, b""))


def with_contents(*files: tuple[dict[str, Any], bytes], broken: bool = False) -> Answer:
    """Short files that come with their names."""
    entries = [{**entry, "got": len(data)} for entry, data in files]
    return stream(({"files": entries}, b"".join(data for _, data in files)), broken=broken)


def test_ls_marks_folders_and_shows_sizes_when_asked(tow: Tow, stub: Stub) -> None:
    listed = {"entries": [entry("a.txt", 2048), entry("out", kind="dir")], "more": True}
    stub.on("GET /v1/jobs/12/files", answer(listed))
    done = tow("ls", "12", "some folder")
    assert done.stdout == "a.txt\nout/\n"
    assert "more files" in done.stderr
    assert stub.asked_of("GET /v1/jobs/12/files")[0].query == {"path": "some folder"}
    assert "rw-r--r--  2.0 KB" in tow("ls", "-l", "12").stdout
    assert tow.json("ls", "12") == listed


def test_cat_prints_the_bytes(tow: Tow, stub: Stub) -> None:
    stub.on("GET /v1/jobs/12/file", Answer(pieces=[b"one line\n", b"two lines\n"]))
    assert tow("cat", "12", "a b/雪&?.txt").stdout == "one line\ntwo lines\n"
    assert stub.asked_of("GET /v1/jobs/12/file")[0].query == {"path": "a b/雪&?.txt"}


def test_pull_brings_a_folder_with_its_modes_in_one_stream(tow: Tow, stub: Stub) -> None:
    stub.on("GET /v1/jobs/12/gather", gathered(entry("a.txt"), entry("sub/b.sh", mode=0o4755)))
    stub.on("POST /v1/jobs/12/fetch", fetched(b"text", b"TEXT"))
    done = tow("pull", "12", "out")
    assert (done.returncode, done.stdout) == (0, "2 files, 8 B\n")
    assert (tow.folder / "out/a.txt").read_text() == "text"
    assert (tow.folder / "out/sub/b.sh").read_text() == "TEXT"
    assert (tow.folder / "out/sub/b.sh").stat().st_mode & 0o7777 == 0o755
    asked = [{"path": path, "size": 4, "offset": 0} for path in ("out/a.txt", "out/sub/b.sh")]
    assert asked_for(stub) == [asked]
    assert sorted(path.name for path in tow.folder.rglob("*")) == ["a.txt", "b.sh", "out", "sub"]


def test_pull_brings_a_single_file_under_its_name_or_another(tow: Tow, stub: Stub) -> None:
    stub.on("GET /v1/jobs/12/gather", gathered(entry("", mode=0o600)))
    stub.on("POST /v1/jobs/12/fetch", fetched(b"text"))
    (tow.folder / "here").mkdir()
    for local in ([], ["other.csv"], ["here"]):
        assert tow("pull", "12", "out/r.csv", *local).returncode == 0
    for place in ("r.csv", "other.csv", "here/r.csv"):
        assert (tow.folder / place).read_text() == "text"
    assert asked_for(stub)[0][0]["path"] == "out/r.csv"


def test_short_files_come_with_their_names_in_one_round_trip(tow: Tow, stub: Stub) -> None:
    """Also when the Engine goes in the middle: what is here is not asked for again."""
    one, two = (entry("a", size=1), b"A"), (entry("d/b", mode=0o755), b"text")
    stub.on(
        "GET /v1/jobs/12/gather",
        with_contents(one, broken=True),
        with_contents(one, two, (entry("empty", size=0), b"")),
    )
    done = tow("pull", "12", "out")
    assert (done.returncode, done.stdout) == (0, "3 files, 5 B\n"), done.stderr
    found = {path.name: path.read_bytes() for path in tow.folder.rglob("*") if path.is_file()}
    assert found == {"a": b"A", "b": b"text", "empty": b""}
    assert (tow.folder / "out/d/b").stat().st_mode & 0o777 == 0o755
    assert asked_for(stub) == []


def test_a_short_file_never_replaces_a_different_one(tow: Tow, stub: Stub) -> None:
    files = with_contents(*((entry(name), b"text") for name in ("longer", "same", "other")))
    stub.on("GET /v1/jobs/12/gather", files, files)
    (tow.folder / "out").mkdir()
    for name, text in (("longer", "something else"), ("same", "text"), ("other", "MINE")):
        (tow.folder / "out" / name).write_text(text)
    done = tow("pull", "12", "out", ".")
    assert done.returncode == 2
    assert "out/longer" in done.stderr and "out/other" in done.stderr
    assert (tow.folder / "out/other").read_text() == "MINE"
    assert tow("pull", "--force", "12", "out").returncode == 0
    assert {path.read_text() for path in (tow.folder / "out").iterdir()} == {"text"}


def test_pull_never_overwrites_a_different_file_unless_forced(tow: Tow, stub: Stub) -> None:
    stub.on("GET /v1/jobs/12/gather", gathered(entry("longer"), entry("same"), entry("equal-size")))
    # The first is not even asked for: another length is another file.
    stub.on("POST /v1/jobs/12/fetch", fetched(b"text", b"text"), fetched(*[b"text"] * 3))
    here = tow.folder / "out"
    here.mkdir()
    (here / "longer").write_text("something else")
    (here / "same").write_text("text")
    (here / "equal-size").write_text("MINE")
    done = tow("pull", "12", "out", ".")
    assert done.returncode == 2
    assert "out/longer" in done.stderr and "out/equal-size" in done.stderr
    assert "out/same" not in done.stderr
    assert (here / "equal-size").read_text() == "MINE"
    assert tow("pull", "--force", "12", "out").returncode == 0
    assert {path.name: path.read_text() for path in here.iterdir()} == {
        "longer": "text",
        "same": "text",
        "equal-size": "text",
    }


def test_pull_goes_on_in_the_middle_of_a_file_after_the_engine_went(tow: Tow, stub: Stub) -> None:
    stub.on("GET /v1/jobs/12/gather", gathered(entry("a"), entry("b", size=6), entry("c")))
    begun = stream(
        ({"file": 0, "offset": 0, "last": True}, b"aaaa"),
        ({"file": 1, "offset": 0, "last": False}, b"bbb"),
        broken=True,
    )
    rest = stream(
        ({"file": 0, "offset": 3, "last": True}, b"BBB"),
        ({"file": 1, "offset": 0, "last": True}, b"cccc"),
    )
    stub.on("POST /v1/jobs/12/fetch", begun, rest)
    assert tow("pull", "12", "out").returncode == 0
    found = {path.name: path.read_text() for path in (tow.folder / "out").iterdir()}
    assert found == {"a": "aaaa", "b": "bbbBBB", "c": "cccc"}
    asked = [(file["path"], file["offset"]) for file in asked_for(stub)[1]]
    assert asked == [("out/b", 3), ("out/c", 0)]


def test_a_file_that_went_meanwhile_is_told_and_the_others_come(tow: Tow, stub: Stub) -> None:
    gone = {"code": "no_such_file", "text": "no such file: out/gone"}
    stub.on("GET /v1/jobs/12/gather", gathered(entry("gone"), entry("there")))
    frames = (
        ({"file": 0, "offset": 0, "last": True, "refused": gone}, b""),
        ({"file": 1, "offset": 0, "last": True}, b"text"),
    )
    stub.on("POST /v1/jobs/12/fetch", stream(*frames))
    done = tow("pull", "12", "out")
    assert done.returncode == 0 and "left out: no such file: out/gone" in done.stderr
    assert [path.name for path in (tow.folder / "out").iterdir()] == ["there"]


@pytest.mark.parametrize("name", ["../up", "a/../../up", "/etc/passwd", "a//b", "./a", "a\0b"])
def test_a_name_from_the_other_side_cannot_lead_out_of_the_folder(name: str) -> None:
    with pytest.raises(HostError):
        local_place("out", name)


def test_one_bad_name_means_that_nothing_is_brought(tow: Tow, stub: Stub) -> None:
    stub.on("GET /v1/jobs/12/gather", gathered(entry("good"), entry("../bad")))
    done = tow("pull", "12", "out")
    assert done.returncode == 1
    assert "cannot be used here" in done.stderr
    assert list(tow.folder.iterdir()) == []


def test_pull_does_not_write_through_a_link_that_is_here(
    tow: Tow, stub: Stub, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tow.folder / "out").mkdir()
    (tow.folder / "out/sub").symlink_to(outside)
    stub.on("GET /v1/jobs/12/gather", gathered(entry("sub/a.txt")))
    assert tow("pull", "12", "out", ".").returncode == 2
    assert list(outside.iterdir()) == []


def test_a_download_that_breaks_off_leaves_nothing_behind(tow: Tow, stub: Stub) -> None:
    stub.on("GET /v1/jobs/12/gather", gathered(entry("a.txt")))
    begun = ({"file": 0, "offset": 0, "last": False}, b"te")
    stub.on("POST /v1/jobs/12/fetch", stream(begun, broken=True), Answer(pieces=[], broken=True))
    done = tow("pull", "12", "out")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert [path for path in tow.folder.rglob("*") if path.is_file()] == []


def test_links_of_the_job_are_left_out_and_told(tow: Tow, stub: Stub) -> None:
    stub.on("GET /v1/jobs/12/gather", gathered(entry("a.txt"), entry("link", kind="link")))
    stub.on("POST /v1/jobs/12/fetch", fetched(b"text"))
    done = tow("pull", "12", ".")
    assert "links and special files are left out: 1" in done.stderr
    assert (tow.folder / "job-12/a.txt").exists()


def test_push_sends_a_file_with_its_mode_piece_by_piece(tow: Tow, stub: Stub) -> None:
    stub.on("POST /v1/jobs/12/store", answer({}))
    script = tow.folder / "run it.sh"
    script.write_bytes(b"\x00binary" * 100_000)
    script.chmod(0o750)
    assert tow("push", "12", "run it.sh").returncode == 0
    assert tow("push", "12", "run it.sh", "bin/").returncode == 0
    first, second = (unpacked(asked.body) for asked in stub.asked_of("POST /v1/jobs/12/store"))
    assert b"".join(data for _, data in first) == script.read_bytes()
    assert [(head["path"], head["mode"]) for head, _ in first] == [("run it.sh", 0o750)] * 3
    assert [head["offset"] for head, _ in first] == [0, 1 << 18, 2 << 18]
    assert [head["last"] for head, _ in first] == [False, False, True]
    assert second[0][0]["path"] == "bin/run it.sh"


@pytest.mark.parametrize("size", [0, (1 << 18) - 1, 1 << 18, (1 << 18) + 1])
def test_push_marks_the_last_piece_of_a_file_of_any_size(tow: Tow, stub: Stub, size: int) -> None:
    stub.on("POST /v1/jobs/12/store", answer({}))
    (tow.folder / "a").write_bytes(bytes(size))
    assert tow("push", "12", "a").returncode == 0
    frames = unpacked(stub.asked_of("POST /v1/jobs/12/store")[0].body)
    assert [head["last"] for head, _ in frames] == [False] * (len(frames) - 1) + [True]
    assert sum(len(data) for _, data in frames) == size


def test_push_sends_a_folder_and_leaves_special_files_out(tow: Tow, stub: Stub) -> None:
    import os

    stub.on("POST /v1/jobs/12/store", answer({}))
    (tow.folder / "data/deep").mkdir(parents=True)
    (tow.folder / "data/a").write_text("a")
    (tow.folder / "data/deep/b").write_text("b")
    os.mkfifo(tow.folder / "data/pipe")
    done = tow("push", "--json", "12", "data/", "inputs")
    assert done.returncode == 0
    assert "data/pipe is not a plain file: left out" in done.stderr
    frames = unpacked(stub.asked_of("POST /v1/jobs/12/store")[0].body)
    assert {head["path"]: data for head, data in frames} == {
        "inputs/a": b"a",
        "inputs/deep/b": b"b",
    }


def test_push_of_what_is_not_here_or_not_wanted_is_told(tow: Tow, stub: Stub) -> None:
    stub.on("POST /v1/jobs/12/store", refusal("that is outside the job's folder"))
    (tow.folder / "a").write_text("a")
    assert tow("push", "12", "missing").returncode == 2
    done = tow("push", "12", "a", "../../a")
    assert (done.returncode, done.stderr) == (2, "tow: that is outside the job's folder\n")


def test_pull_takes_patterns_as_a_shell_would_mean_them(tow: Tow, stub: Stub) -> None:
    stub.on("GET /v1/jobs/12/stat", refusal("no such file", code="not_found"))
    files = [entry("a.csv"), entry("b.csv"), entry("c.txt"), entry("sub/d.csv")]
    stub.on("GET /v1/jobs/12/walk", walk(*files))
    stub.on("POST /v1/jobs/12/fetch", fetched(b"text", b"text"))
    assert tow("pull", "12", "out/*.csv", "here").returncode == 0
    assert sorted(path.name for path in (tow.folder / "here").iterdir()) == ["a.csv", "b.csv"]
    assert [file["path"] for file in asked_for(stub)[0]] == ["out/a.csv", "out/b.csv"]
    done = tow("pull", "12", "out/*.png")
    assert done.returncode == 2 and "no file like out/*.png" in done.stderr


def test_a_file_whose_name_looks_like_a_pattern_is_pulled_by_its_name(tow: Tow, stub: Stub) -> None:
    stub.on("GET /v1/jobs/12/stat", answer({"kind": "file", "name": "a[1].csv"}))
    stub.on("GET /v1/jobs/12/gather", gathered(entry("")))
    stub.on("POST /v1/jobs/12/fetch", fetched(b"text"))
    assert tow("pull", "12", "a[1].csv").returncode == 0
    assert (tow.folder / "a[1].csv").read_text() == "text"
