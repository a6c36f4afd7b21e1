"""This machine, reached without ssh."""

import sys

from towline.errors import HostError, Unusable
from towline.hosts.ssh import SENT_AGAIN, sent_again


class LocalHost:
    def __init__(self, name: str = "this") -> None:
        self.name = name
        self.place = "this"

    async def prepare(self) -> None:
        pass

    def channel(self, boot: str, *arguments: str) -> list[str]:
        # -I: the submitter's PYTHON* variables are for the jobs, not for the agent.
        return [sys.executable, "-I", "-c", boot, *arguments]

    def failure(self, returncode: int | None, stderr: str) -> HostError:
        last = stderr.strip().splitlines()[-1:] or [f"exit code {returncode}"]
        if returncode == SENT_AGAIN:
            return sent_again(self.name, last[0])
        return Unusable(f"the agent does not start on this machine: {last[0]}")

    def login(self) -> list[str] | None:
        return None
