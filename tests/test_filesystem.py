"""`tow://`: a job's files for programs that know fsspec, in front of a real Engine."""

import errno
import re
import subprocess
import sys

import fsspec
import pytest

from e2e.jobs import ended, submit
from testbed.tow import Tow
from towline.client.session import ApiError, Session
from towline.client.transport import Reply
from towline.filesystem import PIECE

SIZE = 8 << 20
MAKE = f"""\
mkdir -p out folder
head -c {SIZE} /dev/urandom > big
printf 'lr,loss\\n0.1,0.7\\n' > out/metrics.csv
touch empty "$(printf 'n\\377me')"
ln -s ../big out/inside
ln -s ../folder out/to-folder
ln -s /etc/passwd out/outside
"""


class Travelled:
    """How many bytes of answers the client has read."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        read = Reply.read

        def counted(reply: Reply, *limit: int) -> bytes:
            piece = read(reply, *limit)
            self.bytes += len(piece)
            return piece

        patch.setattr(Reply, "read", counted)


@pytest.fixture
def job(tow: Tow) -> int:
    number = submit(tow, "--no-results", "-t", "made", "sh", "-c", MAKE)
    assert ended(tow, number)["state"] == "done"
    return number


@pytest.fixture
def big(tow: Tow, job: int) -> bytes:
    """The big file's bytes."""
    content: bytes = fsspec.filesystem("tow").cat_file(f"tow://{job}/big")
    assert len(content) == SIZE
    return content


@pytest.fixture
def travelled(monkeypatch: pytest.MonkeyPatch) -> Travelled:
    return Travelled(monkeypatch)


@pytest.mark.parametrize("name", ["1", "last", "made"])
@pytest.mark.usefixtures("job")
def test_any_fsspec_program_opens_a_file_by_its_address(name: str) -> None:
    with fsspec.open(f"tow://{name}/out/metrics.csv", "rt") as file:
        assert file.read().splitlines() == ["lr,loss", "0.1,0.7"]
    with fsspec.open(f"tow://{name}/empty") as file:
        assert file.read() == b""


def test_only_the_range_that_is_asked_for_travels(
    job: int, big: bytes, travelled: Travelled
) -> None:
    files = fsspec.filesystem("tow")
    start, end = 5_000_000, 5_000_100
    travelled.bytes = 0
    assert files.cat_file(f"tow://{job}/big", start, end) == big[start:end]
    assert travelled.bytes == end - start
    several_pieces = 3 * PIECE + 17
    assert files.cat_file(f"tow://{job}/big", 1, several_pieces) == big[1:several_pieces]
    assert files.cat_file(f"tow://{job}/big", SIZE - 5, SIZE + 100) == big[-5:]
    assert files.cat_file(f"tow://{job}/big", -7) == big[-7:]
    assert files.cat_file(f"tow://{job}/big", SIZE + 5, SIZE + 6) == b""


def test_open_file_is_read_where_it_is_read(job: int, big: bytes, travelled: Travelled) -> None:
    with fsspec.open(f"tow://{job}/big") as file:
        travelled.bytes = 0
        file.seek(SIZE // 2)
        assert file.read(10) == big[SIZE // 2 : SIZE // 2 + 10]
        assert travelled.bytes <= PIECE + 10
        file.seek(-10, 2)
        assert file.read() == big[-10:]


def test_folders_are_listed_and_searched(job: int) -> None:
    files = fsspec.filesystem("tow")
    found = {entry["name"]: entry for entry in files.ls(f"tow://{job}")}
    assert found[f"{job}/big"]["size"] == SIZE
    assert found[f"{job}/out"]["type"] == "directory"
    assert f"{job}/n\udcffme" in found
    assert files.glob("tow://*/out/*.csv") == [f"{job}/out/metrics.csv"]
    assert files.ls(f"tow://{job}/big", detail=False) == [f"{job}/big"]
    assert files.ls("tow://", detail=False) == [str(job)]
    assert files.isdir(f"tow://{job}") and files.isfile(f"tow://{job}/empty")
    assert not files.exists(f"tow://{job}/no-such")
    assert files.modified(f"tow://{job}/big").tzinfo is not None


def test_links_are_followed_inside_the_folder_and_nowhere_else(job: int) -> None:
    files = fsspec.filesystem("tow")
    kinds = {entry["name"]: entry["type"] for entry in files.ls(f"tow://{job}/out")}
    assert kinds[f"{job}/out/inside"] == "file"
    assert kinds[f"{job}/out/to-folder"] == "directory"
    assert kinds[f"{job}/out/outside"] == "link"
    for path in ("out/outside", "../../../../../../../etc/passwd", "/etc/passwd"):
        with pytest.raises(FileNotFoundError):
            files.cat_file(f"tow://{job}/{path}", 0, 10)


def test_what_is_not_there_is_said_as_programs_expect_it(job: int) -> None:
    files = fsspec.filesystem("tow")
    with pytest.raises(FileNotFoundError, match="no-such"):
        files.open(f"tow://{job}/no-such")
    with pytest.raises(FileNotFoundError, match="there is no job 99"):
        files.open("tow://99/out")
    with pytest.raises(IsADirectoryError):
        files.open(f"tow://{job}/out")


def test_nothing_can_be_written(job: int) -> None:
    files = fsspec.filesystem("tow")
    for attempt in (
        lambda: files.open(f"tow://{job}/new", "wb"),
        lambda: files.mkdir(f"tow://{job}/new"),
        lambda: files.rm(f"tow://{job}/big"),
        lambda: files.touch(f"tow://{job}/empty"),
    ):
        with pytest.raises(OSError, match=re.escape(f"tow://{job}/")) as refusal:
            attempt()
        assert refusal.value.errno == errno.EROFS


def test_engine_is_started_for_a_program(tow: Tow, job: int) -> None:
    assert tow("engine", "stop").returncode == 0
    program = (
        f"import fsspec; print(fsspec.open('tow://{job}/out/metrics.csv', 'rt').open().read())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=tow.env, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout.split(), done.stderr) == (["lr,loss", "0.1,0.7"], "")


def test_range_of_the_api_tells_the_length_of_the_whole_and_refuses_nonsense(job: int) -> None:
    with Session().open("GET", f"/v1/jobs/{job}/file?path=big&offset=10&limit=4") as reply:
        assert len(reply.read_all()) == 4
        assert reply.headers["towline-size"] == str(SIZE)
    for wrong in ("offset=-1", "limit=-1", "offset=x", f"offset={2**70}"):
        with pytest.raises(ApiError) as refusal:
            Session().open("GET", f"/v1/jobs/{job}/file?path=big&{wrong}")
        assert refusal.value.code == "usage"
