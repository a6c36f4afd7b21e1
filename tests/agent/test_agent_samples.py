"""What a job uses on a node of a queue is written down there, and read by the access node."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from testbed.waiting import wait_until

from .driver import REMOTE, Driver
from .test_agent_handing import KEY, hand_over, state
from .test_agent_pythons import pythons

OLDEST = next(iter(pythons().values()))
#: A runner whose minutes are short.
RUN = """
import sys
sys.path[:0] = [sys.argv[1]]
from remote.node import gpu_questions, sampling
sampling.FIRST_S, sampling.EVERY_S, sampling.GPUS_EVERY_S, sampling.ANSWER_S = [0.05] * 4
sampling.STRETCH_S, sampling.FEWEST_S = 0.5, 0.05
from remote.node.runner import main
main(sys.argv[2:])
"""
TOOL = """#!/bin/sh
echo $$ >> "$TOLD/asked"
[ -z "$HANGS" ] || sleep 600
case "$1" in
*query-gpu*) echo "0, GPU-a, NVIDIA, of 2, 8192, 0, 70"; echo "1, GPU-b, NVIDIA, 8192, 0, [N/A]" ;;
*) echo "GPU-a, $(cat "$TOLD/pid"), 512"; echo "GPU-a, 1, 4096"; echo "No devices" ;;
esac
"""
BUSY = 'echo $$ > "$TOLD/.pid"; mv "$TOLD/.pid" "$TOLD/pid"; until [ -e "$TOLD/end" ]; do :; done'


@pytest.fixture
def told(tmp_path: Path) -> Path:
    (tmp_path / "nvidia-smi").write_text(TOOL)
    (tmp_path / "nvidia-smi").chmod(0o755)
    return tmp_path


def run(agent: Driver, told: Path, **env: str) -> "subprocess.Popen[bytes]":
    path = f"{told}:{os.environ['PATH']}"
    given = {"SLURM_JOB_ID": "7", "PATH": path, "TOLD": str(told), "CUDA_VISIBLE_DEVICES": "0"}
    words = [OLDEST, "-B", "-c", RUN, str(REMOTE), str(agent.root), KEY]
    return subprocess.Popen(words, env={**os.environ, **given, **env})


def lines(agent: Driver, since: float = 0.0) -> list[list[Any]]:
    key = f"{KEY}-0"
    found: list[list[Any]] = agent.call("samples", since={key: since})["samples"][key]
    return found


def test_cpus_memory_and_gpus_are_known_by_the_minute_and_the_last_ones_with_the_end(
    agent: Driver, told: Path
) -> None:
    hand_over(agent, "sh", "-c", BUSY)
    runner = run(agent, told)
    wait_until(lambda: [line for line in lines(agent) if line[7]])
    (told / "end").touch()
    assert runner.wait(30) == 0
    known = lines(agent)
    begins = [line[0] for line in known]
    assert begins == sorted(set(begins))
    assert lines(agent, since=begins[-2] if len(begins) > 1 else 0.0)[-1] == known[-1]
    assert lines(agent, since=begins[-1]) == []
    ending = state(agent)["ending"]
    assert ending["lines"] is True and ending["used"][0] >= begins[-1]
    for line in (*known, ending["used"]):
        assert 0 <= line[2] <= line[3] and line[4] > 0
    assert max(line[3] for line in known) > 0
    (on_gpu, *_) = [line for line in known if line[7]]
    assert on_gpu[5:] == [0.7, 0.7, 512.0]


def test_a_gpu_tool_that_hangs_delays_no_end_and_is_ended(agent: Driver, told: Path) -> None:
    hand_over(agent, "sh", "-c", BUSY)
    runner = run(agent, told, HANGS="yes")
    wait_until(lambda: (told / "asked").exists() and (told / "asked").read_text().count("\n") == 2)
    (told / "end").touch()
    assert runner.wait(30) == 0
    ending = state(agent)["ending"]
    assert ending["used"][4] > 0 and ending["used"][5:] == [None, None, None]
    tools = [int(pid) for pid in (told / "asked").read_text().split()]
    wait_until(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() for pid in tools))


def test_a_job_that_is_over_at_once_says_nothing_of_what_it_used(agent: Driver, told: Path) -> None:
    hand_over(agent, "true")
    assert run(agent, told).wait(30) == 0
    assert not state(agent)["ending"].get("lines")
    assert lines(agent) == []


def test_a_line_that_is_damaged_costs_no_other(agent: Driver, told: Path) -> None:
    hand_over(agent, "true")
    whole = "[%.1f, 60.0, 1.0, 1.0, 10.0, null, null, null]\n"
    text = whole % 60 + '{"odd": 1}\n[1, 2]\n\xff\n' + whole % 120 + "[180.0, 60"
    (agent.root / f"records/{KEY}-0/used").write_text(text, encoding="latin-1")
    assert [line[0] for line in lines(agent)] == [60.0, 120.0]
