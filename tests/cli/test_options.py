"""The command line itself: help, usage errors, what belongs to whom, and what a start costs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.stub import Stub, answer, job, stream
from testbed.tow import Tow
from towline.cli.main import command_names, load, overview
from towline.cli.options import Parser, split_command

COMMANDS_PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
HEAVY = {
    "asyncio",
    "click",
    "dataclasses",
    "datetime",
    "http.client",
    "msgspec",
    "pathlib",
    "rich",
    "shutil",
    "socket",
    "subprocess",
    "typing",
    "urllib.parse",
}


def options_of(parser: Parser) -> list[str]:
    return [flag for action in parser._actions for flag in action.option_strings]


@pytest.mark.parametrize("name", command_names())
def test_every_command_has_help_for_itself_and_each_option_and_examples(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    parser = load(name).parser()
    assert all(action.help for action in parser._actions)
    with pytest.raises(SystemExit) as leaving:
        load(name).main(["--help"])
    assert leaving.value.code == 0
    shown = capfd.readouterr().out
    assert shown.startswith(f"usage: tow {name}")
    assert f"examples:\n  tow {name}" in shown
    assert all(flag in shown for flag in options_of(parser))


@pytest.mark.parametrize("name", command_names())
def test_every_command_and_option_is_documented(name: str) -> None:
    page = COMMANDS_PAGE.read_text()
    assert f"## tow {name}\n" in page
    section = page.split(f"## tow {name}\n", 1)[1].split("\n## ", 1)[0]
    missing = [flag for flag in options_of(load(name).parser()) if f"`{flag}" not in section]
    assert [flag for flag in missing if flag not in ("-h", "--help")] == []


def test_help_lists_every_command(tow: Tow) -> None:
    for words in ([], ["help"], ["--help"], ["-h"]):
        done = tow(*words)
        assert (done.returncode, done.stdout) == (0, overview() + "\n")
    assert all(f"  {name} " in overview() for name in command_names())


def test_help_of_a_command_is_the_same_both_ways(tow: Tow) -> None:
    assert tow("help", "run").stdout == tow("run", "--help").stdout


def test_a_help_option_behind_the_command_belongs_to_the_command(tow: Tow, stub: Stub) -> None:
    stub.on("POST /v1/run", stream({"job": job()}, {"end": job(state="done")}))
    assert tow("run", "python", "--help").returncode == 0
    assert stub.asked_of("POST /v1/run")[0].json["argv"] == ["python", "--help"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["stats"], "did you mean `tow status`?"),
        (["python"], "tow run python"),
        (["--all"], "options stand behind the command"),
        (["run"], "which command?"),
        (["run", "--gpu", "1", "x"], "there is no option --gpu"),
        (["status", "-n", "many"], "takes a number from 1 on, not 'many'"),
        (["show"], "the following arguments are required: JOB"),
        (["clusters", "add", "lab"], "which machines?"),
        (["clusters", "add", "lab", "gpu1", "-o", "mem=1G"], "goes with --slurm"),
        (["clusters", "add", "c", "gpu1", "--slurm", "h"], "name only its access node"),
        (["clusters", "remove"], "which cluster?"),
        (["forward", "12"], "which port"),
        (["log", "--stdout", "--stderr", "1"], "not allowed with argument"),
    ],
)
def test_bad_usage_is_told_in_a_few_lines_and_exits_with_2(
    tow: Tow, words: list[str], told: str
) -> None:
    done = tow(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert told in done.stderr and done.stderr.startswith("tow: ")
    assert len(done.stderr.splitlines()) <= 3


@pytest.mark.parametrize(
    ("typed", "ours", "command"),
    [
        (["x", "-c", "y"], [], ["x", "-c", "y"]),
        (["-c", "lab", "x", "--", "y"], ["-c", "lab"], ["x", "--", "y"]),
        (["-clab", "x"], ["-clab"], ["x"]),
        (["-dc", "lab", "x"], ["-dc", "lab"], ["x"]),
        (["--cluster=lab", "x"], ["--cluster=lab"], ["x"]),
        (["-d", "--", "--x"], ["-d"], ["--x"]),
        (["-d", "-"], ["-d"], ["-"]),
        (["-c"], ["-c"], []),
        ([], [], []),
    ],
)
def test_where_our_options_end_and_the_command_begins(
    typed: list[str], ours: list[str], command: list[str]
) -> None:
    assert split_command(typed, ("-c", "--cluster")) == (ours, command)


def test_the_version_is_told(tow: Tow) -> None:
    from towline.version import __version__

    assert tow("--version").stdout == f"tow {__version__}\n"


def test_an_unforeseen_error_is_no_traceback(tow: Tow, stub: Stub) -> None:
    stub.on("GET /v1/jobs", answer({"surprise": 1}))
    done = tow("status")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr and "TOWLINE_DEBUG" in done.stderr


#: Modules of ours that a command may import.
MOST_OF_OURS = {"run": 25, "status": 21}


@pytest.mark.parametrize("words", [["run", "true"], ["status"], ["run", "-d", "true"]])
def test_the_commands_typed_most_import_nothing_heavy(
    tow: Tow, stub: Stub, words: list[str]
) -> None:
    stub.on("POST /v1/run", stream({"job": job()}, {"end": job(state="done")}))
    stub.on("GET /v1/jobs", answer({"jobs": [job()]}))
    stub.on("POST /v1/jobs", answer({"jobs": [job()]}))
    code = (
        "import sys; from towline.cli.main import dispatch; before = dispatch(sys.argv[1:]);"
        "sys.stderr.write('loaded: ' + ' '.join(sys.modules))"
    )
    # -S: what the site's own start-up files import is not ours.
    source = Path(__file__).parents[2] / "src"
    env = {**tow.env, "PYTHONPATH": str(source)}
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, *words],
        env=env,
        cwd=tow.folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    loaded = set(done.stderr.rpartition("loaded: ")[2].split())
    assert "towline.client.session" in loaded
    assert loaded & HEAVY == set()
    # Each costs a tenth of a millisecond at least: what is seldom needed is imported where it is.
    assert len([name for name in loaded if name.startswith("towline")]) <= MOST_OF_OURS[words[0]]
    assert len([name for name in loaded if name.startswith("towline.cli.commands.")]) == 1


def in_a_folder_that_is_gone(tow: Tow, *words: str) -> "subprocess.CompletedProcess[str]":
    gone = tow.folder / "gone"
    gone.mkdir()
    script = f'rmdir {gone}; exec "$@"'
    return subprocess.run(
        ["sh", "-c", script, "sh", *tow.program, *words],
        cwd=gone,
        env={**os.environ, **tow.env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    "words",
    [
        ["run", "true"],
        ["machines"],
        ["clusters"],
        ["doctor"],
        ["snapshots"],
        ["checkout", "12"],
        ["checkout", "12", "there"],
        ["push", "12", "."],
    ],
)
def test_a_folder_that_is_gone_is_told(tow: Tow, stub: Stub, words: list[str]) -> None:
    done = in_a_folder_that_is_gone(tow, *words)
    assert done.returncode == 2
    assert "this folder does not exist any more" in done.stderr
    assert stub.asked == []


def test_a_job_can_be_followed_from_a_folder_that_is_gone(tow: Tow, stub: Stub) -> None:
    home = {"kind": "home", "path": "/home/me/job_results/12"}
    end = {"end": job(state="done", results=home["path"], home=home)}
    stub.on("GET /v1/jobs/12/log", stream({"job": job()}, end))
    done = in_a_folder_that_is_gone(tow, "attach", "12")
    assert done.returncode == 0
    assert done.stderr.endswith("results: /home/me/job_results/12\n")
