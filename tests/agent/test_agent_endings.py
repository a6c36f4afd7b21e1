"""How an ending is put into words, and real kills for want of memory."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.memory import MemoryLimit
from towline.agent.remote import machine
from towline.agent.remote.records import endings

from .conftest import NewAgent
from .driver import Driver

GREEDY = "hog = b'x' * (400 << 20)"
HOG = ("python3", "-c", GREEDY)


@pytest.fixture
def short_of_memory(new_agent: NewAgent) -> Iterator[Driver]:
    """An agent whose jobs may use 150 MB between them."""
    with MemoryLimit(150) as limit:
        agent = new_agent()
        limit.add(agent.process.pid)
        yield agent
        agent.leave()


def test_a_job_that_the_kernel_killed_for_memory_is_told_apart(short_of_memory: Driver) -> None:
    end = short_of_memory.run("a", *HOG)
    assert (end["signal"], end["code"], end["cause"]) == (signal.SIGKILL, None, "oom")
    assert 50 < end["max_rss_kb"] / 1024 < 400


def test_a_shell_whose_command_was_killed_for_memory_ended_for_memory(
    short_of_memory: Driver,
) -> None:
    end = short_of_memory.run("a", "sh", "-c", f'python3 -c "{GREEDY}"; exit $?')
    assert (end["code"], end["cause"]) == (137, "oom")


def test_a_job_that_a_person_killed_did_not_run_out_of_memory(short_of_memory: Driver) -> None:
    agent = short_of_memory
    assert agent.run("a", *HOG)["cause"] == "oom"
    agent.start("b", "sleep", "300")
    agent.wait_for(lambda: "b" in agent.started)
    os.kill(agent.started["b"][0], signal.SIGKILL)
    assert (agent.end_of("b")["signal"], agent.ended["b"]["cause"]) == (signal.SIGKILL, "")
    assert agent.run("c", "sh", "-c", "kill -KILL $$")["cause"] == ""
    assert agent.run("d", "sh", "-c", "exit 137")["cause"] == ""


def test_a_job_that_failed_while_another_was_killed_for_memory_just_failed(
    short_of_memory: Driver,
) -> None:
    script = f'python3 -c "{GREEDY}"; exit 3'
    end = short_of_memory.run("a", "sh", "-c", script)
    assert (end["code"], end["cause"]) == (3, "")


def test_kills_outside_our_control_group_are_not_ours(new_agent: NewAgent) -> None:
    agent = new_agent()
    agent.start("a", "sleep", "300")
    agent.wait_for(lambda: "a" in agent.started)
    with MemoryLimit(50) as limit:
        enter = ("sh", "-c", 'echo $$ > "$0" && exec "$@"', limit.group / "cgroup.procs")
        assert subprocess.run([*enter, *HOG]).returncode == -signal.SIGKILL
    os.kill(agent.started["a"][0], signal.SIGKILL)
    assert agent.end_of("a")["cause"] == ""


def counted(tmp_path: Path, files: dict[str, str]) -> int:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return machine.oom_kills(groups=str(tmp_path / "groups"), proc=str(tmp_path / "proc"))


@pytest.mark.parametrize(
    ("files", "count"),
    [
        (
            {
                "proc/self/cgroup": "0::/user.slice/session-3.scope\n",
                "groups/user.slice/session-3.scope/memory.events": "oom 9\noom_kill 4\n",
                "proc/vmstat": "oom_kill 70\n",
            },
            4,
        ),
        (
            {
                "proc/self/cgroup": "5:devices:/\n4:cpu,memory:/jobs\n0::/\n",
                "groups/memory/jobs/memory.oom_control": "under_oom 0\noom_kill 2\n",
                "proc/vmstat": "oom_kill 70\n",
            },
            2,
        ),
        # In a container the path is one of the host, and the group lies at the top.
        (
            {
                "proc/self/cgroup": "4:memory:/docker/1234\n0::/docker/1234\n",
                "groups/memory/memory.oom_control": "oom_kill 1\n",
                "proc/vmstat": "oom_kill 70\n",
            },
            1,
        ),
        # No control groups, or the one at the very top: only the machine's count.
        ({"proc/self/cgroup": "0::/\n", "proc/vmstat": "nr_free 5\noom_kill 70\n"}, 70),
        ({"proc/vmstat": "nr_free 5\n"}, 0),
    ],
    ids=["second version", "first version", "container", "machine", "old kernel"],
)
def test_the_nearest_count_of_kills_for_memory_is_read(
    tmp_path: Path, files: dict[str, str], count: int
) -> None:
    assert counted(tmp_path, files) == count


def test_a_kill_counted_long_ago_is_not_this_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    count = [4]
    monkeypatch.setattr(machine, "oom_kills", lambda: count[0])
    kills = endings.Kills()
    count[0] = 5
    kills.look()
    assert kills.any_lately()
    assert not kills.any_lately()
    count[0] = 6
    kills.look()
    kills.look()
    assert not kills.any_lately()
    count[0] = 7
    kills.looked -= 2 * endings.RECENT_S
    kills.refresh()
    assert not kills.any_lately()


def test_the_kernels_count_of_memory_kills_can_be_read() -> None:
    assert machine.oom_kills() >= 0


def test_a_long_text_is_cut() -> None:
    assert len(endings.ending("setup", "x" * 5000)["text"]) == endings.MOST_TEXT
