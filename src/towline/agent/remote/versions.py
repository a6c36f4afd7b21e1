"""Which versions of the agent lie on this machine, and which of them nobody starts any more."""

import os
import shutil
import time

from .machine import unique

#: An Engine that connects less often than this has to send its agent again.
UNUSED_S = 7 * 86400


def own():
    """The folder that we were started from."""
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def use(home):
    """Note that this version is in use."""
    if os.path.dirname(own()) == versions(home):
        try:
            os.utime(own())
        except OSError:
            pass


def versions(home):
    return os.path.join(home.root, "agent")


def swept(home, dry):
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
            if path == own() or os.stat(path).st_mtime >= before or is_queued(home, name):
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


def files(top):
    return [os.path.join(folder, name) for folder, _, names in os.walk(top) for name in names]


def is_queued(home, name):
    """Whether something that waits in another queue will be started by this version."""
    top = home.root + "/handed"
    for key in os.listdir(top) if os.path.isdir(top) else ():
        try:
            if os.path.basename(os.readlink(top + "/" + key + "/agent")) == name:
                return True
        except OSError:
            continue  # a task of an array has none of its own
    return False
