"""This machine, reached without ssh."""

import sys

from towline.errors import HostError, Unusable


class LocalHost:
    def __init__(self, name: str = "this") -> None:
        self.name = name

    async def prepare(self) -> None:
        pass

    def channel(self, boot: str, argument: str) -> list[str]:
        # -I: the submitter's PYTHON* variables are for the jobs, not for the agent.
        return [sys.executable, "-I", "-c", boot, argument]

    def failure(self, returncode: int | None, stderr: str) -> HostError:
        last = stderr.strip().splitlines()[-1:] or [f"exit code {returncode}"]
        return Unusable(f"the agent does not start on this machine: {last[0]}")

    def login(self) -> list[str] | None:
        return None
