"""Jobs sent ahead of their time begin when there is a place for them, once, or come back."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from testbed.waiting import wait_until

from .conftest import NewAgent
from .driver import Driver

SERIES = {"series": "alike"}


def ahead(places: int) -> dict[str, Any]:
    return {**SERIES, "places": places}


def until(word: Path) -> tuple[str, ...]:
    """A command that ends when a file is made."""
    return "sh", "-c", f"until [ -e {word} ]; do sleep 0.02; done"


def marks(path: Path) -> tuple[str, ...]:
    """A command that leaves a line each time it runs."""
    return "sh", "-c", f"echo x >> {path}"


def states(agent: Driver, *keys: str) -> list[str]:
    found = agent.call("observe", keys=list(keys))["states"]
    return [found[key]["state"] for key in keys]


def test_one_begins_as_soon_as_another_ends_and_no_more_run_than_there_are_places(
    agent: Driver, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    script = f"echo + >> {log}; sleep 0.02; echo - >> {log}"
    jobs = [{"key": f"j{n}", "argv": ["sh", "-c", script]} for n in range(30)]
    for n, job in enumerate(jobs):
        job.update(SERIES if n < 2 else ahead(2))
    assert len(agent.call("start", jobs=jobs)["accepted"]) == 30
    agent.end_of(*(f"j{n}" for n in range(30)))
    running = most = 0
    for sign in log.read_text().split():
        running += 1 if sign == "+" else -1
        most = max(most, running)
    assert most == 2 and log.read_text().count("+") == 30


def test_it_begins_at_once_where_the_one_before_it_has_ended_meanwhile(agent: Driver) -> None:
    assert agent.run("a", "true", **SERIES)["code"] == 0
    assert agent.run("b", "true", **ahead(1))["code"] == 0


def test_one_that_has_not_begun_comes_back_and_never_runs(agent: Driver, tmp_path: Path) -> None:
    word, ran = tmp_path / "end", tmp_path / "ran"
    agent.start("a", *until(word), **SERIES)
    agent.start("b", *marks(ran), **ahead(1))
    agent.start("c", *marks(tmp_path / "c"), **ahead(1))
    known = agent.call("void", keys=["a", "b"])["states"]
    assert known["a"]["state"] == "running"
    assert known["b"]["ending"]["cause"] == "void"
    agent.start("b", *marks(ran), **ahead(1))
    assert agent.end_of("b")["cause"] == "void"
    word.touch()
    assert agent.end_of("a", "c")["code"] == 0
    assert not ran.exists()


def test_a_stop_reaches_one_that_has_not_begun(agent: Driver, tmp_path: Path) -> None:
    word = tmp_path / "end"
    agent.start("a", *until(word), **SERIES)
    agent.start("b", *marks(tmp_path / "ran"), **ahead(1))
    assert agent.call("stop", keys=["b"])["stopping"] == ["b"]
    assert agent.end_of("b")["cause"] == "stopped"
    word.touch()
    agent.end_of("a")
    assert not (tmp_path / "ran").exists()


def test_series_do_not_wait_for_each_other(agent: Driver, tmp_path: Path) -> None:
    word = tmp_path / "end"
    agent.start("a", *until(word), **SERIES)
    agent.start("b", "true", **ahead(1))
    assert agent.run("c", "true", series="other", places=1)["code"] == 0
    assert states(agent, "b") == ["running"] and "b" not in agent.ended
    word.touch()
    agent.end_of("a", "b")


def test_a_killed_agent_forgets_those_that_have_not_begun_and_the_next_one_counts_those_that_run(
    new_agent: NewAgent, tmp_path: Path
) -> None:
    first = new_agent()
    word, ran = tmp_path / "end", tmp_path / "ran"
    first.start("a", *until(word), **SERIES)
    first.wait_for(lambda: "a" in first.started)
    first.start("b", *marks(ran), **ahead(1))
    os.kill(first.process.pid, signal.SIGKILL)
    first.process.wait()
    second = new_agent()
    assert states(second, "a", "b") == ["running", "unknown"]
    second.start("b", *marks(ran), **ahead(1))
    for key in ("x", "y", "z"):  # had it begun, it would be over before these
        second.run(key, "sleep", "0.1")
    assert states(second, "b") == ["running"] and "b" not in second.ended and not ran.exists()
    word.touch()
    assert second.end_of("a", "b")["code"] == 0
    assert ran.read_text() == "x\n"


def test_two_agents_that_both_have_it_begin_it_once(new_agent: NewAgent, tmp_path: Path) -> None:
    first, second = new_agent(), new_agent()
    word = tmp_path / "end"
    first.start("a", *until(word), **SERIES)
    first.wait_for(lambda: "a" in first.started)
    assert states(second, "a") == ["running"]
    keys = [f"j{n}" for n in range(20)]
    for agent in (first, second):
        for key in keys:
            agent.start(key, *marks(tmp_path / key), **ahead(1))
    word.touch()
    for agent in (first, second):
        assert agent.end_of(*keys)["code"] == 0
    assert [(tmp_path / key).read_text() for key in keys] == ["x\n"] * 20


@pytest.mark.parametrize("seed", range(3))
def test_agents_killed_again_and_again_lose_none_and_run_none_twice(
    new_agent: NewAgent, tmp_path: Path, seed: int
) -> None:
    """As the Engine does it: what the next agent does not know is voided, and sent anew."""
    left = {f"line{n}": 1 for n in range(40)}
    for kill in range(8):
        agent = new_agent()
        # Told of what began before and is not over, so that it counts.
        keys = [f"{name}-{number}" for name, number in left.items()]
        known = agent.call("observe", keys=keys)["states"]
        for name, number in list(left.items()):
            key = f"{name}-{number}"
            if known[key]["state"] == "unknown":
                ending = agent.call("void", keys=[key])["states"][key].get("ending")
                left[name] += 1 if ending and ending["cause"] == "void" else 0
        jobs = [
            {"key": f"{name}-{number}", "argv": list(marks(tmp_path / name)), **ahead(2)}
            for name, number in left.items()
        ]
        agent.call("start", jobs=jobs)
        enough = len(left) if kill == 7 else min(len(left), (seed + kill) % 5)
        wait_until(
            lambda agent=agent, enough=enough: agent.receive(0.01) and len(agent.ended) >= enough,
            timeout=60,
        )
        os.kill(agent.process.pid, signal.SIGKILL)
        agent.process.wait()
        for key in agent.ended:
            left.pop(key.partition("-")[0], None)
    assert not left
    assert [(tmp_path / f"line{n}").read_text() for n in range(40)] == ["x\n"] * 40
