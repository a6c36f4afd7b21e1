"""What a job made or changed below its working folder.

A file of the snapshot is known to be unchanged if it was last changed while the job's tree was
being made. All others are compared by their contents, so that neither a coarse clock nor one that
was put back brings home too much or too little.
"""

import hashlib
import itertools
import json
import os
import stat
import time

from ..machine import to_path, to_text, unique
from ..records.record import remove
from . import trees

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Iterator

    from ..home import Home, JobPlace
    from ..typed import Message, Pause, Spec

#: Last written to before the job's tree was made, last changed when that was complete.
MARK = "/made"
#: One line for each file: listed at the job's end, and for those who ask before.
LIST, LIST_SO_FAR = "/changed", "/changed.now"
#: Nobody wants these at home.
NEVER = frozenset(("__pycache__", ".git", "job_results"))
#: So many are told in one answer.
MOST = 5000
#: Comparing a larger file takes longer than waiting until the clock of its disk has moved on.
LARGE = 16 << 20
TICK_S = 0.002
#: The coarsest clock of a file system.
MOST_TICK_S = 2.1
#: A clock that seems to be put back by less than this was only measured badly.
STEP_S = 0.05
PIECE = 1 << 20
#: A folder that nobody may look into is told as well: it is missed at home, with a remark.
WANTED = (stat.S_IFREG, stat.S_IFLNK, stat.S_IFDIR)


def begin(record: str) -> None:
    """Before the first file of the job's tree is made."""
    fd = os.open(record + MARK, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, b"%.6f" % clock_ahead())
    finally:
        os.close(fd)


def complete(record: str, largest: int, pause: "Pause") -> None:
    """After the last one: whatever changes from now on is the job's doing."""
    path = record + MARK
    os.chmod(path, 0o600)
    if largest <= LARGE:
        return
    at, until = os.stat(path).st_ctime_ns, time.monotonic() + MOST_TICK_S
    while os.stat(path).st_ctime_ns == at and time.monotonic() < until:
        time.sleep(TICK_S)
        pause()
        os.chmod(path, 0o600)


def clock_ahead() -> float:
    """Seconds between the clock that can be put back and the one that cannot."""
    return time.time() - time.monotonic()


class Window:
    """When the job's tree was made, by the clock of its disk."""

    def __init__(self, record: str) -> None:
        facts = os.stat(record + MARK)
        self.first, self.last = facts.st_mtime_ns, facts.st_ctime_ns
        if not facts.st_size:
            self.first = 0  # an older version made its mark when the tree was complete
        elif clock_ahead() < read_number(record + MARK) - STEP_S:
            self.first = self.last  # the clock was put back: no time tells anything

    def has(self, facts: "os.stat_result") -> bool:
        return self.first <= facts.st_ctime_ns < self.last


def read_number(path: str) -> float:
    try:
        with open(path, "rb") as file:
            return float(file.read(100))
    except (OSError, ValueError):
        return 0.0


def keep(home: "Home", place: "JobPlace", spec: "Spec") -> int:
    """List what the job made, for whoever fetches it; how many files that are, -1 if unknown."""
    try:
        return write_list(home, place, spec, place.record + LIST)
    except OSError:
        return -1  # no room for the list: it is made when somebody asks for it


def write_list(home: "Home", place: "JobPlace", spec: "Spec", path: str) -> int:
    """One line for each file; nothing is written where there is none."""
    found = changed(home, place, spec)
    first = next(found, None)
    if first is None:
        return 0
    count, beside = 0, "%s.%s.new" % (path, unique())
    try:
        with open(beside, "w", encoding="ascii") as file:
            for entry in itertools.chain((first,), found):
                file.write(json.dumps(entry) + "\n")
                count += 1
        os.rename(beside, path)
    except OSError:
        remove(beside)
        raise
    return count


def page(
    home: "Home", place: "JobPlace", spec: "Spec", after: int
) -> "tuple[list[Message], int | None]":
    """Some of the files from a place in the list on, and the place of the next; None: no more."""
    try:
        return page_of(place.record + LIST, after)
    except (OSError, ValueError):
        pass
    so_far = place.record + LIST_SO_FAR
    try:
        if not after and not write_list(home, place, spec, so_far):
            return [], None
        return page_of(so_far, after)
    except OSError:
        # No room for a list: found anew for each page, and the place of one is its number.
        remove(so_far)
        found = list(itertools.islice(changed(home, place, spec), after, after + MOST + 1))
        return found[:MOST], after + MOST if len(found) > MOST else None


def listed(home: "Home", place: "JobPlace", spec: "Spec") -> "Iterator[Message]":
    """All of them, as they were listed at the job's end, or as they are now."""
    try:
        file = open(place.record + LIST, "rb")
    except OSError:
        yield from changed(home, place, spec)
        return
    with file:
        for line in file:
            entry = json.loads(line.decode("ascii"))
            # An older version wrote all of them as one.
            yield from entry if isinstance(entry, list) else (entry,)


def page_of(path: str, after: int) -> "tuple[list[Message], int | None]":
    with open(path, "rb") as file:
        if file.read(1) == b"[":  # an older version wrote all of them as one
            file.seek(0)
            whole = json.loads(file.read().decode("ascii"))
            following = after + MOST
            return whole[after:following], following if following < len(whole) else None
        file.seek(after)
        lines = list(itertools.islice(file, MOST))
        entries = [json.loads(line.decode("ascii")) for line in lines]
        following = file.tell()
        is_last = len(lines) < MOST or following >= os.fstat(file.fileno()).st_size
        return entries, None if is_last else following


def changed(home: "Home", place: "JobPlace", spec: "Spec") -> "Iterator[Message]":
    """The files below the working folder that are not as the snapshot made them."""
    if spec.get("folder"):
        return  # it ran in a folder of the user's own: everything is home already
    source = place.job + "/src"
    top = source
    if spec["cwd"]:
        top = os.path.normpath(top + "/" + to_path(spec["cwd"]))
    window = known = None
    for path, facts in found_below(top):
        if window is None:
            try:
                window = Window(place.record)
            except OSError:
                return
        if window.has(facts) or stat.S_IFMT(facts.st_mode) not in WANTED:
            continue
        if known is None:
            known = contents(home, spec)
        if known and is_unchanged(known.get(to_text(below(source, path))), path, facts):
            continue
        try:
            yield described(to_text(below(top, path)) or ".", path, facts)
        except OSError:
            continue  # gone meanwhile


def below(folder: str, path: str) -> str:
    """The path of what was found by walking through a folder, as seen from there."""
    return path[len(folder) + 1 :]


def found_below(top: str) -> "Iterator[tuple[str, os.stat_result]]":
    """Everything but folders, with its facts; and folders that nobody may look into."""
    shut: "list[str]" = []
    for place, folders, names in os.walk(top, onerror=lambda error: shut.append(error.filename)):
        folders[:] = [name for name in folders if name not in NEVER]
        links = [name for name in folders if os.path.islink(place + "/" + name)]
        yield from with_facts(place + "/" + name for name in names + links)
    yield from with_facts(shut)


def with_facts(paths: "Iterable[str]") -> "Iterator[tuple[str, os.stat_result]]":
    for path in paths:
        try:
            facts = os.lstat(path)
        except OSError:
            continue  # gone meanwhile
        yield path, facts


def described(name: str, path: str, facts: "os.stat_result") -> "Message":
    entry = {
        "name": name,
        "kind": "link" if stat.S_ISLNK(facts.st_mode) else "file",
        "size": facts.st_size,
        "mtime": facts.st_mtime,
        "mode": stat.S_IMODE(facts.st_mode),
    }
    if entry["kind"] == "link":
        entry["target"] = to_text(os.readlink(path))
    return entry


def contents(home: "Home", spec: "Spec") -> "dict[str, Any]":
    """path -> (kind, hash or target) of the snapshot the job started from."""
    known: "dict[str, Any]" = {}
    if spec["snapshot"]:
        try:
            entries = trees.load_snapshot(home, spec["snapshot"])
        except trees.CannotMake:
            entries = []
        known.update((path, (kind, rest)) for path, kind, rest in entries)
    for name, target in spec.get("links", {}).items():
        known[name] = ("l", to_text(trees.place_of(target)))
    return known


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def is_unchanged(known: "Any", path: str, facts: "os.stat_result") -> bool:
    if known is None:
        return False
    kind, rest = known
    try:
        if stat.S_ISLNK(facts.st_mode):
            return bool(kind == "l" and to_text(os.readlink(path)) == rest)
        if kind not in trees.KINDS:
            return False
        if stat.S_IMODE(facts.st_mode) != trees.KINDS[kind] & ~umask():
            return False
        return bool(hash_of(path) == rest)
    except OSError:
        return False


def hash_of(path: str) -> str:
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while True:
            piece = file.read(PIECE)
            if not piece:
                return found.hexdigest()
            found.update(piece)
