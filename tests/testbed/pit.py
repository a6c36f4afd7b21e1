"""The real `pit`, as people of a team type it, each on a machine of their own."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from testbed.team import PASSWORD, TeamServer


class Pit:
    """Call it with the words after `pit`; it is somebody's once they are signed in."""

    def __init__(self, folder: Path, server: TeamServer) -> None:
        self.home = folder / "home"
        self.folder = folder / "project"
        for made in (self.home, self.folder):
            made.mkdir(parents=True)
        self.server = server
        self.program = [sys.executable, "-m", "towline.cli.pit.main"]
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("TOWLINE_")}
        own = {"HOME": str(self.home), "TOWLINE_HOME": str(self.home / "tow"), "TZ": "UTC"}
        self.env = inherited | own
        (self.home / ".pitconnect.txt").write_text(server.connect_file.read_text())

    def signed_in(self, name: str) -> "Pit":
        """With a token of this person, who is made if need be."""
        token = self.server.user(name).token
        (self.home / ".pituser.txt").write_text(f"{name}\n{token}")
        return self

    def __call__(
        self, *words: str, input: str = "", timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.program, *words],
            cwd=self.folder,
            env=self.env,
            input=input,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def well(self, *words: str, input: str = "") -> str:
        """What it prints; it must succeed."""
        done = self(*words, input=input)
        assert done.returncode == 0, f"pit {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout

    def refused(self, *words: str, input: str = "") -> str:
        """The first line of its complaint; it must fail."""
        done = self(*words, input=input)
        assert done.returncode == 1, f"pit {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stderr.splitlines()[0]

    def run(self, script: str, *words: str, title: str = "a job", request: str = "[]") -> int:
        """Submit a job of these commands, and wait for its end; its number."""
        said = self.well("run", title, request, *words, "-d", script, "-l")
        return number_in(said)

    def begin(self, script: str, *words: str, title: str = "a job", request: str = "[]") -> int:
        """Submit a job of these commands; its number."""
        return number_in(self.well("run", title, request, *words, "-d", script))

    def popen(self, *words: str, **how: Any) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*self.program, *words], cwd=self.folder, env=self.env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **how,
        )  # fmt: skip


def number_in(said: str) -> int:
    assert said.startswith("Job number: "), said
    return int(said.splitlines()[0].split()[2])


__all__ = ["PASSWORD", "Pit", "number_in"]
