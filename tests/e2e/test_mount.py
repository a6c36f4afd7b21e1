"""A job's folder shown as a folder here, through the kernel."""

import errno
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.engines import engine_pid, kill_engine
from e2e.jobs import complaint, configure, read_line_with, submit, wait_for
from testbed.hosts import Hosts
from testbed.tow import Tow
from testbed.waiting import wait_until
from towline.cli.commands import mount
from towline.errors import TowlineError

pytestmark = pytest.mark.real

GROW = """\
mkdir -p out/deep
printf 'a\\000b\\377' > out/raw.bin
echo 1 > 'out/deep/with space 雪'
ln -s raw.bin out/inside; ln -s deep out/to-folder; ln -s /etc/passwd out/outside; mkfifo out/pipe
head -c 3000000 /dev/zero | tr '\\0' x > big
echo first >> log
until [ -e more ]; do sleep 0.1; done
echo second >> log
exec sleep 300
"""


def mounted_below(folder: Path) -> list[str]:
    places = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [place for place in places if place.startswith(f"{folder}/")]


@pytest.fixture(autouse=True)
def _unmounted_afterwards(tow: Tow) -> Iterator[None]:
    yield
    for place in mounted_below(tow.folder):
        subprocess.run(["fusermount", "-u", "-z", place], check=True, timeout=20)


@pytest.fixture
def job(tow: Tow, hosts: Hosts) -> str:
    """A job on h1 whose log grows when it is told to."""
    configure(tow, "h1")
    number = submit(tow, "-c", "lab", "sh", "-c", GROW)
    wait_for(tow, number, "running")
    wait_until(lambda: "log" in tow("ls", str(number)).stdout, every=0.1)
    return str(number)


def unmount(folder: Path) -> None:
    subprocess.run(["fusermount", "-u", str(folder)], check=True, timeout=20)


def test_files_of_a_running_job_are_read_and_grow_in_the_folder(tow: Tow, job: str) -> None:
    said = tow("mount", "-d", job).stdout
    assert "fusermount -u job-1" in said
    folder = tow.folder / "job-1"
    assert (folder / "out" / "raw.bin").read_bytes() == b"a\0b\xff"
    assert (folder / "out" / "deep" / "with space 雪").read_text() == "1\n"
    assert (folder / "big").read_bytes() == b"x" * 3_000_000
    log = folder / "log"
    with log.open() as file:
        assert file.read() == "first\n"
        (tow.folder / "more").touch()
        assert tow("push", job, "more").returncode == 0
        # The file that is open goes on where it was, as `tail -f` reads it.
        assert wait_until(file.read, every=0.2) == "second\n"
    assert log.stat().st_size == len("first\nsecond\n")
    unmount(folder)
    wait_until(lambda: not folder.exists())


def test_folder_can_only_be_read(tow: Tow, job: str) -> None:
    folder = Path(tow.json("mount", "-d", job, "here")["folder"])
    assert folder == tow.folder / "here"
    for attempt in (
        lambda: (folder / "new").write_text("no"),
        lambda: (folder / "log").write_text("no"),
        lambda: (folder / "log").unlink(),
        lambda: (folder / "new").mkdir(),
    ):
        with pytest.raises(OSError) as refusal:
            attempt()
        assert refusal.value.errno == errno.EROFS
    assert tow("cat", job, "log").stdout == "first\n"


def test_what_is_mounted_in_a_project_does_not_travel_with_the_next_job(tow: Tow, job: str) -> None:
    tow("mount", "-d", job)
    (tow.folder / "mine").touch()
    assert (tow.folder / "job-1" / "log").exists()
    assert tow("run", "ls").stdout == "mine\n"


def test_links_never_lead_out_or_in_circles(tow: Tow, job: str) -> None:
    tow("mount", "-d", job)
    out = tow.folder / "job-1" / "out"
    assert sorted(os.listdir(out)) == ["deep", "inside", "raw.bin"]
    assert (out / "inside").read_bytes() == b"a\0b\xff"
    assert os.listdir(out / "to-folder") == ["with space 雪"]
    for name in ("outside", "pipe", "no-such"):
        assert not os.path.lexists(out / name)


def test_mount_ends_with_ctrl_c_and_leaves_nothing(tow: Tow, job: str) -> None:
    shown = tow.popen("mount", job)
    assert "Ctrl-C" in read_line_with(shown, "job-1")
    assert (tow.folder / "job-1" / "log").read_text() == "first\n"
    shown.send_signal(signal.SIGINT)
    _, errors = shown.communicate(timeout=20)
    assert (shown.returncode, errors) == (0, "")
    assert mounted_below(tow.folder) == []
    assert not (tow.folder / "job-1").exists()


def test_mount_that_is_killed_is_unmounted(tow: Tow, job: str) -> None:
    shown = tow.popen("mount", job)
    read_line_with(shown, "job-1")
    shown.kill()
    wait_until(lambda: mounted_below(tow.folder) == [])


def test_mount_goes_on_over_a_new_engine_and_the_end_of_the_job(tow: Tow, job: str) -> None:
    tow("mount", "-d", job)
    log = tow.folder / "job-1" / "log"
    kill_engine(tow.home)
    assert log.read_text() == "first\n"
    # Started by a thread of the mount that blocks signals, which nothing that comes of it may do.
    status = Path(f"/proc/{wait_until(lambda: engine_pid(tow.home))}/status").read_text()
    assert "SigBlk:\t0000000000000000\n" in status
    tow("stop", job)
    wait_for(tow, int(job), "stopped")
    assert log.read_text() == "first\n"


def test_places_and_jobs_that_cannot_be_mounted_are_named(tow: Tow, job: str) -> None:
    (tow.folder / "full").mkdir()
    (tow.folder / "full" / "mine").write_text("mine")
    assert "not empty" in complaint(tow("mount", "-d", job, "full"), 2)
    assert "not a folder" in complaint(tow("mount", "-d", job, "full/mine"), 2)
    assert "no job 99" in complaint(tow("mount", "99"), 2)
    assert tow("mount", "-d", job).returncode == 0
    assert "in use" in complaint(tow("mount", "-d", job), 2)
    assert (tow.folder / "full" / "mine").read_text() == "mine"


def test_missing_parts_are_named_with_what_to_install(tow: Tow, tmp_path: Path) -> None:
    (tmp_path / "fuse.py").write_text("raise ImportError")
    without_package = tow("mount", "1", env={"PYTHONPATH": str(tmp_path)})
    assert "pip install fusepy" in complaint(without_package, 2)
    (tmp_path / "fuse.py").write_text("raise EnvironmentError('Unable to find libfuse')")
    without_library = tow("mount", "1", env={"PYTHONPATH": str(tmp_path)})
    assert "apt install libfuse2" in complaint(without_library, 2)
    assert "fusermount" in complaint(tow("mount", "1", env={"PATH": str(tmp_path)}), 2)


@pytest.mark.parametrize("detach", [False, True])
def test_why_libfuse_could_not_mount_is_told(detach: bool, tmp_path: Path) -> None:
    def refuse(*_: object) -> None:
        os.write(2, b"fuse: mount failed: Operation not permitted\n")
        raise RuntimeError(1)

    shown = mount.Shown("job", 1, refuse)
    folder = tmp_path / "new"
    folder.mkdir()
    with pytest.raises(TowlineError, match="Operation not permitted"):
        if detach:
            mount._leave_behind(shown, str(folder), made=True)
        else:
            mount._show(shown, str(folder), True, lambda: None)
    assert not folder.exists()
