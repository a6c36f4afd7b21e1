"""A Slurm is added by its access node, and its nodes are shown like machines."""

from typing import Any

import pytest

from e2e.jobs import ENGINE
from testbed.slurm import Slurm
from testbed.tow import Tow
from testbed.waiting import wait_until

pytestmark = pytest.mark.real


def nodes(tow: Tow) -> dict[str, dict[str, Any]]:
    found = tow.json("machines", "-c", "cedar")["machines"]
    return {str(node["name"]): node for node in found}


def test_a_slurm_is_added_and_its_nodes_say_what_is_free(tow: Tow, slurm: Slurm) -> None:
    (tow.home / "config.toml").write_text(ENGINE)
    added = tow("clusters", "add", "cedar", "--slurm", "cedar", "-o", "mem=100M")
    assert added.returncode == 0, added.stderr
    first, second, *table, last = added.stdout.splitlines()
    assert first.startswith("✓ cedar: connected (python 3.")
    assert second.startswith("✓ cedar: slurm") and "GPUs 2:gtx1060, 2:gtx1070" in second
    assert [row.split()[0] for row in table] == ["MACHINE", "h2", "h3", "h4"]
    assert last == "added cedar; now: tow run -c cedar COMMAND"
    assert "cedar            slurm     cedar" in tow("clusters").stdout
    job = tow.json("run", "-d", "-c", "cedar", "--gpus", "gtx1060", "sleep", "60")["id"]
    shown = wait_until(lambda: nodes(tow)["h4"]["jobs"] and nodes(tow), timeout=60)
    assert slurm.worker("squeue", "-h", "-o", "%m").strip() == "100M"
    assert shown["h4"]["jobs"] == [job]
    assert shown["h4"]["gpus"] == [{"model": "gtx1060", "count": 2, "free": 1}]
    assert (shown["h4"]["cpus"], shown["h4"]["cpus_free"]) == (4, 3)
    assert (shown["h4"]["mem_mb"], shown["h4"]["mem_free_mb"]) == (4000, 3900)
    assert shown["h2"]["gpus"] == [{"model": "gtx1070", "count": 2, "free": 2}]


def test_nodes_that_take_no_jobs_say_why(tow: Tow, slurm: Slurm) -> None:
    (tow.home / "config.toml").write_text(ENGINE)
    assert tow("clusters", "add", "cedar", "--slurm", "cedar").returncode == 0
    slurm.control("scontrol", "update", "nodename=h3", "state=drain", "reason=bad disk")
    try:
        assert nodes(tow)["h3"]["closed"] == "Slurm calls it drain: bad disk"
    finally:
        slurm.control("scontrol", "update", "nodename=h3", "state=resume")
    assert nodes(tow)["h3"]["closed"] == ""
    slurm.stop_controller()
    (access,) = nodes(tow).values()
    assert access["state"] == "offline" and "controller" in str(access["reason"]).lower()


def test_an_option_that_is_our_own_is_refused_and_nothing_is_written(
    tow: Tow, slurm: Slurm
) -> None:
    wrong = tow("clusters", "add", "cedar", "--slurm", "cedar", "-o", "output=x")
    assert wrong.returncode == 2 and "Towline's own" in wrong.stderr
    assert not (tow.home / "config.toml").exists()
