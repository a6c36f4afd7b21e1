"""Folders to be removed, a little at a time, so that the agent stays responsive."""

import os
import time

from ..machine import unique

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterator

    from ..home import Home
    from ..loop import Loop
    from ..typed import Timer

STEP_S = 0.01
#: Begins the name of what may yet be put back, and how long that takes at most.
ASIDE = "aside-"
PUT_BACK_S = 60.0


class Trash:
    def __init__(self, loop: "Loop", home: "Home") -> None:
        self.loop = loop
        self.home = home
        self.todo: "Iterator[None] | None" = None
        self.more = False
        self.timer: "Timer | None" = loop.later(1.0, self.step)

    def add(self, folder: str, key: str) -> None:
        """Out of sight at once, removed soon."""
        try:
            os.rename(folder, "%s/%s.%s" % (self.home.trash, key, unique()))
        except FileNotFoundError:
            return
        self.more = True
        if self.timer is None:
            # At once: somebody may just make room for the job that he starts next.
            self.timer = self.loop.later(0.0, self.step)

    def step(self) -> None:
        self.timer = None
        if self.todo is None:
            self.more = False
            self.todo = removals(self.home.trash)
        until = time.monotonic() + STEP_S
        for _ in self.todo:
            if time.monotonic() > until:
                self.timer = self.loop.later(STEP_S, self.step)
                return
        self.todo = None
        if self.more:
            self.timer = self.loop.later(STEP_S, self.step)


def thrown_away(home: "Home", path: str, before: float) -> bool:
    """False if somebody used the file since a time, be it at this very moment: it stays."""
    aside = home.trash + "/" + ASIDE + unique()
    try:
        os.rename(path, aside)
        if os.stat(aside).st_mtime >= before:
            os.rename(aside, path)
            return False
        os.unlink(aside)
    except FileNotFoundError:
        return False
    return True


def removals(top: str) -> "Iterator[None]":
    """Remove everything below `top`, yielding between files."""
    for folder, folders, names in os.walk(top, topdown=False):
        for name in names:
            if folder == top and may_be_put_back(top + "/" + name):
                continue
            remove(os.unlink, os.path.join(folder, name))
            yield
        for name in folders:
            path = os.path.join(folder, name)
            remove(os.unlink if os.path.islink(path) else os.rmdir, path)
            yield


def may_be_put_back(path: str) -> bool:
    """Another agent looks at this very moment whether somebody used the file since."""
    if not os.path.basename(path).startswith(ASIDE):
        return False
    try:
        # Renaming it changed this time, and no other.
        return abs(time.time() - os.lstat(path).st_ctime) < PUT_BACK_S
    except OSError:
        return True


def remove(how: "Callable[[str], None]", path: str) -> None:
    try:
        how(path)
    except PermissionError:
        try:  # a job may leave folders that forbid changes
            os.chmod(os.path.dirname(path), 0o700)
            how(path)
        except OSError:
            pass
    except OSError:
        pass
