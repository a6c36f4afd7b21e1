"""What was handed over to another queue, and is needed no more."""

import json
import os
import shutil

from ..home import KEY
from ..machine import unique
from ..records import status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..home import Home
    from ..typed import Steps

BLOCK = 512


def never_began(home: "Home", key: str) -> bool:
    """A process that was to run elsewhere and has not begun; without its folder it never will."""
    if not os.path.exists(home.record(key) + status.ELSEWHERE):
        return False
    return not os.path.exists(home.handed(key.rpartition("-")[0]) + "/claim")


def swept(home: "Home", before: float, dry: bool, without: "set[str]") -> "Steps[int]":
    """The bytes of what went, or would go: attempts that have no job folder any more; in steps."""
    top = home.root + "/handed"
    try:
        names = {name for name in os.listdir(top) if KEY.match(name)}
    except OSError:
        return 0
    jobs = {name.rpartition("-")[0] for name in home.keys() if name not in without}
    arrays = {}
    for name in names:
        arrays[name] = tasks_of(top + "/" + name)
        yield
    # An array goes with the last of its tasks.
    going = [
        name for name, tasks in arrays.items() if name not in jobs and not jobs.intersection(tasks)
    ]
    freed = 0
    for name in going:
        yield
        freed += removed(home, top + "/" + name, before, dry)
    return freed


def tasks_of(folder: str) -> "list[str]":
    """The attempts that are tasks of an array; of what is no array, none."""
    try:
        with open(folder + "/tasks") as file:
            return list(json.load(file).values())
    except (OSError, ValueError, AttributeError):
        return []


def removed(home: "Home", folder: str, before: float, dry: bool) -> int:
    """Its bytes, when it went; one that is just being handed over stays."""
    try:
        if os.stat(folder).st_mtime >= before:
            return 0
        size = sum(os.lstat(folder + "/" + name).st_blocks * BLOCK for name in os.listdir(folder))
        if not dry:
            aside = "%s/handed-%s" % (home.trash, unique())
            os.rename(folder, aside)
            shutil.rmtree(aside, ignore_errors=True)
    except OSError:
        return 0
    return size
