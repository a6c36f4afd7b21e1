"""Which versions of the agent lie on this machine, and which of them nobody starts any more."""

import os
import shutil
import time

from ..machine import PROGRAM, unique

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..home import Home
    from ..typed import Steps

#: An Engine that connects less often than this has to send its agent again.
UNUSED_S = 7 * 86400


def use(home: "Home") -> None:
    """Note that this version is in use."""
    if os.path.dirname(PROGRAM) == versions(home):
        try:
            os.utime(PROGRAM)
        except OSError:
            pass


def versions(home: "Home") -> str:
    return os.path.join(home.root, "agent")


def swept(home: "Home", dry: bool) -> "Steps[int]":
    """The bytes of versions that went, or would go; in steps."""
    freed = 0
    before = time.time() - UNUSED_S
    try:
        names = os.listdir(versions(home))
    except OSError:
        return 0
    for name in names:
        yield
        path = versions(home) + "/" + name
        try:
            if path == PROGRAM or os.stat(path).st_mtime >= before or is_queued(home, name):
                continue
            size = sum(os.path.getsize(file) for file in files(path))
            if not dry:
                aside = "%s/agent-%s" % (home.trash, unique())
                os.rename(path, aside)
                shutil.rmtree(aside, ignore_errors=True)
        except OSError:
            continue
        freed += size
    return freed


def files(top: str) -> "list[str]":
    return [os.path.join(folder, name) for folder, _, names in os.walk(top) for name in names]


def is_queued(home: "Home", name: str) -> bool:
    """Whether something that waits in another queue will be started by this version."""
    top = home.root + "/handed"
    for key in os.listdir(top) if os.path.isdir(top) else ():
        try:
            if os.path.basename(os.readlink(top + "/" + key + "/agent")) == name:
                return True
        except OSError:
            continue  # a task of an array has none of its own
    return False
