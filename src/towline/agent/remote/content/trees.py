"""Snapshots on this machine, and the trees made from them."""

import hashlib
import json
import os

from ..home import checked_hash
from ..machine import to_path
from ..records.record import write_whole
from ..refusal import Refusal
from . import copying

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..home import Home
    from ..typed import Entry, Pause

KINDS = copying.KINDS
CannotMake = copying.CannotMake
Absent = copying.Absent


def canonical(entries: "list[Entry]") -> bytes:
    """The bytes whose SHA-256 is the snapshot's id."""
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "surrogateescape")


def store_snapshot(home: "Home", digest: "Any", entries: "list[Entry]") -> None:
    """Keep entries that were checked, if they are what they claim to be."""
    checked_hash(digest)
    text = canonical(entries)
    if hashlib.sha256(text).hexdigest() != digest:
        raise Refusal("corrupt", "the entries do not have the id %s" % digest)
    write_whole(home.snapshot(digest), text)


def checked_whole(entries: "list[Entry]") -> "list[Entry]":
    for entry in entries:
        check_entry(entry)
    check_places(entries)
    return entries


def completed(base: "list[Entry]", changed: "list[Entry]", removed: "list[str]") -> "list[Entry]":
    """The entries of a snapshot that differs from `base` in these entries and paths."""
    for entry in changed:
        check_entry(entry)
    whole = {entry[0]: entry for entry in base}
    for path in removed:
        if whole.pop(path, None) is None:
            raise Refusal("bad_request", "not in the snapshot before: %.200r" % (path,))
    whole.update({entry[0]: entry for entry in changed})
    entries = [whole[path] for path in sorted(whole)]
    check_places(entries)
    return entries


def check_places(entries: "list[Entry]") -> None:
    """Refuse whatever would be written through a link or below a file."""
    taken = {entry[0]: entry[1] for entry in entries}
    if len(taken) != len(entries):
        raise Refusal("bad_request", "a path is twice in one snapshot")
    fine = {""}
    for path in taken:
        parent = path.rpartition("/")[0]
        while parent not in fine:
            if taken.get(parent, "d") != "d":
                raise Refusal("outside", "%.200r lies below something that is no folder" % path)
            fine.add(parent)
            parent = parent.rpartition("/")[0]


def check_entry(entry: "Any") -> None:
    if not isinstance(entry, list) or [type(part) for part in entry] != [str, str, str]:
        raise Refusal("bad_request", "not a snapshot entry: %.200r" % (entry,))
    path, kind, rest = entry
    check_relative(path)
    if kind in KINDS:
        checked_hash(rest)
    elif kind == "l":
        if not rest or "\0" in rest:
            raise Refusal("bad_request", "a link to nowhere: %.200r" % path)
    elif kind != "d":
        raise Refusal("bad_request", "unknown kind %.20r of %.200r" % (kind, path))


def check_relative(path: "Any") -> None:
    parts = path.split("/")
    if "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise Refusal("outside", "not a path inside the tree: %.200r" % path)


def load_snapshot(home: "Home", digest: str) -> "list[Entry]":
    try:
        with open(home.snapshot(digest), "rb") as file:
            entries: "list[Entry]" = json.loads(file.read().decode("utf-8", "surrogateescape"))
            return entries
    except (OSError, ValueError):
        raise Absent("the snapshot %s is not on this machine" % digest[:12]) from None


def make_tree(home: "Home", entries: "list[Entry]", into: str, pause: "Pause") -> int:
    """Copy the snapshot's files below `into`; the size of the largest.

    `pause` is called now and then and may raise.
    """
    made = {""}
    files = []
    links = []
    for entry in entries:
        text, kind, _ = entry
        make_folders(into, text if kind == "d" else text.rpartition("/")[0], made)
        if kind == "l":
            links.append(entry)
        elif kind != "d":
            files.append(entry)
    largest = copying.copy_files(home, files, into, pause)
    for text, _, target in links:
        os.symlink(to_path(target), into + "/" + to_path(text))
    return largest


def make_links(into: str, links: "dict[str, str]") -> None:
    """What is too big to send is often here already."""
    for name, target in links.items():
        if target.startswith("$"):
            continue  # a variable of the job says where it leads
        place = place_of(target)
        if not os.path.exists(place):
            raise CannotMake(
                "the link %s leads to %s, which is not on this machine" % (name, target)
            )
        make_folders(into, name.rpartition("/")[0], {""})
        try:
            os.symlink(place, into + "/" + to_path(name))
        except FileExistsError:
            raise CannotMake("%s is both a file that was sent and a link" % name) from None


def place_of(target: str) -> str:
    """Where a link leads on this machine."""
    return os.path.expanduser(to_path(target))


def make_folders(into: str, text: str, made: "set[str]") -> None:
    if text in made:
        return
    make_folders(into, text.rpartition("/")[0], made)
    made.add(text)
    try:
        os.mkdir(into + "/" + to_path(text), 0o755)
    except FileExistsError:
        pass
