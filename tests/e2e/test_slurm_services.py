"""Services and ports of jobs on the nodes of a real Slurm, through its access node."""

import pytest

from e2e.boards import TRAIN, page, python_for_hosts, shows
from e2e.jobs import ended, submit, wait_for
from e2e.slurm_jobs import configure
from e2e.test_services import LASTING, SERVE, service
from testbed.slurm import ACCESS, Slurm
from testbed.tow import Tow
from testbed.waiting import wait_until

pytestmark = pytest.mark.real


@pytest.mark.timeout(300)
def test_tensorboard_beside_a_job_on_a_node_is_a_click_away_also_after_a_cut(
    tow: Tow, slurm: Slurm
) -> None:
    configure(tow)
    (tow.folder / "train.py").write_text(TRAIN)
    with python_for_hosts() as setup:
        options = ("-c", "cedar", "--setup", setup, "--service", "tensorboard")
        job = submit(tow, *options, "--logdir", "runs", "python3", "train.py")
        seen = service(tow, job)
        assert seen["machine"] in ("h2", "h3", "h4")
        shows(f"{seen['url']}/data/plugin/scalars/tags", '"loss"')
        slurm.cut(ACCESS)
        service(tow, job, "unreachable")
        slurm.heal(ACCESS)
        shows(f"{seen['url']}/data/plugin/scalars/tags", '"loss"', timeout=90)
        tow("stop", str(job))
        ended(tow, job)
    wait_until(lambda: page(seen["url"]) == "")


def test_services_end_with_the_job_and_leave_nothing_on_the_node(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    job = submit(tow, "-c", "cedar", "--service", SERVE, "sh", "-c", LASTING)
    seen = service(tow, job)
    assert page(f"{seen['url']}/made") == "0\n"
    assert "tow-relay" in slurm.run(seen["machine"], ["ps", "-eo", "comm"]).stdout
    tow("stop", str(job))
    assert ended(tow, job)["state"] == "stopped"
    left = slurm.run(seen["machine"], ["ps", "-eo", "comm,args"]).stdout
    assert "http.server" not in left and "tow-relay" not in left and "tow-service" not in left


def test_a_port_that_the_job_itself_serves_is_reached_from_here(tow: Tow, slurm: Slurm) -> None:
    configure(tow)
    serve = "echo inside > page; exec python3 -m http.server --bind 127.0.0.1 8123"
    job = submit(tow, "-c", "cedar", "sh", "-c", serve)
    wait_for(tow, job, "running")
    local = tow.json("forward", "-d", str(job), "8123")["local"]
    # Nobody listens on the node's network before somebody wants to reach it.
    assert shows(f"http://localhost:{local}/page", "inside") == "inside\n"
    tow("stop", str(job))
    ended(tow, job)
