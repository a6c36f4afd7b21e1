"""What travels arrives whole, once, and goes on where it was interrupted."""

import contextlib
import hashlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from e2e.engines import kill_engine
from e2e.jobs import FINAL, configure, ended, submit
from testbed.hosts import Hosts
from testbed.processes import processes_on
from testbed.tow import Tow
from testbed.waiting import wait_until
from towline.agent.remote.content.packs import RECORD
from towline.client.session import Session

pytestmark = pytest.mark.real

#: Prints the hash of every file of the tree it runs in.
SUMS = "find . -type f -print0 | sort -z | xargs -0 sha256sum"
FILES = 400
LARGE = 40_000_000
Interruption = Callable[[Hosts, Tow], None]


def make_project(folder: Path, random: Random) -> None:
    """New files of mixed sizes; the largest takes many messages."""
    for number in range(FILES):
        size = 6_000_000 if number % 100 == 7 else random.randrange(60_000)
        path = folder / f"part{number % 9}" / f"file {number}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(random.randbytes(size))


def sums(folder: Path) -> dict[str, str]:
    """The hash of every file, without what jobs brought home."""
    return {
        f"./{path.relative_to(folder)}": hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and "job_results" not in path.parts
    }


def printed_sums(tow: Tow, job: int) -> dict[str, str]:
    text = tow("log", str(job)).stdout
    return {line[66:]: line[:64] for line in text.splitlines()}


def blobs(hosts: Hosts) -> dict[str, tuple[Path, int, int]]:
    """Where h1 has the contents, by the hash that they claim: file, offset, size."""
    store = hosts.home("h1") / ".towline" / "blobs"
    found = {
        path.parent.name + path.name: (path, 0, path.stat().st_size) for path in store.glob("??/*")
    }
    for index in store.glob("packs/*.index"):
        records = index.read_bytes()
        whole = records[: len(records) // RECORD.size * RECORD.size]
        for digest, offset, size in RECORD.iter_unpack(whole):
            found[digest.hex()] = (index.with_suffix(".pack"), offset, size)
    return found


def half_there(hosts: Hosts) -> Iterator[str]:
    """In words, every content that is not what it claims, and every snapshot that lacks one."""
    # The snapshots first: while we look, more may come.
    snapshots = list((hosts.home("h1") / ".towline" / "snapshots").glob("*.json"))
    here = blobs(hosts)
    for digest, (path, offset, size) in here.items():
        with path.open("rb") as file:
            file.seek(offset)
            if hashlib.sha256(file.read(size)).hexdigest() != digest:
                yield f"{digest} is damaged"
    for path in snapshots:
        for name, kind, digest in json.loads(path.read_text()):
            if kind in "fx" and digest not in here:
                yield f"snapshot {path.name}: {name} is missing"


def kill_the_engine(_hosts: Hosts, tow: Tow) -> None:
    kill_engine(tow.home)


def kill_the_agent(hosts: Hosts, _tow: Tow) -> None:
    for pid in processes_on(hosts, "h1", "tow-agent"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def reset_the_connections(hosts: Hosts, _tow: Tow) -> None:
    for pid in processes_on(hosts, "h1", "sshd"):
        with contextlib.suppress(ProcessLookupError):
            if os.stat(f"/proc/{pid}").st_uid != 0:
                os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "interrupt", [kill_the_engine, kill_the_agent, reset_the_connections], ids=lambda f: f.__name__
)
def test_an_interrupted_transfer_goes_on_where_it_was(
    hosts: Hosts, tow: Tow, interrupt: Interruption
) -> None:
    random = Random(interrupt.__name__)
    configure(tow, "h1")
    assert tow("run", "-c", "lab", "true").returncode == 0
    interrupted = 0
    for _ in range(3):
        make_project(tow.folder, random)
        before = len(blobs(hosts))
        enough = before + random.randrange(1, FILES // 2)
        job = submit(tow, "-c", "lab", "--", "sh", "-c", SUMS)
        wait_until(lambda enough=enough: len(blobs(hosts)) >= enough, every=0.001)
        interrupt(hosts, tow)
        arrived = blobs(hosts)
        interrupted += len(arrived) < before + FILES
        assert list(half_there(hosts)) == []
        end = ended(tow, job, timeout=60)
        assert (end["state"], end["exit_code"]) == ("done", 0), end
        assert printed_sums(tow, job) == sums(tow.folder)
        assert list(half_there(hosts)) == []
        later = blobs(hosts)
        assert {digest: later[digest] for digest in arrived} == arrived
    assert interrupted, "everything had always arrived already"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_transfer_goes_on_after_the_network_was_cut(hosts: Hosts, tow: Tow) -> None:
    configure(tow, "h1")
    assert tow("run", "-c", "lab", "true").returncode == 0
    make_project(tow.folder, Random(3))
    job = submit(tow, "-c", "lab", "--", "sh", "-c", SUMS)
    wait_until(lambda: len(blobs(hosts)) >= 50, every=0.001)
    hosts.cut("h1")
    assert list(half_there(hosts)) == []
    wait_until(lambda: Session().call("GET", "/v1/engine")["machines"]["h1"] != "online", 120)
    hosts.heal("h1")
    end = ended(tow, job, timeout=90)
    assert (end["state"], end["exit_code"]) == ("done", 0), end
    assert printed_sums(tow, job) == sums(tow.folder)
    assert list(half_there(hosts)) == []


def received(hosts: Hosts) -> int:
    """Bytes that came to h1 over its network so far."""
    text = hosts.run("h1", ["cat", "/proc/net/dev"]).stdout
    return next(int(line.split()[1]) for line in text.splitlines() if "eth0:" in line)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_large_file_goes_on_in_its_middle(hosts: Hosts, tow: Tow) -> None:
    configure(tow, "h1")
    assert tow("run", "-c", "lab", "true").returncode == 0
    (tow.folder / "large").write_bytes(Random(7).randbytes(LARGE))
    partial = hosts.home("h1") / ".towline" / "blobs" / "partial"
    before = received(hosts)
    job = submit(tow, "-c", "lab", "--", "sh", "-c", SUMS)

    def some_is_there() -> bool:
        with contextlib.suppress(FileNotFoundError):
            return any(path.stat().st_size > LARGE // 3 for path in partial.iterdir())
        return False

    wait_until(some_is_there, every=0.001)
    kill_the_agent(hosts, tow)
    assert not blobs(hosts).keys() & set(sums(tow.folder).values()), "it had arrived already"
    end = ended(tow, job, timeout=60)
    assert (end["state"], end["exit_code"]) == ("done", 0), end
    assert printed_sums(tow, job) == sums(tow.folder)
    assert received(hosts) - before < LARGE * 1.25
    assert list(half_there(hosts)) == [] and not list(partial.iterdir())


@pytest.mark.timeout(240)
def test_a_hundred_jobs_of_one_submission_share_one_transfer(hosts: Hosts, tow: Tow) -> None:
    configure(tow, "h1")
    assert tow("run", "-c", "lab", "true").returncode == 0
    random = Random(100)
    for number in range(40):
        (tow.folder / f"file{number}").write_bytes(random.randbytes(50_000))
    before = received(hosts)
    ask = {"argv": ["sh", "-c", "cat file* | wc -c"], "cwd": str(tow.folder), "cluster": "lab"}
    session = Session()
    jobs = session.call("POST", "/v1/jobs", {"jobs": [ask] * 100, "environ": {}})["jobs"]
    assert len(jobs) == 100

    def all_ended() -> list[dict[str, Any]] | None:
        found = tow.json("status", "-a", "-n", "200")["jobs"]
        return found if all(job["state"] in FINAL for job in found) else None

    for job in wait_until(all_ended, timeout=120, every=0.3):
        assert (job["state"], job["exit_code"]) == ("done", 0), job
    assert tow("log", str(jobs[-1]["id"])).stdout.strip() == "2000000"
    assert received(hosts) - before < 2 * 2_000_000
    assert set(sums(tow.folder).values()) == set(blobs(hosts))
    assert list(half_there(hosts)) == []
