"""Commands and variables of any size reach the command, or are refused in words."""

import os
from pathlib import Path
from typing import Any

import pytest

from towline.agent.remote import frames
from towline.agent.remote.run.spec import checked_spec, packed

from .conftest import NewAgent
from .driver import START, AgentError, Driver

WORD = 60_000
#: An agent whose supervisors have an error of their own.
FAILING = START.replace(
    "main({root!r})",
    "import remote.run.supervisor as s; s.Supervisor.run = lambda *_: {{}}['odd']; main({root!r})",
)


def variables(size: int) -> dict[str, str]:
    """Together so many bytes; the kernel takes 128 KiB of each."""
    whole, rest = divmod(size, WORD)
    found = {f"V{n}": "x" * WORD for n in range(whole)}
    return {**found, "REST": "x" * rest}


def spec_of(key: str, raw_size: int) -> dict[str, Any]:
    """A job whose order is exactly `raw_size` bytes long on its way to the supervisor."""
    argv = ["sh", "-c", 'printf %s "$REST" | wc -c']
    spec: dict[str, Any] = {"key": key, "argv": argv, "env": variables(raw_size - 4000)}
    missing = raw_size - len(packed(checked_spec(spec)))
    spec["env"]["REST"] = "x" * (len(spec["env"]["REST"]) + missing)
    assert len(packed(checked_spec(spec))) == raw_size
    return spec


@pytest.mark.parametrize(
    "raw_size",
    [(64 << 10) - 1, 64 << 10, (64 << 10) + 1, (128 << 10) - 1, (256 << 10) + 1, 1 << 20],
)
def test_a_job_runs_whatever_the_size_of_its_variables(agent: Driver, raw_size: int) -> None:
    spec = spec_of("a", raw_size)
    agent.call("start", jobs=[spec, {"key": "b", "argv": ["true"]}])
    assert agent.end_of("b", "a")["code"] == 0
    assert int(agent.output("a")) == len(spec["env"]["REST"])
    assert agent.run("c", "echo", "next")["code"] == 0


def test_what_is_too_long_for_the_kernel_ends_in_words(agent: Driver) -> None:
    agent.call("start", jobs=[spec_of("a", 7 << 20)])
    end = agent.end_of("a")
    assert end["code"] == 126 and "Argument list too long" in end["text"]


def test_what_is_too_long_for_a_message_is_refused_in_words(agent: Driver) -> None:
    with pytest.raises(AgentError) as refused:
        agent.start("a", "true", env=variables(9 << 20))
    assert refused.value.code == "too_large"
    assert agent.run("b", "true")["code"] == 0


@pytest.mark.parametrize("blob_size", [0, 1, (64 << 10) - 1, 64 << 10, 1 << 20, 7 << 20, 8 << 20])
@pytest.mark.parametrize("piece", [4096, (64 << 10) - 1, 64 << 10, 1 << 20])
def test_frames_are_whole_however_they_are_cut(blob_size: int, piece: int) -> None:
    blob = os.urandom(1024) * (blob_size // 1024 + 1)
    sent = [({"n": 1}, blob[:blob_size]), ({"n": 2}, b""), ({"n": 3}, blob[:blob_size])]
    data = b"".join(frames.encode(*frame) for frame in sent)
    decoder = frames.Decoder()
    found = []
    for at in range(0, len(data), piece):
        found += decoder.feed(data[at : at + piece])
    assert [(header, bytes(blob)) for header, blob in found] == sent


def test_a_supervisor_that_fails_says_by_what(new_agent: NewAgent, root: Path) -> None:
    agent = new_agent(code=FAILING)
    end = agent.run("a", "true")
    assert (end["cause"], end["started"]) == ("lost", 0)
    assert "failed each time" in end["text"] and "KeyError: 'odd'" in end["text"]
    assert "KeyError: 'odd'" in (root / "trouble.log").read_text()
