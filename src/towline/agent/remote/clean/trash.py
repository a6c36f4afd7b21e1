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

    def add(self, folder: str, key: str) -> bool:
        """Out of sight at once, removed soon; False where it cannot be moved."""
        aside = "%s/%s.%s" % (self.home.trash, key, unique())
        try:
            remove(lambda path: os.rename(path, aside), folder)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        self.more = True
        if self.timer is None:
            # At once: somebody may just make room for the job that he starts next.
            self.timer = self.loop.later(0.0, self.step)
        return True

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
    closed: "set[str]" = set()
    while True:
        shut: "set[str]" = set()
        yield from removed(top, lambda problem: shut.add(problem.filename))
        # What a job forbade to look into is opened, once.
        again = [path for path in shut - closed if opened(path)]
        if not again:
            return
        closed.update(again)


def removed(top: str, onerror: "Callable[[OSError], None]") -> "Iterator[None]":
    for folder, folders, names in os.walk(top, topdown=False, onerror=onerror):
        for name in names:
            if folder == top and may_be_put_back(top + "/" + name):
                continue
            try_to_remove(os.unlink, os.path.join(folder, name))
            yield
        for name in folders:
            path = os.path.join(folder, name)
            try_to_remove(os.unlink if os.path.islink(path) else os.rmdir, path)
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


def try_to_remove(how: "Callable[[str], None]", path: str) -> None:
    try:
        remove(how, path)
    except OSError:
        pass


def remove(how: "Callable[[str], None]", path: str) -> None:
    """A job may leave folders that forbid changes."""
    try:
        how(path)
    except PermissionError:
        opened(os.path.dirname(path))
        if os.path.isdir(path) and not os.path.islink(path):
            opened(path)
        how(path)


def opened(folder: str) -> bool:
    """Whether it is ours to look into and to change now."""
    try:
        os.chmod(folder, 0o700)
    except OSError:
        return False
    return True
