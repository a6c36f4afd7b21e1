"""Lines that need no shell are run without one, and nobody can tell."""

import os
import subprocess
from pathlib import Path

import pytest

from towline.agent.remote.commands import plain_line, process

PATH = b"/usr/local/bin:/usr/bin:/bin"


def run(argv: list[bytes], environ: dict[bytes, bytes], folder: Path) -> tuple[int, bytes, bytes]:
    """Exit code, stdout and stderr of a command as a supervisor starts it."""
    out, err = folder.with_name("out"), folder.with_name("err")
    here = os.getcwd()
    os.chdir(folder)
    try:
        with open(os.devnull) as null, out.open("wb") as stdout, err.open("wb") as stderr:
            files = (null.fileno(), stdout.fileno(), stderr.fileno())
            pid = process.start(argv, environ, *files)
            _, status = os.waitpid(pid, 0)
    finally:
        os.chdir(here)
    return os.waitstatus_to_exitcode(status), out.read_bytes(), err.read_bytes()


def by_bash(line: bytes, environ: dict[bytes, bytes], folder: Path) -> tuple[int, bytes, bytes]:
    done = subprocess.run(
        ["/bin/bash", "-c", line],
        env=environ,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    return done.returncode, done.stdout, done.stderr.replace(b"/bin/bash:", b"bash:")


@pytest.mark.parametrize(
    "line",
    [
        b"echo 17",
        b"echo  a\tb   c=d",
        b"env",
        b"true",
        b"false",
        b"ls -a",
        b"sh ./script a b=c 1,2 d:e f@g h%i +j",
        b"./script x",
        b"sleep 0",
        # Those for which there is bash:
        b"script without its folder",
        b"./not-executable",
        b"./no-shebang 1",
        b"exit 3",
        b"cd /",
        b"A=b env",
        b"echo -n x",
        b"echo 'a  b' | cat; echo $HOME",
        b"printf %s x",
        b"echo a\nfalse",
        b"echo ~ *",
        b"echo {1,2}",
    ],
)
@pytest.mark.parametrize("more", [{}, {b"SHLVL": b"4", b"_": b"/bin/x", b"TERM": b"dumb"}])
def test_a_line_does_the_same_as_in_bash(
    line: bytes, more: dict[bytes, bytes], tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, mode in (("script", 0o755), ("not-executable", 0o644)):
        (folder / name).write_text('#!/bin/sh\necho $0 $# "$@"\nexit 5\n')
        (folder / name).chmod(mode)
    (folder / "no-shebang").write_text("[[ $1 = 1 ]] && echo bash\n")
    (folder / "no-shebang").chmod(0o755)
    environ = {b"PATH": PATH, b"PWD": os.fsencode(folder), **more}
    code, out, err = run([b"bash", b"-c", line], environ, folder)
    expected = by_bash(line, environ, folder)
    assert (code, sorted(out.splitlines()), err) == (
        expected[0],
        sorted(expected[1].splitlines()),
        expected[2],
    )


@pytest.mark.parametrize(
    ("line", "plain"),
    [
        (b"python train.py --lr=0.1", True),
        (b"./run.sh", True),
        (b"python train.py > log", False),
        (b"X=1 python", False),
        (b"python 'a b'", False),
        (b"source venv/bin/activate", False),
        (b" python", False),
        (b"python\n", False),
        (b"", False),
    ],
)
def test_only_lines_of_plain_words_go_without_bash(line: bytes, plain: bool) -> None:
    words = plain_line.words_of([b"bash", b"-c", line], {})
    assert words == (line.split() if plain else None)


@pytest.mark.parametrize("name", [b"BASH_ENV", b"SHELLOPTS", b"BASHOPTS", b"BASH_FUNC_python%%"])
def test_what_bash_is_told_by_its_environment_counts(name: bytes) -> None:
    assert plain_line.words_of([b"bash", b"-c", b"python"], {name: b"x"}) is None


def test_other_commands_are_left_as_they_are() -> None:
    assert plain_line.words_of([b"bash", b"-c", b"python", b"argument"], {}) is None
    assert plain_line.words_of([b"/opt/bash", b"-c", b"python"], {}) is None
    assert plain_line.words_of([b"python"], {}) is None
