"""The environment of the terminal leaves it only for a job that runs on this very machine."""

import os
from pathlib import Path

import pytest

from cli.stub import Stub, answer, batch, job, refusal, stream
from testbed.tow import Tow

SECRET = {"SECRET_TOKEN": "0xC0FFEE"}
END = {"end": job(state="done")}
LAB = '[clusters.lab]\nmachines = ["gpu1"]\n'
WANTED = {"code": "environment_wanted", "text": "", "hint": ""}


def sent(stub: Stub, route: str = "POST /v1/run") -> list[bool]:
    """Whether the secret was in each request."""
    return [b"0xC0FFEE" in asked.body for asked in stub.asked_of(route)]


@pytest.mark.parametrize(
    ("config", "words", "goes_along"),
    [
        ("", [], True),
        ("", ["-c", "local"], True),
        (LAB, [], True),
        (f'default_cluster = "lab"\n{LAB}', ["-c", "local"], True),
        (f'default_cluster = "lab"\n{LAB}', [], False),
        (LAB, ["-c", "lab"], False),
        ("", ["-c", "gpu1"], False),
        ('[clusters.local]\nmachines = ["gpu1"]\n', [], False),
        ('[clusters."loc\\u0061l"]\nmachines = ["gpu1"]\n', ["-c", "local"], False),
    ],
)
def test_the_environment_goes_along_where_the_job_certainly_stays_here(
    tow: Tow, stub: Stub, config: str, words: list[str], goes_along: bool
) -> None:
    (tow.home / "config.toml").write_text(config)
    stub.on("POST /v1/run", stream({"job": job()}, END))
    assert tow("run", *words, "x", env=SECRET).returncode == 0
    assert sent(stub) == [goes_along]


def test_a_project_that_names_its_own_default_gets_no_secret(tow: Tow, stub: Stub) -> None:
    (tow.folder / "towline.toml").write_text(f'default_cluster = "lab"\n{LAB}')
    below = tow.folder / "deep" / "below"
    below.mkdir(parents=True)
    stub.on("POST /v1/run", stream({"job": job()}, END))
    tow("run", "x", env=SECRET, cwd=below)
    tow("run", "-c", "local", "x", env=SECRET, cwd=below)
    assert sent(stub) == [False, True]


def test_an_engine_that_wants_the_environment_is_sent_it_once(tow: Tow, stub: Stub) -> None:
    stub.on("POST /v1/run", stream({"error": WANTED, "exit": 2}), stream({"job": job()}, END))
    assert tow("run", "-c", "pool", "x", env=SECRET).returncode == 0
    assert sent(stub) == [False, True]
    assert len({asked.headers["idempotency-key"] for asked in stub.asked}) == 1
    wanted = refusal("", code="environment_wanted")
    stub.on("POST /v1/jobs", wanted, answer({"jobs": [job()]}))
    assert tow("run", "-d", "-c", "pool", "x", env=SECRET).returncode == 0
    stub.on("POST /v1/batches", wanted, answer({"batch": batch()}))
    (tow.folder / "lines").write_text("true\n")
    assert tow("batch", "-d", "-c", "pool", "lines", env=SECRET).returncode == 0
    assert sent(stub, "POST /v1/jobs") == sent(stub, "POST /v1/batches") == [False, True]


def test_an_engine_that_wants_it_again_and_again_is_not_asked_for_ever(
    tow: Tow, stub: Stub
) -> None:
    stub.on("POST /v1/run", stream({"error": {**WANTED, "text": "more"}, "exit": 2}))
    done = tow("run", "-c", "pool", "x", env=SECRET)
    assert (done.returncode, done.stderr) == (2, "tow: more\n")
    assert sent(stub) == [False, True]


def test_programs_keep_their_environment_to_themselves_too(
    tow_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from towline.client.asks import ask_for

    monkeypatch.setitem(os.environ, "SECRET_TOKEN", "0xC0FFEE")
    assert "environ" not in ask_for("x", "/tmp", {"cluster": "lab"})
    assert ask_for("x", "/tmp", {})["environ"]["SECRET_TOKEN"] == "0xC0FFEE"
