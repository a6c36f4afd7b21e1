"""How much job folders take, and removing contents that nothing here refers to any more.

A snapshot is in use while a job folder refers to it, or while an Engine may rely on its being here:
what a connection names is kept fresh until that connection asks for a sweep. Everything happens in
small steps between which the agent serves others.
"""

import os
import time

from ..content import trees
from ..content.blobs import freshen
from ..home import HASH, checked_key
from ..records import record
from ..refusal import Refusal
from . import leftovers, repacking, shrinking, versions
from .trash import thrown_away

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator

    from ..home import Home
    from ..loop import Loop
    from ..typed import Message, Operation, Refuse, Reply, Steps

STEP_S = 0.01
#: How many folders are measured for one answer.
MOST_FOLDERS = 2000
MOST_KNOWN = 50000
RENEW_S = 1800
BLOCK = 512


class Sweeping:
    def __init__(
        self,
        loop: "Loop",
        home: "Home",
        reply: "Reply",
        refuse: "Refuse",
        is_busy: "Callable[[str], bool]" = lambda key: False,
    ) -> None:
        self.loop = loop
        #: Tells whether a command is running in the folder of a job.
        self.is_busy = is_busy
        self.home = home
        self.reply = reply
        self.refuse = refuse
        #: key -> bytes of the folder of a job that has ended.
        self.known: "dict[str, int]" = {}
        #: Snapshots that the other side named since it last asked for a sweep.
        self.named: "set[str]" = set()
        versions.use(home)
        loop.later(RENEW_S, self.renew)

    def operations(self, others: "dict[str, Operation]") -> "dict[str, Operation]":
        """Our operations, and those of `others` that tell what is in use."""
        table: "dict[str, Operation]" = {"sizes": self.sizes, "sweep": self.sweep}
        table.update({"shrink": self.shrink, "disk": self.disk})
        table["start"] = noting(self.note_jobs, others["start"])
        for name in ("have_snapshot", "snapshot"):
            table[name] = noting(self.note_snapshot, others[name])
        return table

    # What is in use

    def note_snapshot(self, request: "Message") -> None:
        self.name(request.get("snapshot"))
        if request.get("base") is not None:
            self.note_base(request["base"])

    def note_base(self, base: "Any") -> None:
        self.name(base)
        if not os.path.exists(self.home.snapshot(base)):
            raise Refusal("no_base", "the snapshot %.12s is not on this machine" % base)

    def note_jobs(self, request: "Message") -> None:
        for spec in request.get("jobs") or ():
            if isinstance(spec, dict):
                self.name(spec.get("snapshot"))
                self.name(spec.get("keep"))

    def name(self, digest: "Any") -> None:
        if is_hash(digest) and digest not in self.named:
            self.named.add(digest)
            freshen(self.home.snapshot(digest))

    def renew(self) -> None:
        """Agents of other Engines know of our connection only by the times of the files."""
        for digest in self.named:
            freshen(self.home.snapshot(digest))
        versions.use(self.home)
        self.loop.later(RENEW_S, self.renew)

    # In small steps

    def begin(self, number: int, steps: "Steps[Message]") -> None:
        self.loop.later(0.0, lambda: self.step(number, steps))

    def step(self, number: int, steps: "Steps[Message]") -> None:
        until = time.monotonic() + STEP_S
        try:
            while time.monotonic() < until:
                next(steps)
        except StopIteration as done:
            self.reply(number, done.value)
        except Exception as problem:
            self.refuse(number, Refusal("failed", "%s" % problem))
        else:
            self.loop.later(STEP_S, lambda: self.step(number, steps))

    # How much there is

    def sizes(self, request: "Message", _blob: bytes) -> None:
        """[key, bytes on disk, ended] of job folders, by key; `after` goes on where one ended."""
        prefix, after = checked_key(request.get("prefix")), request.get("after", "")
        names = sorted(
            name for name in self.home.keys() if name.startswith(prefix) and name > after
        )
        more = len(names) > MOST_FOLDERS
        self.begin(request["id"], self.measured(names[:MOST_FOLDERS], more))

    def measured(self, names: "list[str]", more: bool) -> "Steps[Message]":
        found: "list[list[Any]]" = []
        if len(self.known) > MOST_KNOWN:
            self.known.clear()
        for name in names:
            ended = os.path.exists(self.home.record(name) + "/exit")
            size = self.known.get(name) if ended else None
            if size is None:
                size = yield from disk_use(self.home.job(name))
                size += yield from disk_use(self.home.new_record(name))
            if ended:
                self.known[name] = size
            found.append([name, size, ended or leftovers.never_began(self.home, name)])
            yield
        return {"folders": found, "more": more}

    def disk(self, request: "Message", _blob: bytes) -> None:
        """How much all of ours takes, and how much is free."""
        self.begin(request["id"], self.all_of_it())

    def all_of_it(self) -> "Steps[Message]":
        space = os.statvfs(self.home.root)
        jobs = yield from disk_use(self.home.jobs)
        jobs += yield from disk_use(self.home.records)
        total = yield from disk_use(self.home.root)
        return {
            "jobs": jobs,
            "folders": len(os.listdir(self.home.jobs)),
            "contents": max(0, total - jobs),
            "free": space.f_bavail * space.f_frsize,
        }

    # Away with it

    def shrink(self, request: "Message", _blob: bytes) -> None:
        """Reduce the folders of jobs that have ended to what they made."""
        keys = [checked_key(key) for key in request.get("keys") or ()]
        for key in keys:
            self.known.pop(key, None)
        self.begin(request["id"], shrinking.shrunk(self.home, keys, self.is_busy))

    def sweep(self, request: "Message", _blob: bytes) -> None:
        """Remove snapshots and contents unused for `unused_s`; `dry` only counts them.

        `without` are keys of job folders that are counted as gone. If what nothing refers to takes
        more than `keep` bytes, it goes when it was unused for `full_s`.
        """
        unused_s = request.get("unused_s")
        if not isinstance(unused_s, (int, float)) or unused_s < 0:
            raise Refusal("bad_request", "`unused_s` is not a time")
        dry = bool(request.get("dry"))
        without = {checked_key(key) for key in request.get("without") or ()}
        if not dry:
            self.named.clear()
        times = [time.time() - seconds for seconds in (unused_s, request.get("full_s", unused_s))]
        self.begin(request["id"], self.swept_to(times, request.get("keep"), dry, without))

    def swept_to(
        self, times: "list[float]", keep: "int | None", dry: bool, without: "set[str]"
    ) -> "Steps[Message]":
        before, when_full = times
        if keep is not None and when_full > before:
            unneeded = yield from self.swept(when_full, True, without)
            if unneeded["bytes"] > keep:
                before = when_full
        gone = yield from self.swept(before, dry, without)
        gone["bytes"] += yield from leftovers.swept(self.home, before, dry, without)
        gone["bytes"] += yield from versions.swept(self.home, dry)
        return gone

    def swept(self, before: float, dry: bool, without: "set[str]") -> "Steps[Message]":
        needed = yield from self.needed(without)
        blobs: "set[str]" = set()
        gone = {"snapshots": 0, "blobs": 0, "bytes": 0}
        for name in os.listdir(self.home.snapshots):
            yield
            digest = name[: -len(".json")]
            size = None
            if digest not in needed:
                size = self.remove(self.home.snapshots + "/" + name, before, dry)
            if size is not None:
                gone["snapshots"] += 1
                gone["bytes"] += size
            elif HASH.match(digest):
                blobs.update(contents(self.home, digest))
        for path in self.unneeded(blobs):
            size = self.remove(path, before, dry) if path else None
            if size is not None:
                gone["blobs"] += 1
                gone["bytes"] += size
            yield
        count, freed = yield from repacking.swept(self.home, blobs, before, dry)
        gone["blobs"] += count
        gone["bytes"] += freed
        return gone

    def needed(self, without: "set[str]") -> "Steps[set[str]]":
        """The snapshots that job folders refer to."""
        needed: "set[Any]" = set()
        for name in self.home.keys():
            yield
            spec = None if name in without else record.read_spec(self.home.record(name))
            if isinstance(spec, dict):
                needed.update((spec.get("snapshot"), spec.get("keep")))
        return needed

    def unneeded(self, needed: "set[str]") -> "Iterator[str]":
        """Paths of the contents that are not `needed`; "" between them, to pause at."""
        for shelf in os.listdir(self.home.blobs):
            if len(shelf) != 2:
                continue
            folder = self.home.blobs + "/" + shelf
            for name in os.listdir(folder):
                wanted = shelf + name in needed or not HASH.match(shelf + name)
                yield "" if wanted else folder + "/" + name

    def remove(self, path: str, before: float, dry: bool) -> "int | None":
        """Its bytes on disk when it went; what somebody uses at this very moment stays."""
        try:
            facts = os.stat(path)
        except FileNotFoundError:
            return None
        if facts.st_mtime >= before or not (dry or thrown_away(self.home, path, before)):
            return None
        return facts.st_blocks * BLOCK


def noting(note: "Callable[[Message], None]", operation: "Operation") -> "Operation":
    def noted(request: "Message", blob: bytes) -> "Any":
        note(request)
        return operation(request, blob)

    return noted


def is_hash(digest: "Any") -> bool:
    return isinstance(digest, str) and HASH.match(digest) is not None and len(digest) == 64


def contents(home: "Home", digest: str) -> "list[str]":
    """The hashes of all files in a snapshot."""
    try:
        entries = trees.load_snapshot(home, digest)
    except trees.CannotMake:
        return []
    return [rest for _, kind, rest in entries if kind in trees.KINDS]


def disk_use(top: str) -> "Steps[int]":
    """Bytes on disk below `top`, found in steps."""
    total = 0
    for folder, folders, names in os.walk(top):
        for name in folders + names:
            try:
                total += os.lstat(folder + "/" + name).st_blocks * BLOCK
            except OSError:
                pass  # gone meanwhile
            yield
    return total
