"""Services run beside a job: on a free port, kept up as long as it lives, and gone with it."""

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.waiting import wait_until
from towline.agent.remote.run import services
from towline.model.service import Service, argv_of

from .conftest import NewAgent
from .driver import AgentError, Driver
from .test_agent_pythons import pythons

SERVE = "exec python3 -m http.server --bind 127.0.0.1 $PORT"


@pytest.fixture
def agent(new_agent: NewAgent) -> Iterator[Driver]:
    """One whose job `k` is stopped afterwards."""
    agent = new_agent()
    yield agent
    if agent.call("stop", keys=["k"], grace_s=0)["stopping"]:
        agent.end_of("k")


def service(command: str, name: str = "web") -> dict[str, Any]:
    return {"name": name, "argv": ["/bin/sh", "-c", command]}


def begin(agent: Driver, key: str, *argv: str, **fields: Any) -> None:
    agent.start(key, *argv, **fields)
    agent.wait_for(lambda: key in agent.started)


def standing(agent: Driver, key: str = "k", name: str = "web") -> dict[str, Any]:
    found: dict[str, Any] = agent.call("services", key=key)["services"][name]
    return found


def answering(agent: Driver, key: str = "k", name: str = "web") -> int:
    """The port of the service, once it answers."""

    def look() -> int:
        port = int(standing(agent, key, name)["port"])
        return port if port and answers(port) else 0

    return int(wait_until(look, on_timeout=lambda: (standing(agent, key, name), log(agent, name))))


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except OSError:
        return False
    return True


def page(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=10) as answer:
        return str(answer.read().decode())


def log(agent: Driver, name: str = "web", key: str = "k") -> str:
    _, blob = agent.call_blob("read", key=key, stream=f"services/{name}.log", offset=0, wait=False)
    return blob.decode()


def failed(agent: Driver) -> str:
    """Why there is no hope for the service."""
    wait_until(lambda: standing(agent)["state"] == "failed", on_timeout=lambda: standing(agent))
    return str(standing(agent)["text"])


def test_it_serves_the_working_folder_of_the_job_until_the_job_ends(agent: Driver) -> None:
    begin(
        agent,
        "k",
        "sh",
        "-c",
        "echo made > made; read x < fifo || sleep 60",
        services=[service(SERVE)],
    )
    port = answering(agent)
    assert page(port, "made") == "made\n"
    agent.call("stop", keys=["k"])
    assert agent.end_of("k")["cause"] == "stopped"
    assert not answers(port)


def test_it_has_the_environment_and_the_set_up_of_the_job_which_runs_once(agent: Driver) -> None:
    begin(
        agent,
        "k",
        *("sleep", "60"),
        setup="echo once >> setups; export COLOUR=blue",
        env={"SEED": "7"},
        services=[service('echo "$SEED $COLOUR ${TOWLINE_SETUP-none}" > told; ' + SERVE)],
    )
    port = answering(agent)
    assert page(port, "told") == "7 blue none\n"
    assert page(port, "setups") == "once\n"


def test_the_job_ends_as_if_there_were_no_service(agent: Driver) -> None:
    end = agent.run("k", "sh", "-c", "sleep 0.3; exit 3", services=[service(SERVE)])
    assert (end["code"], end["cause"]) == (3, "")


def test_a_job_ends_in_time_though_its_service_hears_no_signal(agent: Driver) -> None:
    deaf = "trap '' TERM; python3 -m http.server --bind 127.0.0.1 $PORT & while :; do sleep 1; done"
    begin(agent, "k", "sleep", "60", grace_s=300, services=[service(deaf)])
    port = answering(agent)
    agent.call("stop", keys=["k"])
    agent.wait_for(lambda: "k" in agent.ended, seconds=60)
    assert not answers(port)


def test_one_that_dies_is_started_again(agent: Driver) -> None:
    begin(agent, "k", "sleep", "60", services=[service("echo $$ >> pids; " + SERVE)])
    pids = page(answering(agent), "pids").split()
    os.kill(int(pids[0]), signal.SIGKILL)
    wait_until(lambda: standing(agent)["state"] == "starting")
    assert len(page(answering(agent), "pids").split()) == 2


def test_one_that_dies_each_time_is_given_up_and_says_its_last_words(agent: Driver) -> None:
    begin(
        agent, "k", "sleep", "60", services=[service("echo try >> tries; echo no luck >&2; exit 5")]
    )
    assert failed(agent) == "no luck"
    assert agent.call_blob("get", key="k", path="tries")[1] == b"try\n" * 4
    assert agent.state("k") == "running"


def test_one_that_is_not_there_is_tried_once(agent: Driver) -> None:
    begin(agent, "k", "sleep", "60", services=[service("echo try >> tries; no-such-program")])
    assert "no-such-program" in failed(agent) and "not found" in failed(agent)
    assert agent.call_blob("get", key="k", path="tries")[1] == b"try\n"


def test_one_that_goes_into_the_background_is_kept_and_ended(agent: Driver) -> None:
    begin(agent, "k", "sleep", "60", services=[service(SERVE.replace("exec", "") + " & exit 0")])
    port = answering(agent)
    agent.call("stop", keys=["k"])
    agent.end_of("k")
    assert not answers(port)


def test_two_services_have_two_ports(agent: Driver) -> None:
    begin(agent, "k", "sleep", "60", services=[service(SERVE), service(SERVE, "other")])
    assert answering(agent) != answering(agent, name="other")


def test_its_output_is_kept_beside_that_of_the_job(agent: Driver) -> None:
    begin(
        agent, "k", "sh", "-c", "echo job; sleep 60", services=[service("echo of mine; " + SERVE)]
    )
    port = answering(agent)
    page(port, "")
    wait_until(lambda: "GET / " in log(agent), on_timeout=lambda: log(agent))
    assert log(agent).startswith("of mine\n")
    agent.call("stop", keys=["k"])
    assert agent.output("k") == b"job\n"
    assert log(agent).startswith("of mine\n")


def first_words(agent: Driver) -> bytes:
    """What the service answers when it is dialled by name and asked for what it has not."""
    agent.call("dial", stream=1, key="k", service="web")
    agent.send({"stream": 1}, b"GET /nothing HTTP/1.0\r\n\r\n")
    data = b""
    while b"\r\n" not in data:
        data += agent.wait_for(lambda: agent.pop(lambda h: h.get("stream") == 1))[1]
    return data


def test_it_is_dialled_by_name(agent: Driver) -> None:
    begin(agent, "k", "sleep", "60", services=[service(SERVE)])
    answering(agent)
    assert first_words(agent).startswith(b"HTTP/1.0 404")
    with pytest.raises(AgentError) as refused:
        agent.call("dial", stream=2, key="k", service="another")
    assert refused.value.code == "refused"


def test_it_goes_on_without_agent_and_supervisor_and_ends_with_the_job(
    new_agent: NewAgent, root: Path
) -> None:
    first = new_agent()
    begin(
        first, "k", "sh", "-c", "while [ ! -e end ]; do sleep 0.1; done", services=[service(SERVE)]
    )
    port = answering(first)
    supervisors = supervisors_of(first)
    first.kill()
    for pid in supervisors:
        os.kill(pid, signal.SIGKILL)
    second = new_agent()
    assert second.state("k") == "running"
    assert "end" not in page(port, "")
    second.kill()
    # Nobody of ours is left but its keeper.
    (root / "jobs" / "k" / "src" / "end").touch()
    wait_until(lambda: not answers(port))


def test_a_keeper_that_is_killed_is_replaced(agent: Driver, root: Path) -> None:
    begin(agent, "k", "sleep", "60", services=[service(SERVE)])
    port = answering(agent)
    [keeper] = keepers_of(agent)
    os.kill(keeper, signal.SIGKILL)
    wait_until(lambda: standing(agent)["port"] not in (0, port))
    answering(agent)
    assert not answers(port)


@pytest.mark.parametrize(
    "wrong",
    [
        [{"name": "web"}],
        [{"name": "../web", "argv": ["true"]}],
        [{"name": "web", "argv": [1]}],
        [service("true"), service("true")],
        ["web"],
    ],
)
def test_wrong_services_are_refused(agent: Driver, wrong: list[Any]) -> None:
    with pytest.raises(AgentError) as refused:
        agent.start("k", "true", services=wrong)
    assert refused.value.code == "bad_request"


def supervisors_of(agent: Driver) -> list[int]:
    return [pid for pid in children(agent.process.pid) if comm(pid) == "tow-supervisor"]


def keepers_of(agent: Driver) -> list[int]:
    below = [pid for supervisor in supervisors_of(agent) for pid in children(supervisor)]
    return [pid for pid in below if comm(pid) == "tow-service"]


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def comm(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


@pytest.mark.parametrize("python", pythons().values(), ids=pythons().keys())
def test_every_python_serves_also_through_the_relay_of_a_node(
    new_agent: NewAgent, root: Path, python: str
) -> None:
    """As on a Slurm: the folder says that whoever asks is on another machine."""
    agent = new_agent(python=python)
    (root / "jobs" / "k").mkdir()
    (root / "jobs" / "k" / "elsewhere").touch()
    begin(agent, "k", "sleep", "60", services=[service(SERVE)])
    answering(agent)
    wait_until(lambda: (root / "jobs" / "k" / "relay").exists())
    assert first_words(agent).startswith(b"HTTP/1.0 404")
    os.kill(agent.started["k"][0], signal.SIGTERM)
    agent.end_of("k")


def test_a_command_whose_environment_reads_as_empty_for_a_moment_is_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As during `execve`, when the set-up's shell becomes the command."""
    keeper = object.__new__(services.Keeper)
    keeper.with_setup, keeper.environ, keeper.command = True, {b"COLOUR": b"none"}, (os.getpid(), 0)
    monkeypatch.setattr(keeper, "wait", lambda seconds: None)
    monkeypatch.setattr(services.process_tree, "lives", lambda *_: True)
    told = iter([[b"TOWLINE_SETUP=x"], [b""], [b""], [b"COLOUR=blue", b""]])
    monkeypatch.setattr(services.process_tree, "environment", lambda pid: next(told))
    assert keeper.environment() == {b"COLOUR": b"blue"}


def test_a_command_that_nobody_may_look_at_does_not_keep_its_service_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keeper = object.__new__(services.Keeper)
    keeper.with_setup, keeper.command = True, (os.getpid(), 0)
    keeper.environ = {b"COLOUR": b"none", b"TOWLINE_SETUP": b"x"}
    monkeypatch.setattr(services.process_tree, "may_look_into", lambda pid: False)
    assert keeper.environment() == {b"COLOUR": b"none"}


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (None, "TensorBoard is not installed there"),
        ("raise ImportError('protobuf is too new')", "does not start: ImportError: protobuf is"),
        ("print('serves')", "serves"),
    ],
)
def test_what_is_wrong_with_a_tensorboard_is_told(
    tmp_path: Path, module: str | None, said: str
) -> None:
    """Only where there is none is it called not installed."""
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    if module is not None:
        (tmp_path / "tensorboard").mkdir()
        (tmp_path / "tensorboard/__init__.py").write_text(module)
        (tmp_path / "tensorboard/main.py").write_text("")
    done = subprocess.run(
        argv_of(Service("tensorboard")),
        env={"PATH": str(tmp_path), "PORT": "1", "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert said in done.stdout + done.stderr
