"""A limit on memory for some processes of this machine, so that the kernel really kills for it."""

import os
from pathlib import Path
from types import TracebackType

from .slot import TestbedError
from .waiting import wait_until

GROUPS = Path("/sys/fs/cgroup")


class MemoryLimit:
    """A control group of its own: `with MemoryLimit(200) as limit: limit.add(pid)`."""

    def __init__(self, mb: int) -> None:
        first = GROUPS / "memory"
        self.top = first if first.is_dir() else GROUPS
        self.file = "memory.limit_in_bytes" if first.is_dir() else "memory.max"
        self.mb = mb
        self.group = self.top / f"towline-test-{os.getpid()}"

    def __enter__(self) -> "MemoryLimit":
        try:
            if self.top == GROUPS:
                (self.top / "cgroup.subtree_control").write_text("+memory")
            self.group.mkdir()
            (self.group / self.file).write_text(f"{self.mb << 20}")
        except OSError as error:
            raise TestbedError(f"memory cannot be limited here ({error})") from error
        return self

    def add(self, pid: int) -> None:
        """Limit a process, and those it starts from now on."""
        (self.group / "cgroup.procs").write_text(str(pid))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        wait_until(self._removed, timeout=10)

    def _removed(self) -> bool:
        try:
            for pid in (self.group / "cgroup.procs").read_text().split():
                (self.top / "cgroup.procs").write_text(pid)
            self.group.rmdir()
        except OSError:
            return not self.group.exists()
        return True
