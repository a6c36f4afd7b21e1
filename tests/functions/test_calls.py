"""`@towline.remote`: one call is one job, and its result is there as long as the job is."""

import asyncio
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import towline
from e2e.engines import kill_engine
from testbed.tow import Tow
from towline import errors
from towline.functions.failures import RemoteError

PROGRAM = """
import sys, towline

@towline.remote(cpus=1)
def train(rate, steps=2):
    print(f"training with {rate}")
    open("model.txt", "w").write(str(rate))
    if rate > 1:
        raise ValueError("this does not converge")
    return {"loss": rate / steps}

if __name__ == "__main__":
    print(train(1.0)["loss"], train.submit(float(sys.argv[1])).id)
"""


@pytest.fixture(autouse=True)
def project(tow: Tow, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tow.folder)
    for name, value in tow.env.items():
        if name.startswith("TOWLINE_"):
            monkeypatch.setenv(name, value)
    (tow.folder / "program.py").write_text(PROGRAM)
    return tow.folder


def submitted(tow: Tow, rate: str) -> int:
    """The job that a program submitted before it ended."""
    done = subprocess.run(
        [sys.executable, "program.py", rate],
        env=tow.env,
        cwd=tow.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    here, number = done.stdout.splitlines()[-1].split()
    assert here == "0.5"
    return int(number)


def test_a_result_is_there_for_the_next_program(tow: Tow, tow_home: Path, project: Path) -> None:
    number = submitted(tow, "0.1")
    kill_engine(tow_home)
    job = towline.job(number)
    assert job.result(timeout=60) == {"loss": 0.05}
    assert job.log() == "training with 0.1\n" and job.facts["title"] == "train"
    assert (project / "job_results" / str(number) / "model.txt").read_text() == "0.1"

    async def awaited() -> object:
        return await towline.job(number)

    assert asyncio.run(awaited()) == {"loss": 0.05}


def test_what_it_raised_is_raised_here_with_its_traceback(tow: Tow) -> None:
    job = towline.job(submitted(tow, "7"))
    with pytest.raises(ValueError, match="this does not converge") as raised:
        job.result(timeout=60)
    assert "in train" in str(raised.value.__cause__)
    assert job.wait().state == "failed" and "does not converge" in job.log("err")


def test_a_result_that_the_job_did_not_make_is_refused(tow: Tow, tow_home: Path) -> None:
    number = submitted(tow, "0.1")
    towline.job(number).wait(60)
    [key] = (tow_home / "calls").iterdir()
    key.write_bytes(b"another key of thirty-two bytes.")
    with pytest.raises(RemoteError, match="is not what it made"):
        towline.job(number).result()


def test_a_job_that_called_no_function_has_no_result() -> None:
    job = towline.submit("true", results=False)
    with pytest.raises(errors.UsageError, match="is not the call of a function"):
        towline.job(job.id).result()


def test_a_python_that_cannot_load_the_function_says_which_one_can(
    tow: Tow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 99, 0))
    job = towline.remote(len, python=sys.executable).submit("four")
    with pytest.raises(RemoteError, match="left no result"):
        job.result(timeout=60)
    assert "come from Python 3.99" in job.log("err")


def test_neither_towline_nor_tow_imports_cloudpickle_until_a_function_travels() -> None:
    code = """
        import sys, towline, towline.cli.main
        towline.submit, towline.Session
        print([name for name in sys.modules if "pickle" in name or "hydra" in name])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "[]\n"
