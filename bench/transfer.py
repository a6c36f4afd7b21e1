"""A repository of 5,000 files and 200 MB: to a host that has the last version, and to a new one.

Beside it, over a connection that is as open as ours: rsync and `cp -a`, `git archive` and `tar`.
"""

import argparse
import asyncio
import contextlib
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import uvloop
from rested_disk import folder, rested_disk
from verdict import Verdict

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from testbed.hosts import Hosts  # noqa: E402
from testbed.waiting import wait_until  # noqa: E402
from towline.agent.link import Link  # noqa: E402
from towline.backends.staging.eager import EagerUpload  # noqa: E402
from towline.backends.staging.stage import stage  # noqa: E402
from towline.config.settings import SnapshotSettings  # noqa: E402
from towline.hosts.ssh import SshHost  # noqa: E402
from towline.snapshot.blobs import BlobStore  # noqa: E402
from towline.snapshot.take import HashCache, take_snapshot  # noqa: E402

HOST = "h1"
ROUNDS = 15
FILES = 5000
BYTES = 200 << 20
#: One file in so many is large: together these are half of the bytes.
LARGE_EVERY = 50
WORDS = b"import towline as the quick brown fox jumps over lazy dogs while return 0.125 ".split()


class Towline:
    """One side of the comparison: an open channel to an agent, and what the Engine keeps here."""

    def __init__(self, hosts: Hosts, repo: Path, beside: Path, root: str) -> None:
        self.hosts = hosts
        self.repo = repo
        self.root = root
        self.blobs = BlobStore(str(beside / f"blobs-{root}"))
        self.hashes = HashCache()
        self.ended: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self.started: dict[str, float] = {}
        self.last = ""

    async def open(self) -> None:
        host = SshHost(HOST, HOST, None, str(self.repo.parent))
        self.link = await Link.open(host, f"~/{self.root}", self.heard, lambda error: None)

    def heard(self, header: dict[str, Any], _blob: bytes) -> None:
        for key, _, at in header.get("started", ()):
            self.started[key] = at
        for key, ending in header.get("ended", ()):
            self.ended[key].set_result(ending)

    async def send(self) -> float:
        """The tree as it is now, until everything needed is over there."""
        began = time.perf_counter()
        # As the Engine does for a cluster of one machine.
        ahead = EagerUpload(self.link)
        take = (take_snapshot, str(self.repo), SnapshotSettings(), self.hashes, self.blobs)
        snapshot = await asyncio.get_running_loop().run_in_executor(None, *take, ahead.offer)
        self.taken = time.perf_counter() - began
        await stage(self.link, self.blobs, snapshot.id)
        self.last = snapshot.id
        return time.perf_counter() - began

    async def run_true(self) -> float:
        """A job in a fresh tree of its own, until it starts; the tree is removed afterwards."""
        key = f"j{len(self.ended)}"
        self.ended[key] = asyncio.get_running_loop().create_future()
        # The host is on this machine: its clock is ours.
        began = time.time()
        order = {"key": key, "argv": ["true"], "snapshot": self.last}
        await self.link.ask("start", jobs=[order])
        ending = await self.ended[key]
        if ending["code"] != 0:
            raise RuntimeError(f"the job failed: {ending}")
        await self.link.ask("forget", keys=[key])
        trash = self.hosts.home(HOST) / self.root / "trash"
        await asyncio.to_thread(wait_until, lambda: not any(trash.iterdir()), 60)
        return self.started[key] - began


def make_repo(folder: Path) -> None:
    """Files of mixed sizes, half of them text, in folders three deep; committed."""
    random = Random(5000)
    large = FILES // LARGE_EVERY
    for number in range(FILES):
        mean = BYTES / 2 / (large if number % LARGE_EVERY == 0 else FILES - large)
        size = int(random.uniform(0.1, 1.9) * mean)
        file = folder / f"part{number % 7}" / f"module{number % 61}" / f"file{number}.dat"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(random.randbytes(size) if number % 2 else text(random, size))
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all"]):
        who = ["-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "gc.auto=0"]
        subprocess.run(["git", *who, "-C", str(folder), *words], check=True)


def text(random: Random, size: int) -> bytes:
    line = b" ".join(random.choices(WORDS, k=1000)) + b"\n"
    return (line * (size // len(line) + 1))[:size]


@contextlib.contextmanager
def open_connection(hosts: Hosts, folder: Path, *options: str) -> Iterator[list[str]]:
    """The words of an ssh whose connection to the host is open already."""
    mux = folder / f"mux{len(options)}"
    ssh = ["ssh", "-F", str(hosts.ssh_config), "-o", f"ControlPath={mux}", *options]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    master = [*ssh, "-o", "ControlMaster=yes", "-o", "ControlPersist=yes", "-fN", HOST]
    # It stays in the background and would hold a pipe open.
    subprocess.run(master, check=True, timeout=30, stderr=subprocess.DEVNULL, **quiet)
    try:
        yield ssh
    finally:
        subprocess.run([*ssh, "-O", "exit", HOST], capture_output=True, timeout=30)


def elapsed(argv: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, timeout=120)
    return time.perf_counter() - began


class Measured:
    """Times by what they are of, shown as medians."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}

    def add(self, what: str, seconds: float) -> None:
        self.seconds.setdefault(what, []).append(seconds)

    def median(self, what: str) -> float:
        return statistics.median(self.seconds[what])

    def show(self) -> None:
        for what, values in self.seconds.items():
            low, middle, high = (1000 * f(values) for f in (min, statistics.median, max))
            print(f"  {what:46} {middle:7.1f} ms  ({low:.1f} to {high:.1f})")


async def warm(towline: Towline, ssh: list[str], rounds: int) -> Measured:
    """One file changed; the host has the version before."""
    found, repo = Measured(), towline.repo
    sync = ["rsync", "-a", "--delete", "--exclude=.git", "-e", shlex.join(ssh)]
    sync += [f"{repo}/", f"{HOST}:copy/"]
    elapsed(sync)
    await towline.send()
    await towline.run_true()
    changing = sorted(repo.glob("part*/*/*"))
    for number in range(rounds):
        changing[number * 97 % FILES].write_bytes(Random(number).randbytes(20_000))
        ours = await towline.send()
        found.add("its snapshot alone", towline.taken)
        found.add("one file changed, towline", ours)
        found.add("and the job's own tree, towline", ours + await towline.run_true())
        theirs = elapsed(sync)
        found.add("one file changed, rsync -a", theirs)
        copied = theirs + elapsed([*ssh, HOST, "cp -a copy fresh"])
        found.add("and a fresh tree, rsync -a and cp -a", copied)
        elapsed([*ssh, HOST, "rm -rf fresh"])
    return found


async def cold(
    hosts: Hosts, repo: Path, ssh: list[str], same_cipher: list[str], beside: Path, rounds: int
) -> Measured:
    """Neither side has seen the repository before; all connections are open.

    Towline asks ssh for a faster cipher than ssh would choose; the peer is timed both ways.
    """
    found = Measured()
    archive = f"git -C {shlex.quote(str(repo))} archive HEAD"
    for number in range(rounds):
        towline = Towline(hosts, repo, beside, f"cold{number}")
        await towline.open()
        ours = await towline.send()
        found.add("its snapshot alone", towline.taken)
        found.add("cold, towline", ours)
        found.add("and the job's own tree, towline", ours + await towline.run_true())
        towline.link.close()
        # Its blobs here stay to the end: ext4 is slow to make files right after many were removed.
        for what, peer in (("", ssh), (", our cipher", same_cipher)):
            there = shlex.join([*peer, HOST, "mkdir fresh && tar x -C fresh"])
            took = elapsed(["sh", "-c", f"{archive} | {there}"])
            found.add(f"cold, git archive | tar x{what}", took)
            elapsed([*ssh, HOST, "rm -rf fresh"])
        elapsed([*ssh, HOST, f"rm -rf {towline.root}"])
    return found


async def measure(hosts: Hosts, beside: Path, rounds: int) -> list[Verdict]:
    repo = beside / "repo"
    repo.mkdir()
    make_repo(repo)
    cipher = ("-o", "Ciphers=aes128-gcm@openssh.com")
    with (
        open_connection(hosts, beside) as ssh,
        open_connection(hosts, beside, *cipher) as same_cipher,
    ):
        few = max(1, rounds // 3)
        print(f"transfer, cold: medians of {few}, in turns")
        first = await cold(hosts, repo, ssh, same_cipher, beside, few)
        first.show()
        print(f"transfer, one file changed: medians of {rounds}, in turns")
        towline = Towline(hosts, repo, beside, "warm")
        await towline.open()
        then = await warm(towline, ssh, rounds)
        towline.link.close()
        then.show()
    ratios: list[tuple[str, Measured, str, str]] = [
        ("cold / git archive", first, "cold, towline", "cold, git archive | tar x"),
        ("changed file / rsync", then, "one file changed, towline", "one file changed, rsync -a"),
        (
            "changed file and tree / rsync and cp",
            then,
            "and the job's own tree, towline",
            "and a fresh tree, rsync -a and cp -a",
        ),
    ]
    return [
        Verdict(what, found.median(ours) / found.median(theirs), "x", below=1)
        for what, found, ours, theirs in ratios
    ]


def main(rounds: int = ROUNDS) -> list[Verdict]:
    """Measure both, on one host of its own."""
    if not shutil.which("rsync"):
        raise SystemExit("transfer: there is no rsync to compare with; install it")
    before = os.environ.get("TOWLINE_SSH_CONFIG")
    try:
        with rested_disk(), Hosts(count=1, inner=False) as hosts:
            os.environ["TOWLINE_SSH_CONFIG"] = str(hosts.ssh_config)
            run: Callable[..., list[Verdict]] = uvloop.run
            return run(measure(hosts, folder("transfer-"), rounds))
    finally:
        os.environ.pop("TOWLINE_SSH_CONFIG", None)
        if before is not None:
            os.environ["TOWLINE_SSH_CONFIG"] = before


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rounds", nargs="?", type=int, default=ROUNDS)
    for verdict in main(parser.parse_args().rounds):
        print(verdict)
