"""The store of file contents on this machine, by SHA-256."""

import hashlib
import os
import time
import zlib

from . import trees
from .record import write_all
from .refusal import Refusal

#: Uncompressed size of one chunk at most.
MOST_CHUNK = 64 << 20
STALE_S = 24 * 3600


class Partial:
    """A content of which more is to come."""

    def __init__(self, path):
        self.path = path
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self.sum = hashlib.sha256()
        self.size = 0

    def add(self, data):
        write_all(self.fd, data)
        self.sum.update(data)
        self.size += len(data)

    def drop(self):
        os.close(self.fd)
        try:
            os.unlink(self.path)
        except OSError:
            pass


class Blobs:
    def __init__(self, home):
        self.home = home
        self.partial: "dict[str, Partial]" = {}
        self.tidy()

    def tidy(self):
        """Remove what connections that broke long ago left unfinished."""
        for entry in os.scandir(self.home.partial):
            if entry.stat(follow_symlinks=False).st_mtime < time.time() - STALE_S:
                os.unlink(entry.path)

    def missing(self, request, _blob):
        hashes = list_of(request, "hashes")
        return {
            "missing": [digest for digest in hashes if not os.path.exists(self.home.blob(digest))]
        }

    def blob(self, request, data):
        digest, offset = request.get("hash"), request.get("offset", 0)
        place = self.home.blob(digest)
        if request.get("z"):
            data = inflate(data)
        if offset == 0 and digest in self.partial:
            self.partial.pop(digest).drop()
        partial = self.partial.get(digest)
        if partial is None:
            if offset:
                raise Refusal("bad_offset", "chunk at %r, but nothing came before it" % (offset,))
            partial = Partial("%s/%s.%d" % (self.home.partial, digest, os.getpid()))
            self.partial[digest] = partial
        try:
            self.add(partial, digest, offset, data, request.get("last", True), place)
        except BaseException:
            if self.partial.pop(digest, None) is not None:
                partial.drop()
            raise
        return {}

    def add(self, partial, digest, offset, data, last, place):
        if offset != partial.size:
            text = "chunk at %r, but %d bytes came before it" % (offset, partial.size)
            raise Refusal("bad_offset", text)
        partial.add(data)
        if not last:
            return
        if partial.sum.hexdigest() != digest:
            raise Refusal("corrupt", "the content does not have the hash %s" % digest)
        os.makedirs(os.path.dirname(place), 0o700, exist_ok=True)
        os.rename(partial.path, place)
        del self.partial[digest]
        os.close(partial.fd)

    def snapshot(self, request, _blob):
        trees.store_snapshot(self.home, request.get("snapshot"), request.get("entries"))
        return {}

    def have_snapshot(self, request, _blob):
        return {"have": os.path.exists(self.home.snapshot(request.get("snapshot")))}


def inflate(data):
    engine = zlib.decompressobj()
    try:
        plain = engine.decompress(data, MOST_CHUNK)
    except zlib.error as problem:
        raise Refusal("corrupt", "a chunk does not decompress: %s" % problem) from None
    if engine.unconsumed_tail or not engine.eof:
        raise Refusal("corrupt", "a chunk is cut short or too long")
    return plain


def list_of(request, name):
    value = request.get(name)
    if not isinstance(value, list):
        raise Refusal("bad_request", "`%s` is not a list" % name)
    return value
