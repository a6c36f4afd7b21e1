"""Snapshots on this machine, and the trees made from them."""

import hashlib
import json
import os

from .home import checked_hash
from .machine import to_path
from .record import write_whole
from .refusal import Refusal

KINDS = {"f": 0o644, "x": 0o755}


class CannotMake(Exception):
    """The tree cannot be made; the text goes into the job's ending."""


def snapshot_id(entries):
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def store_snapshot(home, digest, entries):
    checked_hash(digest)
    check_entries(entries)
    if snapshot_id(entries) != digest:
        raise Refusal("corrupt", "the entries do not have the id %s" % digest)
    text = json.dumps(entries, separators=(",", ":")).encode("ascii")
    write_whole(home.snapshot(digest), text)


def check_entries(entries):
    """Refuse whatever could write outside the tree, or through a link in it."""
    if not isinstance(entries, list):
        raise Refusal("bad_request", "`entries` is not a list")
    taken = {}
    for entry in entries:
        check_entry(entry)
        path = entry[0]
        if path in taken:
            raise Refusal("bad_request", "twice in one snapshot: %.200r" % path)
        taken[path] = entry[1]
    for path in taken:
        parent = path.rpartition("/")[0]
        while parent:
            if taken.get(parent, "d") != "d":
                raise Refusal("outside", "%.200r lies below something that is no folder" % path)
            parent = parent.rpartition("/")[0]


def check_entry(entry):
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


def check_relative(path):
    parts = path.split("/")
    if "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise Refusal("outside", "not a path inside the tree: %.200r" % path)


def load_snapshot(home, digest):
    try:
        with open(home.snapshot(digest), "rb") as file:
            return json.loads(file.read().decode("utf-8"))
    except (OSError, ValueError):
        raise CannotMake("the snapshot %s is not on this machine" % digest[:12]) from None


def make_tree(home, entries, into, pause):
    """Copy the snapshot's files below `into`; `pause` is called between files and may raise."""
    made = {""}
    links = []
    for text, kind, rest in entries:
        pause()
        if kind == "l":
            links.append((text, rest))
            continue
        if kind == "d":
            make_folders(into, text, made)
            continue
        make_folders(into, text.rpartition("/")[0], made)
        copy_blob(home.blob(rest), into + "/" + to_path(text), KINDS[kind], text, pause)
    for text, target in links:
        make_folders(into, text.rpartition("/")[0], made)
        os.symlink(to_path(target), into + "/" + to_path(text))


def make_links(into, links):
    """What is too big to send is often here already."""
    for name, target in links.items():
        place = os.path.expanduser(to_path(target))
        if not os.path.exists(place):
            raise CannotMake(
                "the link %s leads to %s, which is not on this machine" % (name, target)
            )
        make_folders(into, name.rpartition("/")[0], {""})
        try:
            os.symlink(place, into + "/" + to_path(name))
        except FileExistsError:
            raise CannotMake("%s is both a file that was sent and a link" % name) from None


def make_folders(into, text, made):
    if text in made:
        return
    make_folders(into, text.rpartition("/")[0], made)
    made.add(text)
    try:
        os.mkdir(into + "/" + to_path(text), 0o755)
    except FileExistsError:
        pass


def copy_blob(blob, path, mode, text, pause):
    try:
        source = os.open(blob, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise CannotMake("the content of %s is not on this machine" % text) from None
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        target = os.open(path, flags, mode)
        try:
            while os.sendfile(target, source, None, 4 << 20):
                pause()
        finally:
            os.close(target)
    finally:
        os.close(source)
