"""What a job writes outside of its folder, and wants brought home: the folder that `$NAME` names.

While it runs a link leads there, called like the variable; at its end what it changed there takes
the place of the link, so that it comes home as anything else that it made.
"""

import os
import re
import shutil
import stat

from ..machine import to_path
from .changes import MARK, NEVER

#: Larger files are linked, not copied: they are written once and then left alone.
LARGE = 16 << 20
VARIABLE = re.compile(r"\$(\w+)\Z")
HOME = re.compile(rb"(?:\$HOME|\$\{HOME\}|~(?=/))(?=/|\Z)")
USER = re.compile(rb"(?<=/)(?:\$USER|\$\{USER\})(?=/|\Z)")


def expanded(
    variables: "dict[bytes, bytes]", environ: "dict[bytes, bytes]"
) -> "dict[bytes, bytes]":
    """Values that are paths below a home are meant for the home of this machine."""
    home = environ.get(b"HOME") or os.fsencode(os.path.expanduser("~"))
    user = environ.get(b"USER") or environ.get(b"LOGNAME") or b""
    found = {}
    for name, value in variables.items():
        at = HOME.match(value)
        if at:
            value = home + value[at.end() :]
        if user and value.startswith(b"/"):
            value = USER.sub(lambda _: user, value)
        found[name] = value
    return found


def named(links: "dict[str, str]") -> "dict[str, str]":
    """Name in the job's folder -> the variable that says where it leads."""
    found = {name: VARIABLE.match(target) for name, target in links.items()}
    return {name: match.group(1) for name, match in found.items() if match}


def make_links(source: str, links: "dict[str, str]", environ: "dict[bytes, bytes]") -> None:
    """Have a link to each such folder, which is made where it is not there yet."""
    for name, variable in named(links).items():
        place = source + "/" + to_path(name)
        path = path_of(source, variable, environ)
        if not path or os.path.lexists(place):
            continue
        try:
            os.makedirs(path, exist_ok=True)
            os.symlink(path, place)
        except OSError:
            pass  # the job itself will say what is wrong with it


def gather(
    source: str, record: str, links: "dict[str, str]", environ: "dict[bytes, bytes]"
) -> None:
    """Put what the job changed there into the place of each link."""
    since = os.stat(record + MARK).st_mtime_ns
    for name, variable in named(links).items():
        place = source + "/" + to_path(name)
        path = path_of(source, variable, environ)
        if path and os.path.islink(place):
            os.unlink(place)
            bring(path, place, since)


def path_of(source: str, variable: str, environ: "dict[bytes, bytes]") -> str:
    value = os.fsdecode(environ.get(variable.encode(), b""))
    return os.path.join(source, value) if value else ""


def bring(top: str, place: str, since: int) -> None:
    own = os.path.realpath(os.path.dirname(place))
    for folder, folders, names in os.walk(top):
        folders[:] = [
            name
            for name in folders
            if name not in NEVER and os.path.realpath(folder + "/" + name) != own
        ]
        into = os.path.join(place, os.path.relpath(folder, top))
        for name in names:
            facts = os.lstat(folder + "/" + name)
            if stat.S_ISREG(facts.st_mode) and max(facts.st_mtime_ns, facts.st_ctime_ns) >= since:
                os.makedirs(into, exist_ok=True)
                take(folder + "/" + name, os.path.join(into, name), facts.st_size)


def take(path: str, place: str, size: int) -> None:
    try:
        if size > LARGE:
            os.link(path, place)
            return
    except OSError:
        pass  # another file system
    try:
        shutil.copy2(path, place)
    except OSError:
        pass  # gone meanwhile, or not ours to read
