"""A team's server as a cluster like any other: batches, sweeps, programs, services, ports."""

import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.team import PASSWORD, TeamServer
from testbed.tow import Tow
from testbed.waiting import wait_until
from towline.errors import Forbidden

PROGRAM = """
import towline

job = towline.submit("cat data.txt; echo made > made.txt", cluster="team")
print(job.wait(check=True).state, job.log().strip(), job.results().folder)
there = towline.server_session("team")
print([one.id for one in there.jobs(everything=True)], there.job(job.id).read("made.txt").strip())
print(open(f"job_results/team-{job.id}/made.txt").read().strip())
"""
PAGE = "python3 -m http.server --bind 127.0.0.1 $PORT"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TeamServer]:
    made = TeamServer(tmp_path_factory.mktemp("team") / "server")
    made.start()
    yield made
    made.stop()


@pytest.fixture
def ann(tow: Tow, server: TeamServer) -> Tow:
    """Her `tow`, with the server as the cluster `team`, and a folder with data."""
    server.user("ann")
    words = ("clusters", "add", "team", "--connect", str(server.connect_file))
    done = tow(*words, "--user", "ann", "--password-stdin", input=f"{PASSWORD}\n")
    assert done.returncode == 0, done.stderr
    (tow.folder / "data.txt").write_text("data\n")
    return tow


def results(tow: Tow) -> dict[str, str]:
    top = tow.folder / "job_results"
    return {
        str(file.relative_to(top)): file.read_text()
        for file in top.rglob("*")
        if file.is_file() and file.name != ".gitignore"
    }


def test_batches_and_sweeps_run_there_and_what_they_made_comes_home(ann: Tow) -> None:
    (ann.folder / "lines.txt").write_text("cat data.txt; echo 1 > one\necho 2 > two\nfalse\n")
    done = ann("batch", "-c", "team", "lines.txt")
    assert done.returncode == 1 and "2 done, 1 failed" in done.stdout, done.stderr
    came = {
        "team-lines.1/one": "1\n",
        "team-lines.1.out": "data\n",
        "team-lines.2/two": "2\n",
    }
    assert results(ann) == came
    done = ann("sweep", "-c", "team", "--keep-order", "n=3,4", "--", "sh", "-c", "echo {n} | tee n")
    assert (done.returncode, done.stdout.split()) == (0, ["3", "4"]), done.stderr
    came |= {f"team-sweep.{n - 2}{way}": f"{n}\n" for n in (3, 4) for way in ("/n", ".out")}
    assert results(ann) == came
    # What went is brought again; what a person changed is kept.
    (ann.folder / "job_results/team-lines.2/two").unlink()
    (ann.folder / "job_results/team-lines.1/one").write_text("mine\n")
    done = ann("@team", "batch", "results", "lines")
    assert done.returncode == 0 and "job_results/*-lines.*" in done.stdout, done.stderr
    assert results(ann)["team-lines.2/two"] == "2\n"
    assert results(ann)["team-lines.1/one"] == "mine\n"
    dry = ann("batch", "-c", "team", "--dry-run", "lines.txt")
    assert dry.returncode == 0 and "3 jobs:" in dry.stdout, dry.stderr


def test_programs_submit_there_and_have_what_was_made(ann: Tow) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ann.folder, env=ann.env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    first, second, third, _ = done.stdout.split("\n")
    state, printed, folder = first.split()
    assert (state, printed) == ("done", "data")
    number = folder.rpartition("-")[2]
    assert Path(folder) == ann.folder / "job_results" / f"team-{number}"
    assert number in second and second.endswith("b'made'") and third == "made"


def test_services_and_ports_are_reached_from_here_and_not_on_the_server(
    ann: Tow, server: TeamServer
) -> None:
    words = ("run", "-d", "-c", "team", "--service", PAGE)
    done = ann(*words, "sleep", "600")
    assert done.returncode == 0, done.stderr
    number = done.stdout.split()[1]

    session = server.user("ann")

    def up() -> bool:
        [seen] = session.call("GET", f"/v1/services?job={number}")["services"]
        assert (seen["local"], seen["url"]) == (0, "")
        return bool(seen["state"] == "up")

    wait_until(up, 60)
    assert f"tow @team open {number} http.server" in ann("@team", "services").stdout
    opened = ann.popen("@team", "open", number)
    try:
        assert opened.stdout is not None
        url = opened.stdout.readline().strip()
        with urllib.request.urlopen(f"{url}/data.txt", timeout=30) as page:
            assert page.read() == b"data\n"
    finally:
        opened.send_signal(signal.SIGINT)
        opened.communicate(timeout=20)
    forwarded = ann.popen("@team", "forward", number, str(server.port), "--local", "0")
    try:
        assert forwarded.stdout is not None
        said = forwarded.stdout.readline()
        assert re.fullmatch(rf"http://localhost:\d+ -> job {number} port {server.port}\n", said)
    finally:
        forwarded.send_signal(signal.SIGINT)
        forwarded.communicate(timeout=20)
    assert ann("@team", "forward", "-d", number, "80").returncode == 2
    # Others reach neither.
    ben = server.user("ben")
    for way in ("port=80", "service=http.server"):
        with pytest.raises(Forbidden):
            ben.call("POST", f"/v1/jobs/{number}/connect?{way}")
    assert ann("@team", "stop", number).returncode == 0
