"""`towline.Executor`: functions over warm workers, in front of a real Engine."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import BrokenExecutor, as_completed, wait
from pathlib import Path
from typing import Any

import pytest

import towline
from e2e.engines import kill_engine
from testbed.hosts import Hosts
from testbed.slurm import Slurm
from testbed.tow import Tow
from testbed.waiting import wait_until
from towline import errors
from towline.functions.failures import NoWorkers, RemoteError, WorkerLost
from towline.functions.remote.wire import Channel, Closed


@pytest.fixture(autouse=True)
def project(tow: Tow, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that a program stands in, which is the one that travels."""
    monkeypatch.chdir(tow.folder)
    for name, value in tow.env.items():
        if name.startswith("TOWLINE_"):
            monkeypatch.setenv(name, value)
    return tow.folder


def by_value(name: str, text: str) -> Any:
    """A function as a notebook has it: of no module that is anywhere else."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(textwrap.dedent(text), names)
    return names[name]


ADD = by_value("add", "def add(x, y=1):\n    return x + y")
FAIL = by_value(
    "fail",
    """
    class Odd(Exception):
        def __init__(self, one, two):
            super().__init__(f"{one} and {two}")

    def fail(how):
        print("it is about to fail")
        if how == "odd":
            raise Odd("this", "that")
        raise KeyError(how)
    """,
)


def test_calls_of_all_kinds_over_warm_workers(project: Path) -> None:
    (project / "model.py").write_text("RATE = 7\ndef rate():\n    return RATE\n")
    with towline.Executor(workers=2) as executor:
        first = executor.submit(ADD, 1, y=2)
        assert first.result(60) == 3
        assert first.job is not None and first.job.state == "running"
        # Many small calls, one by one and in parts; values come in the order of the arguments.
        assert sum(f.result(60) for f in [executor.submit(ADD, n) for n in range(500)]) == 125_250
        assert list(executor.map(ADD, range(10_000))) == list(range(1, 10_001))
        assert list(executor.map(pow, [2, 3], [3, 2], chunksize=1)) == [8, 9]
        assert list(executor.map(ADD, [])) == []
        assert {f.result() for f in as_completed([executor.submit(ADD, n) for n in (1, 2)])} == {
            2,
            3,
        }
        # A module of the folder is found over there.
        imported = by_value("rate", "def rate():\n    import model\n    return model.rate()")
        assert executor.submit(imported).result(60) == 7
        secret = by_value("secret", "def secret():\n    import os\n    return dict(os.environ)")
        assert not [name for name in executor.submit(secret).result(60) if "CALL_KEY" in name]
        raised = executor.submit(FAIL, "this")
        with pytest.raises(KeyError, match="this") as error:
            raised.result(60)
        assert "in fail" in str(error.value.__cause__) and raised.job is not None
        assert "it is about to fail" in raised.job.log()
        with pytest.raises(RemoteError, match="Odd: this and that"):
            executor.submit(FAIL, "odd").result(60)
        with pytest.raises(TypeError, match="cannot travel"):
            executor.submit(threading.Lock).result(60)
        with pytest.raises(TypeError, match="cannot travel"):
            executor.submit(ADD, threading.Lock())
        values = executor.map(FAIL, ["a", "b"])
        with pytest.raises(KeyError, match="a"):
            next(values)
        jobs = executor.jobs
        assert 1 <= len(jobs) <= 2
    # The second may never have been needed.
    assert jobs[0].state == "done"
    assert {job.state for job in jobs} <= {"done", "stopped"}
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(ADD, 1)
    # Nothing of it stays in the folder.
    assert sorted(path.name for path in project.iterdir()) == ["model.py"]


def test_a_call_that_waits_can_be_cancelled_and_ctrl_c_ends_the_workers(project: Path) -> None:
    begun = project / "begun"
    busy = by_value("busy", "def busy(p):\n    import time\n    open(p, 'w')\n    time.sleep(1000)")
    executor = towline.Executor(workers=1)
    with pytest.raises(KeyboardInterrupt), executor:
        running = executor.submit(busy, str(begun))
        waiting = executor.submit(ADD, 1)
        wait_until(begun.exists, 60)
        assert waiting.cancel() and not running.cancel()
        [job] = executor.jobs
        raise KeyboardInterrupt
    assert job.state == "stopped"
    with pytest.raises(WorkerLost):
        running.result(60)


def test_a_call_that_kills_its_worker_fails_alone_and_others_go_on(project: Path) -> None:
    ledger = project / "ledger"
    noted = by_value(
        "noted",
        """
        def noted(path, how):
            import os
            with open(path, "a") as ledger:
                ledger.write(f"{how}\\n")
            if how == "die":
                os.kill(os.getpid(), 9)
            return how
        """,
    )
    with towline.Executor(workers=1) as executor:
        executor.submit(noted, str(ledger), "first").result(60)
        calls = [executor.submit(noted, str(ledger), how) for how in ("one", "die", "two", "three")]
        wait(calls, 60)
        assert [call.result() for call in calls if call.exception() is None] == [
            "one",
            "two",
            "three",
        ]
        with pytest.raises(WorkerLost, match="signal 9"):
            calls[1].result()
    # None of them was called twice.
    assert sorted(ledger.read_text().split()) == ["die", "first", "one", "three", "two"]


def test_calls_go_on_when_the_engine_is_killed_and_are_made_once(
    project: Path, tow_home: Path
) -> None:
    ledger = project / "ledger"
    slow = by_value(
        "slow",
        """
        def slow(path, n):
            import time
            with open(path, "a") as ledger:
                ledger.write(f"{n}\\n")
            time.sleep(0.05)
            return n
        """,
    )
    with towline.Executor(workers=2) as executor:
        calls = [executor.submit(slow, str(ledger), n) for n in range(60)]
        calls[5].result(60)
        kill_engine(tow_home)
        assert [call.result(60) for call in calls] == list(range(60))
    assert sorted(map(int, ledger.read_text().split())) == list(range(60))


def test_workers_that_cannot_start_say_why() -> None:
    with (
        pytest.raises(errors.NotFound, match="there is no cluster 'nowhere'"),
        towline.Executor("nowhere") as executor,
    ):
        executor.submit(ADD, 1).result(60)
    with pytest.raises(BrokenExecutor), towline.Executor(python="nonesuch") as executor:
        executor.submit(ADD, 1).result(60)
    with pytest.raises(errors.UsageError, match="workers must be"):
        towline.Executor(workers=0)
    with towline.Executor(setup="echo no luck here >&2; exit 4") as executor:
        call = executor.submit(ADD, 1)
        with pytest.raises(NoWorkers, match="a worker did not start"):
            call.result(60)
        with pytest.raises(NoWorkers):
            executor.submit(ADD, 1)


def test_asyncio_goes_on_while_calls_and_jobs_are_awaited() -> None:
    async def main() -> tuple[int, str]:
        loop = asyncio.get_running_loop()
        with towline.Executor(workers=1) as executor:
            value = await loop.run_in_executor(executor, ADD, 4)  # type: ignore[arg-type]
        outcome = await towline.submit("true", results=False)
        return value, outcome.state

    assert asyncio.run(main()) == (5, "done")


def test_a_program_that_ends_without_a_word_leaves_no_worker(tow: Tow) -> None:
    code = """
        import sys, towline
        executor = towline.Executor(workers=1)
        print(executor.submit(len, "four").result())
        sys.exit(0)
    """
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", textwrap.dedent(code)],
        env=tow.env,
        cwd=tow.folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "4\n", "")
    assert towline.job("workers.1").wait(60).state == "stopped"


def test_a_stranger_on_the_port_gets_nothing_called(project: Path) -> None:
    with towline.Executor(workers=1) as executor:
        job = executor.submit(ADD, 1)
        assert job.result(60) == 2
        forwards = executor.session.call("GET", "/v1/forwards")["forwards"]
        stranger = socket.create_connection(("127.0.0.1", forwards[0]["local"]), 10)
        with stranger, pytest.raises(Closed):
            Channel(stranger, b"k" * 32, is_worker=False)
        assert executor.submit(ADD, 2).result(60) == 3


@pytest.mark.real
def test_workers_on_ssh_machines_and_a_cut(tow: Tow, hosts: Hosts) -> None:
    (tow.home / "config.toml").write_text('[clusters.lab]\nmachines = ["h1", "h2"]\n')
    where = by_value(
        "where", "def where(s):\n    import os, time\n    time.sleep(s)\n    return os.uname()[1]"
    )
    with towline.Executor("lab", "[cpus=0.5]", workers=4) as executor:
        assert {*executor.map(where, [0.2] * 16, chunksize=1)} == {"h1", "h2"}
        assert sum(executor.map(ADD, range(10_000))) == 50_005_000
        call = executor.submit(where, 0.5)
        wait_until(call.running, 60)
        for pid in _ssh_of(tow):
            os.kill(pid, signal.SIGKILL)
        assert call.result(60) in ("h1", "h2")


def _ssh_of(tow: Tow) -> list[int]:
    """The ssh processes of its Engine."""
    pid = towline.Session().running()["pid"]  # type: ignore[index]
    said = subprocess.run(
        ["ps", "-o", "pid=,comm=", "--ppid", str(pid)], capture_output=True, text=True
    )
    return [int(line.split()[0]) for line in said.stdout.splitlines() if line.split()[1] == "ssh"]


@pytest.mark.real
def test_workers_in_a_slurm(tow: Tow, slurm: Slurm) -> None:
    (tow.home / "config.toml").write_text('[clusters.cedar]\nkind = "slurm"\nhost = "cedar"\n')
    where = by_value("where", "def where(n):\n    import os\n    return os.uname()[1], n")
    with towline.Executor("cedar", workers=2) as executor:
        values = list(executor.map(where, range(8), chunksize=1))
    assert [n for _, n in values] == list(range(8))
    assert {host for host, _ in values} <= {"h2", "h3", "h4"}
