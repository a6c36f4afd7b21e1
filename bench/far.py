"""A machine that is next door, 50 ms and 150 ms away, beside ssh and rsync over the same delay.

Every row checks what arrived. The peers use a connection that is as open as ours.
"""

import argparse
import contextlib
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import far_echo
from far_host import HOST, Far, a_far_host, elapsed, end_engine, same, same_folder
from far_log import followed_log
from rested_disk import rested_disk
from verdict import Verdict

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from testbed.hosts import Hosts  # noqa: E402
from testbed.waiting import wait_until  # noqa: E402

ROUND_TRIPS_S = (0.0, 0.05, 0.15)
MB = 1_000_000
LARGE = 200 * MB
#: How often each thing is done; the best counts.
LONG, SHORT, COLD = 2, 3, 7
#: At most so many times as long as the peers; reading files as if they were here.
ROWS, READING = 1.2, 1.5
#: A cold first job: so much longer than a cold ssh, and a round trip.
COLD_S = 0.3
PORT = 8017
#: What everybody reads: on the host, in the home of the user.
PREPARE = (
    f"head -c {LARGE} /dev/urandom > big; head -c {LARGE // 2} big > half; seq 6000000 > text; "
    "seq 1 5555555 | sed s/$/,1.5,word/ > table.csv; "
    "for n in 1000 10000; do mkdir small$n; "
    "for i in $(seq $n); do head -c 1000 /dev/urandom > small$n/f$i; done; done"
)
#: A job that has all of it, prints the text, and serves its files.
JOB = (
    "cp -r ~/big ~/half ~/small1000 ~/table.csv .; cat ~/text; touch ready; "
    f"exec python3 -m http.server -b 127.0.0.1 {PORT} > served 2>&1"
)


def cold(far: Far) -> None:
    """The first job of an Engine that has to be started, on a machine that has the agent."""
    run = ("run", "-c", "lab", "true")
    far.tow(*run, where=far.empty)
    ours, theirs = [], []
    for number in range(COLD):
        end_engine(far)
        ours.append(elapsed(lambda _: far.tow(*run, where=far.empty), number))
        theirs.append(elapsed(lambda _: far.run([*far.cold_ssh, HOST, "true"]), number))
    seconds, ssh_s = median(ours), median(theirs)
    far.say("cold first job", f"ssh {ssh_s:.2f} s  towline {seconds:.2f} s")
    most = ssh_s + COLD_S + far.round_trip_s
    far.found.append(Verdict(far.named("cold first job"), seconds, "s", below=most))


def begin_job(far: Far) -> None:
    """Start the job that every other row is about."""
    far.peer(PREPARE)
    far.tow(
        "run", "-c", "lab", "-d", "--no-results", "sh", "-c", JOB,
        output=far.here / "number", where=far.empty,
    )  # fmt: skip
    far.job = (far.here / "number").read_text().split()[-1]
    ready = f".towline/jobs/*-{far.job}-1-*/src/ready"
    wait_until(lambda: list(far.there.glob(ready)), timeout=120)


def long_files(far: Far) -> None:
    here, job = far.here, far.job
    far.row(
        "pull of 200 MB",
        lambda n: far.tow("pull", job, "big", f"big{n}"),
        {"ssh cat": lambda n: far.peer("cat big", here / "theirs")},
        ROWS,
        LONG,
    )
    same(here / "big0", far.there / "big")
    far.row(
        "push of 200 MB",
        lambda n: far.tow("push", job, "theirs", f"up{n}"),
        {"ssh cat": lambda n: far.peer("cat > up", source=here / "theirs")},
        ROWS,
        LONG,
    )
    same(far.job_folder / "up0", far.there / "big")
    far.row(
        "log of 47 MB",
        lambda n: far.tow("log", job, output=here / "log"),
        {"ssh cat": lambda n: far.peer("cat text", here / "log-theirs")},
        ROWS,
        SHORT,
    )
    same(here / "log", far.there / "text")


def short_files(far: Far) -> None:
    here, job, small = far.here, far.job, "small1000"
    far.row(
        "pull of 1,000 files",
        lambda n: far.tow("pull", job, small, f"files{n}"),
        {
            "rsync": lambda n: far.rsync(f"{HOST}:{small}/", f"files-rsync{n}"),
            "tar": lambda n: far.tar_down(small, here / f"files-tar{n}"),
        },
        ROWS,
        SHORT,
    )
    same_folder(here / "files0", far.there / small, 1000)
    far.row(
        "push of 1,000 files",
        lambda n: far.tow("push", job, "files0", f"files-up{n}"),
        {
            "rsync": lambda n: far.rsync("files0/", f"{HOST}:files-up{n}"),
            "tar": lambda n: far.tar_up(here / "files0", f"files-tarred{n}"),
        },
        ROWS,
        SHORT,
    )
    same_folder(far.job_folder / "files-up0", far.there / small, 1000)


def results(far: Far, count: int) -> None:
    """Files that a command makes over there; the peers' command makes them as well."""
    makes = f"cp -r ~/small{count} made"
    number = [0]

    def run(_: int) -> None:
        far.tow("run", "-c", "lab", "sh", "-c", makes, where=far.empty)
        number[0] = max(int(path.name) for path in (far.empty / "job_results").glob("[0-9]*"))

    def rsync(n: int) -> None:
        far.peer(f"rm -rf made; {makes}")
        far.rsync(f"{HOST}:made", f"results-rsync{count}.{n}")

    def tar(n: int) -> None:
        far.peer(f"rm -rf made; {makes}")
        far.tar_down("made", far.here / f"results-tar{count}.{n}")

    far.row(f"{count:,} results", run, {"rsync": rsync, "tar": tar}, ROWS, SHORT)
    home = far.empty / "job_results"
    same_folder(home / str(number[0]) / "made", far.there / f"small{count}", count)
    shutil.rmtree(home)


def forwarded(far: Far) -> None:
    """The same server, through ports of ours and of ssh."""
    local, theirs = free_port(), free_port()
    far.tow("forward", "-d", far.job, str(PORT), "--local", str(local))
    far.run([*far.ssh, "-O", "forward", "-L", f"{theirs}:127.0.0.1:{PORT}", HOST])
    far.row(
        "200 MB through a port",
        lambda n: download(local, far.here / "served"),
        {"ssh -L": lambda n: download(theirs, far.here / "served-theirs")},
        ROWS,
        LONG,
    )
    for name in ("served", "served-theirs"):
        same(far.here / name, far.there / "big")
    far.tow("forward", "--stop", str(local))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def download(port: int, target: Path) -> None:
    from urllib.request import urlopen

    with urlopen(f"http://127.0.0.1:{port}/big", timeout=60) as source, open(target, "wb") as out:
        shutil.copyfileobj(source, out, 1 << 20)


def reading(far: Far) -> None:
    """Programs that open files of a job as if they were here."""
    here = far.here
    copy = (
        f"import fsspec, shutil, sys\nwith fsspec.open('tow://{far.job}/half', 'rb') as file, "
        "open('read', 'wb') as out:\n    shutil.copyfileobj(file, out, 1 << 20)\n"
    )
    cat = {"ssh cat": lambda n: far.peer("cat half", here / "half")}
    far.row("100 MB by tow://", lambda n: far.run([sys.executable, "-c", copy]), cat, READING, LONG)
    same(here / "read", far.there / "half")
    table = "import pandas, sys\nprint(pandas.read_csv(%s, header=None)[0].sum())\n"
    ours = [sys.executable, "-c", table % f"'tow://{far.job}/table.csv'"]
    theirs = [sys.executable, "-c", table % "sys.stdin"]
    far.row(
        "pandas, a table of 93 MB",
        lambda n: far.run(ours, here / "sum"),
        {"ssh cat |": lambda n: far.pipe([*far.ssh, HOST, "cat table.csv"], theirs)},
        READING,
        LONG,
    )
    if int((here / "sum").read_text()) != 5555555 * 5555556 // 2:
        raise RuntimeError("the table was not read as it is")
    with mounted(far) as place:
        far.row(
            "100 MB in a mount",
            lambda n: far.run(["cat", str(place / "half")], here / "seen"),
            cat,
            READING,
            1,  # the kernel has it afterwards
        )
        same(here / "seen", far.there / "half")


@contextlib.contextmanager
def mounted(far: Far) -> Iterator[Path]:
    far.tow("mount", "-d", far.job, "mounted")
    try:
        yield far.here / "mounted"
    finally:
        subprocess.run(["fusermount", "-u", str(far.here / "mounted")], check=True, timeout=30)


def main(round_trips_s: Sequence[float] = ROUND_TRIPS_S) -> list[Verdict]:
    """Measure every row at every distance."""
    print("far away: one machine, and round trips of", end=" ")
    print(", ".join(f"{seconds * 1000:.0f} ms" for seconds in round_trips_s))
    found = []
    with rested_disk(), Hosts(count=1, inner=False) as hosts:
        for seconds in round_trips_s:
            with a_far_host(hosts, seconds) as far:
                cold(far)
                begin_job(far)
                long_files(far)
                short_files(far)
                results(far, 1000)
                results(far, 10000)
                forwarded(far)
                reading(far)
                followed_log(far)
                found += far.found
        return found + echoes(hosts, round_trips_s)


def echoes(hosts: Hosts, round_trips_s: Sequence[float]) -> list[Verdict]:
    """Short jobs: they do not wait for a round trip each."""
    rates = {}
    for seconds in dict.fromkeys((0.0, *round_trips_s)):
        rates[seconds] = far_echo.echo_rate(hosts, seconds)
        print(f"  {seconds * 1000:.0f} ms: 200 echo on 2 CPUs: {rates[seconds]:.0f}/s", flush=True)
    return far_echo.verdicts(rates) if set(far_echo.SHARE) <= set(rates) else []


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ms", nargs="*", type=float, help="round trips, in milliseconds")
    chosen = [ms / 1000 for ms in parser.parse_args().ms]
    print(*main(chosen or ROUND_TRIPS_S), sep="\n")
