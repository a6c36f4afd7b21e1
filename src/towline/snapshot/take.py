"""A snapshot: the exact state of a tree, named by its content."""

import errno
import os
import stat
import threading
import time
from collections.abc import Callable

from msgspec import Struct

from towline.config.settings import SnapshotSettings
from towline.errors import UsageError
from towline.model.units import format_memory
from towline.snapshot.blobs import BlobStore, PresentBlobs
from towline.snapshot.collecting import BlobCollection, Offer
from towline.snapshot.entries import Entry, canonical
from towline.snapshot.folder import IGNORE_FILE, Tree, list_tree

#: A file changed again within one tick of its clock looks the same as before.
FINE_TICK_NS = 50_000_000
COARSE_TICK_NS = 2_100_000_000
MB = 1 << 20


class Snapshot(Struct, frozen=True):
    """What travels to a machine."""

    id: str
    #: Where the command runs in it.
    subfolder: str
    entries: list[Entry]
    #: Hash -> size in bytes.
    sizes: dict[str, int]
    #: Number of files and their bytes in all.
    files: int
    bytes: int
    #: The blobs that hold the contents.
    store: BlobStore


class HashCache:
    """Remembers what files hashed to, so that nothing unchanged is read again."""

    def __init__(self, most: int = 200_000, now_ns: Callable[[], int] = time.time_ns) -> None:
        self.most = most
        #: How many files were opened and read so far.
        self.reads = 0
        self._now_ns = now_ns
        self._known: dict[str, tuple[tuple[int, ...], str]] = {}
        self._lock = threading.Lock()

    def get(self, path: str, found: os.stat_result) -> str | None:
        known = self._known.get(path)
        return known[1] if known is not None and known[0] == _signature(found) else None

    def put(self, path: str, found: os.stat_result, digest: str) -> None:
        """Remember a hash, unless the file may change again without showing it."""
        newest = max(found.st_mtime_ns, found.st_ctime_ns)
        tick = FINE_TICK_NS if found.st_mtime_ns % 1_000_000_000 else COARSE_TICK_NS
        if self._now_ns() - newest < tick:
            return
        with self._lock:
            self._known.pop(path, None)
            while len(self._known) >= self.most:
                del self._known[next(iter(self._known))]
            self._known[path] = (_signature(found), digest)


def take_snapshot(
    folder: str,
    settings: SnapshotSettings,
    cache: HashCache,
    store: BlobStore,
    offer: Offer | None = None,
) -> Snapshot:
    """The state of the tree that `folder` is in, its contents safely in `store`.

    Contents that had to be read are offered at once to whoever may want them.
    """
    tree = list_tree(folder, settings)
    _check_size(tree, settings)
    sizes: dict[str, int] = {}
    paths = sorted(tree.found)
    known = _unchanged(tree, paths, cache, PresentBlobs(store), sizes)
    try:
        with BlobCollection(store, offer) as new:
            found = (known.get(path) or _entry(tree, path, cache, new, sizes) for path in paths)
            entries = [entry for entry in found if entry is not None]
        # The list of entries is a blob like any other, and its hash is the snapshot's id.
        snapshot_id = store.put_bytes(canonical(entries))
        # Whoever is told that a job was accepted need not fear a power cut.
        store.unsynced.sync()
    except OSError as error:
        raise _no_room(tree.root, error) from None
    contents = [sizes[entry[2]] for entry in entries if entry[1] in "fx"]
    return Snapshot(
        snapshot_id, tree.subfolder, entries, sizes, len(contents), sum(contents), store
    )


def _unchanged(
    tree: Tree, paths: list[str], cache: HashCache, present: PresentBlobs, sizes: dict[str, int]
) -> dict[str, Entry]:
    """The entries of files that are as they were when they were last read: mostly very many."""
    known: dict[str, Entry] = {}
    for path in paths:
        found = tree.found[path]
        digest = cache.get(f"{tree.root}/{path}", found)
        if digest is None:
            continue
        if digest not in sizes:
            if not present.has(digest, found.st_size):
                continue
            sizes[digest] = found.st_size
        known[path] = [path, "x" if found.st_mode & stat.S_IXUSR else "f", digest]
    return known


def _entry(
    tree: Tree, path: str, cache: HashCache, new: BlobCollection, sizes: dict[str, int]
) -> Entry | None:
    found = tree.found[path]
    absolute = f"{tree.root}/{path}"
    try:
        if stat.S_ISLNK(found.st_mode):
            return [path, "l", os.readlink(absolute)]
        if stat.S_ISDIR(found.st_mode):
            return [path, "d", ""]
        if stat.S_ISREG(found.st_mode):
            digest = _digest(absolute, found, cache, new, sizes)
            return [path, "x" if found.st_mode & stat.S_IXUSR else "f", digest]
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        # Became a link, or stopped being one, since it was listed: as good as gone.
        if error.errno in (errno.ELOOP, errno.EINVAL):
            return None
        raise _unreadable(tree, path, error) from None
    return None


def _digest(
    path: str, found: os.stat_result, cache: HashCache, new: BlobCollection, sizes: dict[str, int]
) -> str:
    cache.reads += 1
    digest, size, after = new.put_file(path, found.st_size)
    sizes[digest] = size
    if _signature(after) == _signature(found) and size == found.st_size:
        cache.put(path, found, digest)
    return digest


def _signature(found: os.stat_result) -> tuple[int, ...]:
    return (found.st_size, found.st_mtime_ns, found.st_ino, found.st_ctime_ns, found.st_dev)


def _unreadable(tree: Tree, path: str, error: OSError) -> UsageError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT) or error.filename is None:
        return _no_room(f"{tree.root}/{path}", error)
    return UsageError(
        f"cannot read {tree.root}/{path}: {error.strerror}",
        f"Leave it out with a line `/{path}` in {tree.root}/{IGNORE_FILE}.",
    )


def _no_room(what: str, error: OSError) -> UsageError:
    return UsageError(
        f"cannot keep a copy of {what}: {error.strerror}",
        "Make room on the disk of this machine, and try again.",
    )


def _check_size(tree: Tree, settings: SnapshotSettings) -> None:
    sizes = [
        (found.st_size, path) for path, found in tree.found.items() if stat.S_ISREG(found.st_mode)
    ]
    total = sum(size for size, _ in sizes)
    if total <= settings.limit_mb * MB:
        return
    largest = "\n".join(
        f"  {format_memory(size / MB):>9}  {path}"
        for size, path in sorted(sizes, reverse=True)[:10]
    )
    others = f"{IGNORE_FILE}{' or .gitignore' if tree.is_git else ''}"
    raise UsageError(
        f"{tree.root} holds {format_memory(total / MB)} in {len(sizes)} files, more than the "
        f"{format_memory(settings.limit_mb)} that may travel; the largest:\n{largest}",
        f"Leave files out with lines in {others} there, or raise `limit_mb` in [snapshot].",
    )
