"""The agent runs on every Python from 3.6 on, also in the C locale."""

import os
import signal
import sys
from pathlib import Path

import pytest

from testbed.own_home import persons_home
from testbed.waiting import wait_until

from .conftest import NewAgent
from .test_agent_running import NOT_DEFAULT

INSTALLED = persons_home() / ".pyenv" / "versions"


def pythons() -> dict[str, str]:
    """Version -> interpreter."""
    if not INSTALLED.exists():
        return {"own": sys.executable}
    found = sorted(INSTALLED.glob("3.*/bin/python"))
    return {path.parts[-3]: str(path) for path in found}


def test_the_oldest_python_is_among_those_tested() -> None:
    assert not INSTALLED.exists() or any(name.startswith("3.6.") for name in pythons())


@pytest.fixture(params=pythons().values(), ids=pythons().keys())
def python(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_core_scenarios(new_agent: NewAgent, root: Path, python: str) -> None:
    agent = new_agent(python=python, LC_ALL="C", PYTHONCOERCECLOCALE="0", PYTHONUTF8="0")
    agent.run("a", "printf", "%s|", "ü", "\udcff", "$x 'y'", env={"É": "ü"}, cwd="ö")
    assert agent.output("a") == b"\xc3\xbc|\xff|$x 'y'|"
    assert [entry["name"] for entry in agent.call("list", key="a", path="..")["entries"]] == ["ö"]
    assert agent.run("b", "no such")["cause"] == "not_found"
    assert agent.run("c", "true", setup="exit 3")["cause"] == "setup"
    assert agent.run("d", "sleep", "300", time_s=0.1)["cause"] == "timeout"
    agent.start("e", "sh", "-c", "setsid sleep 300 & sleep 300")
    agent.wait_for(lambda: "e" in agent.started)
    agent.call("stop", keys=["e"], grace_s=5)
    assert agent.end_of("e")["cause"] == "stopped"
    agent.run("f", "sh", "-c", NOT_DEFAULT)
    assert agent.output("f") == b""
    assert agent.call("probe")["raw"]["meminfo"]
    agent.call("start", jobs=[{"key": f"n{index}", "argv": ["true"]} for index in range(20)])
    agent.end_of(*[f"n{index}" for index in range(20)])


def test_kills_of_supervisor_and_agent(new_agent: NewAgent, root: Path, python: str) -> None:
    script = "while ! [ -e end ]; do sleep 0.02; done; exit 5"
    agent = new_agent(python=python)
    for key in ("a", "b", "c"):
        agent.start(key, "sh", "-c", script)
    agent.wait_for(lambda: len(agent.started) == 3)

    def parent(key: str) -> int:
        stat = Path(f"/proc/{agent.started[key][0]}/stat").read_text()
        return int(stat.rsplit(")", 1)[1].split()[1])

    for key in ("a", "c"):
        os.kill(parent(key), signal.SIGKILL)
        wait_until(lambda key=key: parent(key) == agent.process.pid)
    (root / "jobs/a/src/end").touch()
    assert agent.end_of("a")["code"] == 5
    assert agent.state("c") == "running"
    # It stays in the place of the supervisor of one of them.
    agent.stdin.close()
    wait_until(lambda: not agent.receive(0.1))
    first, agent = agent, new_agent(python=python)
    for key in ("b", "c"):
        assert agent.state(key) == "running"
        (root / f"jobs/{key}/src/end").touch()
        assert agent.end_of(key)["code"] == 5
    assert first.process.wait(30) == 0
    agent.kill()
    agent = new_agent(python=python)
    assert agent.call("observe", keys=["c"])["states"]["c"]["ending"]["code"] == 5
