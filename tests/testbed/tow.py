"""The real `tow`, run as a user runs it: a program of its own, in a home of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Tow:
    """Call it with the words after `tow`: `tow("run", "true").returncode`."""

    def __init__(self, home: Path, ssh_config: Path, folder: Path) -> None:
        self.home = home
        self.folder = folder
        self.program = [sys.executable, "-m", "towline.cli.main"]
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("TOWLINE_")}
        self.env = inherited | {
            "TOWLINE_HOME": str(home),
            "TOWLINE_SSH_CONFIG": str(ssh_config),
            "NO_COLOR": "1",
        }
        self._started: list[subprocess.Popen[str]] = []

    def __call__(
        self,
        *words: str,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        input: str | None = None,
        timeout: float = 60,
    ) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        stdin: dict[str, Any] = {"stdin": subprocess.DEVNULL} if input is None else {"input": input}
        return subprocess.run(
            [*self.program, *words],
            cwd=cwd or self.folder,
            env=self.env | dict(env or {}),
            capture_output=True,
            text=True,
            timeout=timeout,
            **stdin,
        )

    def json(self, command: str, *words: str, **how: Any) -> Any:
        """Run it with `--json` and return what it printed; it must succeed."""
        done = self(command, "--json", *words, **how)
        shown = (
            f"tow {command} {' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        )
        assert done.returncode == 0, shown
        try:
            return json.loads(done.stdout)
        except ValueError as error:
            raise AssertionError(f"not JSON ({error}): {shown}") from None

    def trusting(self, text: str, folder: Path | None = None) -> Path:
        """Write a project's file into the folder and trust it."""
        file = (folder or self.folder) / "towline.toml"
        file.write_text(text)
        done = self("trust", str(file.parent))
        assert done.returncode == 0, done.stderr
        return file

    def popen(self, *words: str, cwd: Path | None = None, **how: Any) -> subprocess.Popen[str]:
        """Start it and leave it running, its streams in pipes; it is ended after the test."""
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        env = self.env | dict(how.pop("env", {}))
        process = subprocess.Popen(
            [*self.program, *words],
            cwd=cwd or self.folder,
            env=env,
            text=True,
            **{**streams, **how},
        )
        self._started.append(process)
        return process

    def close(self) -> None:
        """End what `popen` started."""
        for process in self._started:
            process.kill()
            process.wait(timeout=10)
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream and not stream.closed:
                    try:
                        stream.close()
                    except BrokenPipeError:
                        pass
