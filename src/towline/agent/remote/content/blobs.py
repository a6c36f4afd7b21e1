"""The store of file contents on this machine, by SHA-256."""

import hashlib
import os
import time
import zlib

from .. import machine
from ..home import checked_hash
from ..records.record import write_all
from ..refusal import Refusal
from . import packs, trees
from .partial import Partial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

    from ..home import Home
    from ..typed import Entry, Message

#: Uncompressed size of one chunk at most.
MOST_CHUNK = 64 << 20
STALE_S = 24 * 3600
MOST_RECENT = 8
#: What was used within this time need not be marked as used again.
FRESH_S = 600


class Blobs:
    def __init__(self, home: "Home") -> None:
        self.home = home
        self.partial: "dict[str, Partial]" = {}
        self.packs = packs.BlobPackWriter(home)
        #: The snapshot that came last, with its entries.
        self.latest: "tuple[str, list[Any]]" = ("", [])
        self.tidy()

    def tidy(self) -> None:
        """Remove what connections that broke long ago left unfinished."""
        for entry in os.scandir(self.home.partial):
            try:
                if entry.stat(follow_symlinks=False).st_mtime < time.time() - STALE_S:
                    os.unlink(entry.path)
            except FileNotFoundError:
                pass  # another agent was quicker, or has all of it now
        packs.tidy(self.home)

    def missing(self, request: "Message", _blob: bytes) -> "Message":
        """What is not here, and how much is of those that were interrupted."""
        lacking = self.lacking(list_of(request, "hashes"))
        begun = {}
        for name in set(os.listdir(self.home.partial)).intersection(lacking):
            begun[name] = os.stat(self.home.partial + "/" + name).st_size
        return {"missing": lacking, "begun": begun}

    def resume(self, request: "Message", _blob: bytes) -> "Message":
        """Go on with what an earlier connection began: ask until there is no `more`."""
        partial = self.opened(request.get("hash"))
        more = partial.look()
        return {"size": partial.size, "more": more}

    def opened(self, digest: "Any") -> "Partial":
        partial = self.partial.get(checked_hash(digest))
        if partial is None:
            partial = self.partial[digest] = Partial(self.home.partial + "/" + digest)
        return partial

    def lacking(self, digests: "Iterable[str]") -> "list[str]":
        """Those that are not here; the others count as used from now on."""
        digests = [digest for digest in digests if not freshen(self.home.blob(digest))]
        packed = packs.locate(self.home, digests)
        for pack in {place[0] for place in packed.values()}:
            freshen(packs.index_of(pack))
        return [digest for digest in digests if digest not in packed]

    def blob(self, request: "Message", data: bytes) -> "Message":
        digest, offset = checked_hash(request.get("hash")), request.get("offset", 0)
        place = self.home.blob(digest)
        if request.get("z"):
            data = inflate(data)
        partial = self.opened(digest)
        try:
            if offset == 0:
                partial.begin()
            self.add(partial, digest, offset, data, request.get("last", True), place)
        except BaseException:
            if self.partial.pop(digest, None) is not None:
                partial.drop()
            raise
        return {}

    def add(
        self, partial: "Partial", digest: str, offset: int, data: bytes, last: bool, place: str
    ) -> None:
        if offset != partial.size:
            text = "chunk at %r, but %d bytes came before it" % (offset, partial.size)
            raise Refusal("bad_offset", text)
        partial.add(data)
        if not last:
            return
        if partial.sum.hexdigest() != digest:
            raise Refusal("corrupt", "the content does not have the hash %s" % digest)
        put_in_place(partial.path, place)
        del self.partial[digest]
        partial.close()

    def blobs(self, request: "Message", data: bytes) -> "Message":
        """Many small contents in one frame, one behind the other."""
        if request.get("z"):
            data = inflate(data)
        contents = list_of(request, "contents")
        sizes = [size for _, size in contents]
        if sum(sizes) != len(data) or min(sizes, default=0) < 0:
            raise Refusal("corrupt", "the contents are cut short or too long")
        at = 0
        view = memoryview(data)
        together = len(contents) >= packs.FEWEST
        for digest, size in contents:
            content = view[at : at + size]
            if hashlib.sha256(content).hexdigest() != checked_hash(digest):
                raise Refusal("corrupt", "the content does not have the hash %s" % digest)
            if not together:
                self.keep(digest, content)
            at += size
        if together:
            self.packs.add(contents, data)
        return {}

    def keep(self, digest: str, content: "bytes | memoryview") -> None:
        """One content as a file of its own."""
        place = self.home.blob(digest)
        beside = "%s/%s.%s" % (self.home.partial, digest, machine.unique())
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            write_all(fd, content)
        except OSError:
            os.unlink(beside)
            raise
        finally:
            os.close(fd)
        put_in_place(beside, place)

    def snapshot(self, request: "Message", _blob: bytes) -> "Message":
        """The whole list of entries, or what is different from a snapshot that is here."""
        digest, entries = request.get("snapshot"), list_of(request, "entries")
        base = request.get("base")
        if base is None:
            whole = trees.checked_whole(entries)
        else:
            whole = trees.completed(self.known(base), entries, list_of(request, "removed"))
            self.check_contents(entries)
        trees.store_snapshot(self.home, digest, whole)
        self.latest = (str(digest), whole)
        return {}

    def known(self, digest: str) -> "list[Entry]":
        if self.latest[0] != digest:
            try:
                self.latest = (digest, trees.load_snapshot(self.home, digest))
            except trees.CannotMake as problem:
                raise Refusal("no_base", str(problem)) from None
        return self.latest[1]

    def check_contents(self, entries: "list[Entry]") -> None:
        """Whoever sends a difference did not ask what is missing."""
        needed = {rest: path for path, kind, rest in entries if kind in trees.KINDS}
        for digest in self.lacking(needed):
            raise Refusal("no_content", "the content of %s is not here" % needed[digest])

    def have_snapshot(self, request: "Message", _blob: bytes) -> "Message":
        answer: "Message" = {"have": os.path.exists(self.home.snapshot(request.get("snapshot")))}
        if request.get("recent"):
            answer["recent"] = recent(self.home.snapshots)
        return answer


def recent(folder: str) -> "list[str]":
    """Ids of the newest snapshots, the newest first: a new one is mostly like one of them."""
    found = []
    for entry in os.scandir(folder):
        name, dot, kind = entry.name.partition(".")
        if dot and kind == "json":
            found.append((entry.stat(follow_symlinks=False).st_mtime, name))
    return [name for _, name in sorted(found, reverse=True)[:MOST_RECENT]]


def freshen(path: str) -> bool:
    """Whether it is there; if so, it counts as used from now on."""
    try:
        if os.stat(path).st_mtime < time.time() - FRESH_S:
            os.utime(path)
    except OSError:
        return False
    return True


def put_in_place(beside: str, place: str) -> None:
    try:
        os.rename(beside, place)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(place), 0o700, exist_ok=True)
        os.rename(beside, place)


def inflate(data: bytes) -> bytes:
    engine = zlib.decompressobj()
    try:
        plain = engine.decompress(data, MOST_CHUNK)
    except zlib.error as problem:
        raise Refusal("corrupt", "a chunk does not decompress: %s" % problem) from None
    if engine.unconsumed_tail or not engine.eof:
        raise Refusal("corrupt", "a chunk is cut short or too long")
    return plain


def list_of(request: "Message", name: str) -> "list[Any]":
    value = request.get(name)
    if not isinstance(value, list):
        raise Refusal("bad_request", "`%s` is not a list" % name)
    return value
