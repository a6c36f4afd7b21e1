"""The machine's raw facts, with and without a GPU tool."""

import os
from pathlib import Path

import pytest

from .conftest import NewAgent
from .driver import Driver

TOOL = """#!/bin/sh
case "$1" in
  --query-gpu=*) echo "0, GPU-1, NVIDIA GeForce GTX 1070, 8192, 100, 5" ;;
  *) echo "GPU-1, 4242, 100" ;;
esac
"""


@pytest.fixture
def with_tool(new_agent: NewAgent, tmp_path: Path):  # type: ignore[no-untyped-def]
    def start(script: str) -> Driver:
        tool = tmp_path / "bin" / "nvidia-smi"
        tool.parent.mkdir()
        tool.write_text(script)
        tool.chmod(0o755)
        return new_agent(PATH=f"{tool.parent}:{os.environ['PATH']}")

    return start


def test_facts_of_a_machine_without_gpus(agent: Driver) -> None:
    raw = agent.call("probe")["raw"]
    assert "MemTotal:" in raw["meminfo"]
    assert raw["stat"].startswith("cpu ")
    assert len(raw["loadavg"].split()) == 5
    assert 0 < raw["disk_free_mb"] <= raw["disk_total_mb"]
    assert (raw["gpus"], raw["gpu_error"], raw["jobs"]) == (None, "", {})


def test_facts_of_gpus_come_as_the_tool_says_them(with_tool) -> None:  # type: ignore[no-untyped-def]
    raw = with_tool(TOOL).call("probe")["raw"]
    assert raw["gpus"] == "0, GPU-1, NVIDIA GeForce GTX 1070, 8192, 100, 5\n"
    assert raw["gpu_apps"] == "GPU-1, 4242, 100\n"


def test_a_failing_gpu_tool_is_told(with_tool) -> None:  # type: ignore[no-untyped-def]
    raw = with_tool("#!/bin/sh\necho driver mismatch >&2; exit 9\n").call("probe")["raw"]
    assert (raw["gpus"], raw["gpu_error"]) == ("", "driver mismatch")


def test_a_slow_gpu_tool_does_not_hold_up_jobs(with_tool, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    wait = f"#!/bin/sh\nwhile ! [ -e {tmp_path}/now ]; do sleep 0.02; done\n"
    agent = with_tool(wait + TOOL)
    numbers = [agent.ask("probe"), agent.ask("probe")]
    assert agent.run("a", "true")["code"] == 0
    (tmp_path / "now").touch()
    for number in numbers:
        assert agent.reply(number)[0]["raw"]["gpus"].startswith("0, GPU-1")


def test_usage_of_running_jobs_covers_all_their_processes(agent: Driver) -> None:
    agent.start("a", "sh", "-c", "sleep 300 & sleep 300 & wait")
    agent.wait_for(lambda: "a" in agent.started)
    usage = agent.wait_for(
        lambda: (
            (found := agent.call("probe")["raw"]["jobs"]["a"]) and len(found["pids"]) == 3 and found
        )
    )
    assert agent.started["a"][0] in usage["pids"]
    agent.call("stop", keys=["a"], grace_s=5)
    agent.end_of("a")


def test_watching_sends_facts_until_switched_off(agent: Driver) -> None:
    agent.call("watch", every_s=0.05)
    for _ in range(3):
        header, _ = agent.wait_for(lambda: agent.pop(lambda h: h.get("event") == "probe"))
        assert "MemTotal:" in header["raw"]["meminfo"]
    agent.call("watch", every_s=0)
    agent.call("observe", keys=[])
    while agent.pop(lambda header: header.get("event") == "probe"):
        pass
    agent.run("a", "sleep", "0.2")
    assert agent.pop(lambda header: header.get("event") == "probe") is None
