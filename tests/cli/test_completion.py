"""What a shell completes behind `tow`: typed in a real one, and asked as shells ask."""

import copy
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cli.stub import Stub, answer, batch, job, refusal
from testbed.terminal import Terminal
from testbed.tow import Tow
from testbed.waiting import wait_until
from towline.cli import completing

CTRL_U = "\x15"


def entry(name: str, kind: str = "file") -> dict[str, Any]:
    return {"name": name, "kind": kind, "size": 1, "mtime": 1.0, "mode": 0o644}


ODD = (entry("it's;x"), entry("e\x1b[1m"))
TOP = [entry("checkpoints", "dir"), entry("a b.txt"), *ODD, entry(".hidden")]


def known(stub: Stub, looks: int) -> None:
    """An Engine with a job, a batch, a cluster, and files."""
    jobs = {"jobs": [job(12, title="baseline"), job(13, title="two words")]}
    stub.on("GET /v1/jobs", *[answer(jobs)] * looks)
    stub.on("GET /v1/batches", *[answer({"batches": [batch("sweep")]})] * looks)
    clusters = {"clusters": [{"name": "lab", "kind": "machines"}, {"name": "local", "kind": ""}]}
    stub.on("GET /v1/clusters", *[answer(clusters)] * looks)
    stub.on("GET /v1/jobs/12/files", answer({"entries": TOP}))


def offered(tow: Tow, *words: str) -> tuple[str, list[str]]:
    """Which kind of words the shell is offered, and the words."""
    done = tow("completion", "zsh", "--", *words)
    assert (done.returncode, done.stderr) == (0, "")
    how, *lines = done.stdout.splitlines()
    return how, [line.partition("\t")[0] for line in lines]


def test_commands_options_jobs_clusters_and_paths_are_offered(tow: Tow, stub: Stub) -> None:
    known(stub, looks=9)
    assert offered(tow, "st") == ("words", ["stop", "status"])
    assert offered(tow, "help", "wh") == ("words", ["why"])
    assert offered(tow, "ls", "--") == ("words", ["--help", "--long", "--json"])
    assert offered(tow, "run", "-c", "") == ("words", ["lab", "local"])
    assert offered(tow, "run", "--cluster=la") == ("words", ["--cluster=lab"])
    assert offered(tow, "run", "--cluster", "=", "la") == ("words", ["--cluster=lab"])
    assert offered(tow, "stop", "12", "") == ("words", ["13", "12", "baseline", "sweep", "last"])
    assert offered(tow, "batch", "show", "sw") == ("words", ["sweep"])
    assert offered(tow, "engine", "st") == ("words", ["status", "stop"])
    assert offered(tow, "run", "python", "-") == ("here", [])
    assert offered(tow, "push", "12", "") == ("here", [])
    assert offered(tow, "nonsense", "") == ("words", [])


def test_the_folder_of_a_job_is_asked_for_once_while_somebody_types(
    tow: Tow, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOWLINE_HOME", str(tow.home))
    clock = [1000.0]
    monkeypatch.setattr(completing.time, "time", lambda: clock[0])
    inner = answer({"entries": [entry("1.pt")]})
    stub.on("GET /v1/jobs/12/files", answer({"entries": TOP}), inner, answer({"entries": []}))
    for words, found in (
        (("cat", "12", ""), ["checkpoints/", "a b.txt", "it's;x"]),
        (("cat", "12", "che"), ["checkpoints/"]),
        (("pull", "12", ".h"), [".hidden"]),
        (("ls", "-l", "12", "checkpoints/"), ["checkpoints/1.pt"]),
    ):
        assert list(completing.candidates([*words]).words) == found
    asked = [one.query["path"] for one in stub.asked_of("GET /v1/jobs/12/files")]
    assert asked == ["", "checkpoints"]
    assert (tow.home / "completions.json").stat().st_mode & 0o777 == 0o600
    clock[0] += completing.FRESH_S
    assert completing.candidates(["cat", "12", ""]).words == {}


def test_what_cannot_be_known_is_not_offered_and_nothing_is_started(tow: Tow) -> None:
    assert offered(tow, "ls", "") == ("words", [])
    assert offered(tow, "ls", "12", "") == ("paths", [])
    assert offered(tow, "run", "-c", "lo") == ("words", ["local"])
    assert not (tow.home / "engine.pid").exists()


def test_a_machine_that_refuses_is_not_heard_of(tow: Tow, stub: Stub) -> None:
    stub.on("GET /v1/jobs/12/files", refusal("gpu1: no answer"))
    assert offered(tow, "ls", "12", "") == ("paths", [])


@pytest.fixture
def installed(tow: Tow, tmp_path: Path) -> dict[str, str]:
    """A PATH with `tow` in front."""
    program = tmp_path / "bin" / "tow"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m towline.cli.main "$@"\n')
    program.chmod(0o755)
    return {"PATH": f"{program.parent}:{os.environ['PATH']}", "TERM": "dumb", "PS1": "$ "}


def test_bash_completes_what_is_typed(tow: Tow, stub: Stub, installed: dict[str, str]) -> None:
    known(stub, looks=9)
    (tow.folder / "lines.txt").touch()
    bash = copy.copy(tow)
    bash.program = ["bash", "--noprofile", "--norc", "-i"]
    with Terminal(bash, env=installed) as shell:
        shell.types("source <(tow completion bash); echo read''y\n")
        shell.sees("ready", timeout=60)
        for typed, becomes in (
            ("tow stat", "tow status "),
            ("tow log base", "tow log baseline "),
            ("tow run --cluster=la", "tow run --cluster=lab "),
            ("tow machines -c la", "tow machines -c lab "),
            ("tow ls 12 che", "tow ls 12 checkpoints/"),
            ("tow cat 12 a", "tow cat 12 a\\ b.txt "),
            ("tow cat 12 it", "tow cat 12 it\\'s\\;x "),
            ("tow batch lin", "tow batch lines.txt "),
        ):
            shell.types(f"{typed}\t")
            shell.sees(becomes, timeout=60)
            shell.types(CTRL_U)


#: Key by key like its user, but what stands on the line is read from a file.
ZSHRC = """
fpath=({folder} $fpath)
autoload -U compinit && compinit -u -D
shown() {{ print -r -- "$BUFFER|" >> {lines}; BUFFER= }}
zle -N shown && bindkey '^X' shown
"""


@pytest.mark.real
def test_zsh_completes_what_is_typed(
    tow: Tow, stub: Stub, installed: dict[str, str], tmp_path: Path
) -> None:
    known(stub, looks=9)
    (tow.folder / "lines.txt").touch()
    lines = tmp_path / "lines"
    (tmp_path / "_tow").write_text(tow("completion", "zsh").stdout)
    (tmp_path / ".zshrc").write_text(ZSHRC.format(folder=tmp_path, lines=lines))
    zsh = copy.copy(tow)
    zsh.program = ["zsh", "-d", "-i"]
    with Terminal(zsh, env={**installed, "ZDOTDIR": str(tmp_path)}) as shell:
        shell.types("echo read''y\n")
        shell.sees("ready", timeout=60)
        for typed, becomes in (
            ("tow stat", "tow status "),
            ("tow log base", "tow log baseline "),
            ("tow stop 12 swe", "tow stop 12 sweep "),
            ("tow run --cluster=la", "tow run --cluster=lab "),
            ("tow machines -c la", "tow machines -c lab "),
            ("tow ls 12 che", "tow ls 12 checkpoints/"),
            ("tow cat 12 a", "tow cat 12 a\\ b.txt "),
            ("tow cat 12 it", "tow cat 12 it\\'s\\;x "),
            ("tow cat 12 'a", "tow cat 12 'a b.txt' "),
            ("tow batch lin", "tow batch lines.txt "),
        ):
            lines.write_text("")
            shell.types(f"{typed}\t\x18")
            wait_until(lambda: lines.read_text(), timeout=60, on_timeout=lambda: shell.seen)
            assert lines.read_text() == f"{becomes}|\n"


@pytest.mark.real
def test_fish_completes_what_is_typed(
    tow: Tow, stub: Stub, installed: dict[str, str], tmp_path: Path
) -> None:
    known(stub, looks=9)
    (tow.folder / "lines.txt").touch()
    script = tmp_path / "fish" / "completions" / "tow.fish"
    script.parent.mkdir(parents=True)
    script.write_text(tow("completion", "fish").stdout)
    for typed, found in (
        ("tow stat", ["status"]),
        ("tow log base", ["baseline"]),
        ("tow stop 12 swe", ["sweep"]),
        ("tow run --cluster=la", ["--cluster=lab"]),
        ("tow machines -c la", ["lab"]),
        ("tow ls 12 che", ["checkpoints/"]),
        ("tow cat 12 a", ["a b.txt"]),
        ("tow cat 12 it", ["it's;x"]),
        ("tow cat 12 it\\'", ["it's;x"]),
        ("tow cat 12 'a", ["a b.txt"]),
        ("tow batch lin", ["lines.txt"]),
    ):
        done = subprocess.run(
            ["fish", "-c", "complete -C $argv[1]", typed],
            cwd=tow.folder,
            env={**tow.env, **installed, "XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert [line.partition("\t")[0] for line in done.stdout.splitlines()] == found


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_is_one_it_can_read(tow: Tow, tmp_path: Path, name: str) -> None:
    """As far as that shell is here."""
    done = tow("completion", name)
    assert done.returncode == 0 and f"tow completion {name} --" in done.stdout
    if shutil.which(name):  # `make parts` sees to it
        script = tmp_path / "script"
        script.write_text(done.stdout)
        read = subprocess.run([name, "-n", str(script)], capture_output=True, text=True, timeout=60)
        assert (read.returncode, read.stderr) == (0, "")


def test_a_shell_that_nobody_knows_is_refused(tow: Tow) -> None:
    assert tow("completion", "tcsh").returncode == 2
    assert tow("completion").returncode == 2
