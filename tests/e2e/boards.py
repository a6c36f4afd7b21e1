"""TensorBoard for test hosts: the very Python that runs the tests, where hosts can see it."""

import http.client
import os
import shutil
import sys
import sysconfig
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.waiting import wait_until

#: Writes five scalars for TensorBoard, then waits for the file `end` in its folder.
TRAIN = """\
import os, time
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

writer = EventFileWriter("runs")
for step in range(5):
    value = Summary.Value(tag="loss", simple_value=1 / (step + 1))
    writer.add_event(Event(step=step, wall_time=time.time(), summary=Summary(value=[value])))
writer.flush()
print("trained", flush=True)
while not os.path.exists("end"):
    time.sleep(0.1)
"""


@contextmanager
def python_for_hosts(*more: Path) -> Iterator[str]:
    """Set-up text after which `python3` has TensorBoard, on every host, and what `more` folders
    have."""
    # Hosts hide this repository and the homes, so it is shown to them under another name.
    folder = Path(tempfile.mkdtemp(prefix="towline-python-", dir="/var/tmp"))
    try:
        folder.chmod(0o755)
        base = Path(sys.base_prefix)
        name = f"python{sys.version_info.major}.{sys.version_info.minor}"
        _link(base / "bin" / name, folder / "bin" / "python3")
        for library in ("lib", "lib64"):
            if (base / library / name).is_dir():
                _link(base / library / name, folder / library / name)
        for shared in (base / "lib").glob("libpython*"):
            _link(shared, folder / "lib" / shared.name)
        _link(Path(sysconfig.get_path("purelib")), folder / "site")
        for number, other in enumerate(more):
            _link(other, folder / f"more{number}")
        sites = [f"{folder}/more{number}" for number in range(len(more))]
        path = ":".join([*sites, f"{folder}/site"])
        found = f"PYTHONPATH={path} LD_LIBRARY_PATH={folder}/lib"
        yield f"export PATH={folder}/bin:$PATH {found}"
    finally:
        shutil.rmtree(folder)


def _link(source: Path, target: Path) -> None:
    """Without a copy where that is possible."""

    def one(file: str, place: str) -> None:
        try:
            os.link(file, place)
        except OSError:
            shutil.copy2(file, place)

    target.parent.mkdir(exist_ok=True)
    if source.is_dir():
        unseen = shutil.ignore_patterns("test", "tests")
        shutil.copytree(source, target, copy_function=one, symlinks=True, ignore=unseen)
    else:
        one(str(source.resolve()), str(target))


def page(url: str) -> str:
    """What is there; empty while nothing answers."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return str(answer.read().decode())
    except (OSError, urllib.error.URLError, http.client.HTTPException):
        return ""


def shows(url: str, text: str, timeout: float = 60) -> str:
    """The page, once it has this text."""
    return wait_until(
        lambda: found if text in (found := page(url)) else "",
        timeout,
        on_timeout=lambda: page(url),
        every=0.2,
    )
