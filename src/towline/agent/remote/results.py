"""What a job made or changed below its working folder."""

import hashlib
import json
import os
import stat
from typing import Any

from . import record, trees
from .machine import to_path, to_text

#: Made once the job's tree is complete: whatever changes later is the job's doing.
MARK = "/made"
LIST = "/changed"
#: Nobody wants these at home.
NEVER = frozenset(("__pycache__", ".git", "job_results"))
MOST = 100000
#: Files of the snapshot that were written to are compared up to this size.
MOST_COMPARED = 64 << 20


def mark(folder):
    os.close(os.open(folder + MARK, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def keep(home, folder, spec):
    """List what the job made, for whoever fetches it; how many files that are."""
    found = changed(home, folder, spec)
    if found:
        record.write_whole(folder + LIST, json.dumps(found).encode("ascii"))
    return len(found)


def kept(folder):
    try:
        with open(folder + LIST, "rb") as file:
            return json.loads(file.read().decode("ascii"))
    except (OSError, ValueError):
        return None


def changed(home, folder, spec):
    """The files below the working folder that are not as the snapshot made them."""
    try:
        since = os.stat(folder + MARK).st_ctime_ns
    except OSError:
        return []
    if spec.get("folder"):
        return []  # it ran in a folder of the user's own: everything is home already
    top = folder + "/src"
    if spec["cwd"]:
        top += "/" + to_path(spec["cwd"])
    known = None
    found: "list[dict[str, Any]]" = []
    for place, folders, names in os.walk(top):
        folders[:] = [name for name in folders if name not in NEVER]
        links = [name for name in folders if os.path.islink(place + "/" + name)]
        for name in names + links:
            path = place + "/" + name
            try:
                facts = os.lstat(path)
            except OSError:
                continue  # gone meanwhile
            if facts.st_ctime_ns < since or not wanted(facts):
                continue
            if known is None:
                known = contents(home, spec)
            inside = to_text(os.path.relpath(path, folder + "/src"))
            if is_unchanged(home, known.get(inside), path, facts):
                continue
            found.append(described(to_text(os.path.relpath(path, top)), path, facts))
            if len(found) == MOST:
                return found
    return found


def wanted(facts):
    return stat.S_ISREG(facts.st_mode) or stat.S_ISLNK(facts.st_mode)


def described(name, path, facts):
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


def contents(home, spec):
    """path -> (kind, hash or target) of the snapshot the job started from."""
    if not spec["snapshot"]:
        return {}
    try:
        entries = trees.load_snapshot(home, spec["snapshot"])
    except trees.CannotMake:
        return {}
    known = {path: (kind, rest) for path, kind, rest in entries}
    for name, target in spec.get("links", {}).items():
        known[name] = ("l", to_text(trees.place_of(target)))
    return known


def umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def is_unchanged(home, known, path, facts):
    if known is None:
        return False
    kind, rest = known
    if stat.S_ISLNK(facts.st_mode):
        return kind == "l" and to_text(os.readlink(path)) == rest
    if kind not in trees.KINDS or facts.st_size > MOST_COMPARED:
        return False
    if stat.S_IMODE(facts.st_mode) != trees.KINDS[kind] & ~umask():
        return False
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest() == rest
    except OSError:
        return False
