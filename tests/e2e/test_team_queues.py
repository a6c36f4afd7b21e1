"""A team's server in front of a Slurm and of a Grid Engine: accounts and rights here, scheduling
there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.gridengine import GridEngine
from testbed.hosts import Hosts
from testbed.pit import Pit
from testbed.slurm import Slurm
from testbed.team import PASSWORD, TeamServer
from testbed.tow import Tow
from testbed.waiting import wait_until

pytestmark = pytest.mark.real

SCRIPT = 'echo "in ${SLURM_JOB_ID:-$JOB_ID}"; echo made > made.txt'


class QueueServer(TeamServer):
    """A server whose only cluster is a queue, reached through its access node."""

    def __init__(self, folder: Path, kind: str, access: str, hosts: Hosts) -> None:
        where = f'[clusters.{access}]\nkind = "{kind}"\nhost = "{access}"\n'
        super().__init__(folder, f'default_cluster = "{access}"\n{where}')
        self.env["TOWLINE_SSH_CONFIG"] = str(hosts.ssh_config)
        self.cluster = access


@pytest.fixture(params=["slurm", "gridengine"])
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[QueueServer]:
    hosts: Slurm | GridEngine = request.getfixturevalue(request.param)
    access = "cedar" if request.param == "slurm" else "msc"
    made = QueueServer(tmp_path / "server", request.param, access, hosts)
    made.start()
    yield made
    made.stop()


def test_members_run_jobs_in_its_queue_and_each_has_their_own(
    queue: QueueServer, tow: Tow, tmp_path: Path
) -> None:
    queue.user("ann")
    words = ("clusters", "add", "team", "--connect", str(queue.connect_file))
    done = tow(*words, "--user", "ann", "--password-stdin", input=f"{PASSWORD}\n")
    assert done.returncode == 0, done.stderr
    done = tow("run", "-c", f"team/{queue.cluster}", "sh", "-c", SCRIPT, timeout=120)
    assert done.returncode == 0 and done.stdout.startswith("in "), done.stderr
    entry = done.stdout.split()[1]
    assert entry.isdecimal()
    assert (tow.folder / "job_results/team-1/made.txt").read_text() == "made\n"

    # The same with `pit`, for whom it is the server's default cluster.
    ben = Pit(tmp_path / "ben", queue).signed_in("ben")
    said = ben("run", "queued", "[]", "-d", "echo of ben", "-l", timeout=120)
    assert said.returncode == 0 and "[worker 0] of ben\n" in said.stdout, said.stderr
    job = said.stdout.split()[2]
    row = next(row for row in ben.well("status").splitlines() if row.split()[0] == job)
    assert row.split()[1] == "FIN"
    assert "of ben" in ben.well("log", job)
    assert ben.refused("log", "1") == "Command failed: Forbidden"
    assert tow("@team", "log", job).returncode != 0

    # What is stopped here ends there.
    done = tow("run", "-d", "-c", "team", "sleep", "600")
    assert done.returncode == 0, done.stderr
    number = done.stdout.split()[1]
    ann = queue.user("ann")
    wait_until(lambda: ann.call("GET", f"/v1/jobs/{number}")["state"] == "running", 90)
    assert tow("@team", "stop", number).returncode == 0
    wait_until(lambda: ann.call("GET", f"/v1/jobs/{number}")["state"] == "stopped", 60)
