"""Lists of files with what is in the short ones: one answer follows the other in one flow.

Whoever asks need not know where the next answer begins, so he asks for several ahead, and a folder
of many short files takes one round trip.
"""

import collections
import hashlib
import os
import stat

from ..machine import to_text
from ..refusal import Refusal
from . import changes
from .files import SHORT, PathsInside, described, kind_of, open_in_place, squeezed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from ..home import Home
    from ..typed import Message
    from .files import FileOperations

#: One answer holds so much, and names no more than so many.
MOST_TOGETHER = 256 << 10
MOST_NAMED = 500
#: Of more than this the oldest is forgotten: nobody may want it any more.
MOST_OPEN = 16
OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Gathering:
    def __init__(self, home: "Home", files: "FileOperations") -> None:
        self.home = home
        self.files = files
        #: Flow -> what of its list has not been told.
        self.open: "collections.OrderedDict[int, Any]" = collections.OrderedDict()

    def gather(self, request: "Message", _blob: bytes) -> "tuple[Message, bytes]":
        """The next files of a list; those that are short have their contents behind each other.

        `got` of a file says how much of the bytes is its own. What cannot be read has none: that
        is told to whoever asks for it by its name.
        """
        flow = request["flow"]
        if request.get("first"):
            self.open[flow] = self.begun(request)
            if len(self.open) > MOST_OPEN:
                self.open.popitem(last=False)
        if flow not in self.open:
            raise Refusal("bad_request", "no such list is being told")
        entries, contents, is_over = some_of(self.open[flow])
        if is_over:
            del self.open[flow]
        together = b"".join(contents)
        answer: "dict[str, Any]" = {"files": entries, "more": not is_over}
        answer["sha256"] = hashlib.sha256(together).hexdigest()
        return squeezed(request, answer, together)

    def begun(self, request: "Message") -> "Iterator[tuple[Message, str | None]]":
        """The files with their places; what is wrong with the list as a whole is said now."""
        if request.get("of") == "changed":
            return self.changed(request)
        top = self.files.place(request)
        facts = os.lstat(top)
        if stat.S_ISDIR(facts.st_mode):
            os.listdir(top)  # says so when it is not ours to read
            return walked(top, "")
        if not stat.S_ISREG(facts.st_mode):
            raise Refusal("denied", "%s is not a plain file" % request["path"])
        return iter([(described("", facts), top)])

    def changed(self, request: "Message") -> "Iterator[tuple[Message, str | None]]":
        place, spec = self.files.known(request)
        places = PathsInside(*self.files.room(request))
        return (
            (entry, where(places, entry["name"]))
            for entry in changes.listed(self.home, place, spec)
        )


def where(places: "PathsInside", name: str) -> "str | None":
    try:
        return places.of(name, followed=False)
    except (OSError, Refusal):
        return None


def walked(folder: str, above: str) -> "Iterator[tuple[Message, str | None]]":
    """Everything below a folder but folders: files first, then what is further down."""
    folders = []
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError:
        return  # gone meanwhile, or not ours to read
    for entry in entries:
        name = above + entry.name
        try:
            facts = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(facts.st_mode):
                folders.append((entry.path, name + "/"))
                continue
            about = described(name, facts)
            if about["kind"] == "link":
                about["target"] = to_text(os.readlink(entry.path))
        except OSError:
            continue  # gone meanwhile
        yield about, entry.path
    for path, name in folders:
        yield from walked(path, name)


def some_of(
    found: "Iterator[tuple[Message, str | None]]",
) -> "tuple[list[Message], list[bytes], bool]":
    """The next files, the contents of the short ones, and whether these are the last."""
    entries: "list[dict[str, Any]]" = []
    contents: "list[bytes]" = []
    size = 0
    for entry, place in found:
        entries.append(entry)
        if entry["kind"] == "file" and entry["size"] <= SHORT and place is not None:
            content = short_content(place)
            if content is not None:
                entry["got"] = entry["size"] = len(content)
                contents.append(content)
                size += len(content)
        if size > MOST_TOGETHER - SHORT or len(entries) == MOST_NAMED:
            return entries, contents, False
    return entries, contents, True


def short_content(place: str) -> "bytes | None":
    """All of a plain file; None if it is none, or is not short any more."""
    try:
        fd = open_in_place(place, OPEN)
    except (OSError, Refusal):
        return None
    try:
        if kind_of(os.fstat(fd).st_mode) != "file":
            return None
        content = os.read(fd, SHORT + 1)
        return content if len(content) <= SHORT else None
    except OSError:
        return None
    finally:
        os.close(fd)
