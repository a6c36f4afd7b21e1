"""Files of a job: look, fetch, put; never outside its folder."""

import errno
import hashlib
import os
import stat
import zlib

from ..home import checked_key
from ..machine import to_path, to_text
from ..records import record
from ..refusal import Refusal
from . import changes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..home import Home, JobPlace
    from ..typed import Message, Operation, Spec

MOST_PIECE = 256 << 10
#: Of many files in one message.
MOST_TOGETHER = 1 << 20
#: A file up to this size travels whole, with its name.
SHORT = 64 << 10
#: What has not arrived whole has this behind its name.
PART = ".towline-part"
MOST_ENTRIES = 10000
MOST_WALKED = 100000
#: Says nothing of the file: whoever asks again in a while may have it.
FOR_A_MOMENT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE)


class FileOperations:
    def __init__(self, home: "Home") -> None:
        self.home = home

    def operations(self) -> "dict[str, Operation]":
        return {
            name: self.refusing(getattr(self, name))
            for name in ("list", "stat", "get", "get_many", "put", "put_many", "walk", "changed")
        }

    def refusing(self, operation: "Operation") -> "Operation":
        """Turn what the system says into what the other side is told."""

        def answer(request: "Message", blob: bytes) -> "Any":
            try:
                return operation(request, blob)
            except OSError as problem:
                raise refusal_of(problem, request.get("path", "")) from None

        return answer

    def place(self, request: "Message") -> str:
        """The real path that is meant, which lies in the job's folder whatever links there are."""
        folder, start = self.room(request)
        return inside(folder, start, request.get("path", ""))

    def room(self, request: "Message") -> "tuple[str, str]":
        """The folder that is never left, and the one in it from where paths lead."""
        key = checked_key(request.get("key"))
        spec = record.read_spec(self.home.record(key))
        if spec is None:
            raise Refusal("unknown_job", "no job %s on this machine" % key)
        folder = os.path.realpath(self.home.job(spec["at"] or key))
        start = os.path.join(folder, "src", to_path(spec["cwd"]))
        if request.get("kept"):
            folder = start = os.path.join(folder, "keep")
        elif spec.get("folder"):
            folder = start = os.path.realpath(to_path(spec["folder"]))
        return folder, start

    def list(self, request: "Message", _blob: bytes) -> "Message":
        entries: "list[dict[str, Any]]" = []
        folder, start = self.room(request)
        with os.scandir(inside(folder, start, request.get("path", ""))) as found:
            for entry in found:
                if len(entries) == MOST_ENTRIES:
                    return {"entries": entries, "more": True}
                about = described(entry.name, entry.stat(follow_symlinks=False))
                if about["kind"] == "link":
                    about["leads_to"] = what_is_at(folder, entry.path)
                entries.append(about)
        entries.sort(key=lambda entry: entry["name"])
        return {"entries": entries}

    def stat(self, request: "Message", _blob: bytes) -> "Message":
        place = self.place(request)
        return described(os.path.basename(place), os.lstat(place))

    def get(self, request: "Message", _blob: bytes) -> "tuple[Message, bytes]":
        offset, limit = request.get("offset", 0), request.get("limit", MOST_PIECE)
        data, facts = read(self.place(request), request["path"], offset, min(limit, MOST_PIECE))
        answer = {"size": facts.st_size, "eof": offset + len(data) >= facts.st_size}
        answer["version"] = version(facts)
        answer["sha256"] = hashlib.sha256(data).hexdigest()
        return squeezed(request, answer, data)

    def get_many(self, request: "Message", _blob: bytes) -> "tuple[Message, bytes]":
        """The beginnings of many files in one message; of short ones that is all of them."""
        places = PathsInside(*self.room(request))
        left = min(request.get("limit", MOST_TOGETHER), MOST_TOGETHER)
        found: "list[dict[str, Any]]" = []
        pieces: "list[bytes]" = []
        for path in request["paths"]:
            try:
                data, facts = read(places.of(path), path, 0, min(left, MOST_PIECE))
            except Refusal as refusal:
                found.append({"error": refusal.as_reply()})
            except OSError as problem:
                found.append({"error": refusal_of(problem, path).as_reply()})
            else:
                left -= len(data)
                pieces.append(data)
                found.append({"size": facts.st_size, "got": len(data)})
        together = b"".join(pieces)
        answer: "dict[str, Any]" = {"files": found, "sha256": hashlib.sha256(together).hexdigest()}
        return squeezed(request, answer, together)

    def put(self, request: "Message", blob: bytes) -> "Message":
        place, offset = self.place(request), request.get("offset", 0)
        if os.path.isdir(place):
            raise IsADirectoryError(21, "is a folder")
        os.makedirs(os.path.dirname(place), 0o755, exist_ok=True)
        beside = place + PART
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        not_the_next = Refusal("bad_offset", "not the next piece of %s" % request["path"])
        try:
            fd = open_in_place(beside, flags | (0 if offset else os.O_CREAT | os.O_TRUNC))
        except FileNotFoundError:
            raise not_the_next from None
        try:
            if os.fstat(fd).st_size < offset:
                raise not_the_next
            # What came after it, before a connection broke, comes again.
            os.ftruncate(fd, offset)
            os.lseek(fd, offset, os.SEEK_SET)
            record.write_all(fd, blob)
            if request.get("last", True):
                os.fchmod(fd, request.get("mode", 0o644) & 0o777)
                os.rename(beside, place)
        finally:
            os.close(fd)
        return {}

    def put_many(self, request: "Message", blob: bytes) -> "Message":
        """Whole short files, as [path, size, mode] of each, with their contents behind each other.

        All of them, or none from the first one on that is refused.
        """
        places = PathsInside(*self.room(request))
        if request.get("z"):
            blob = zlib.decompressobj().decompress(blob, 2 * MOST_TOGETHER)
        at = 0
        for path, size, mode in request["files"]:
            place = places.of(path)
            if os.path.isdir(place):
                raise Refusal("is_folder", "%s is a folder" % path)
            places.make(os.path.dirname(place))
            write(place, blob[at : at + size], mode)
            at += size
        return {}

    def changed(self, request: "Message", _blob: bytes) -> "Message":
        """What the job made or changed so far; listed by its supervisor once it ended.

        `after` goes on at the `next` of an earlier answer.
        """
        place, spec = self.known(request)
        found, following = changes.page(self.home, place, spec, place_in(request))
        return {"files": found, "next": following}

    def known(self, request: "Message") -> "tuple[JobPlace, Spec]":
        """Where a job lies that was known here, and what it was told."""
        key = checked_key(request.get("key"))
        place = self.home.place(key)
        spec = record.read_spec(place.record)
        if spec is None:
            raise Refusal("unknown_job", "no job %s on this machine" % key)
        return place, spec

    def walk(self, request: "Message", _blob: bytes) -> "Message":
        top = self.place(request)
        os.listdir(top)  # says so when it is missing or no folder
        files: "list[dict[str, Any]]" = []
        after = place_in(request)
        count = 0
        for folder, folders, names in os.walk(top):
            folders.sort()
            links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
            for name in sorted(names + links):
                count += 1
                if count <= after:
                    continue
                if len(files) == MOST_WALKED:
                    return {"files": files, "more": True, "next": count - 1}
                path = os.path.join(folder, name)
                try:
                    entry = described(os.path.relpath(path, top), os.lstat(path))
                    if entry["kind"] == "link":
                        entry["target"] = to_text(os.readlink(path))
                except OSError:
                    continue  # gone meanwhile
                files.append(entry)
        files.sort(key=lambda entry: entry["name"])
        return {"files": files}


def place_in(request: "Message") -> int:
    """Where to go on in a list that does not fit into one answer."""
    after = request.get("after", 0)
    if not isinstance(after, int) or after < 0:
        raise Refusal("bad_request", "`after` is not a place in a list")
    return after


def inside(folder: str, start: str, path: "Any") -> str:
    """The real path of `path` below `start`, which does not leave `folder`."""
    if not isinstance(path, str) or "\0" in path:
        raise Refusal("bad_request", "`path` is not a path")
    place = os.path.realpath(os.path.join(start, to_path(path)))
    if place != folder and not place.startswith(folder + "/"):
        raise Refusal("outside", "%s is outside the job's folder" % path)
    return place


class PathsInside:
    """`inside` for many paths: what they have in common is looked at once."""

    def __init__(self, folder: str, start: str) -> None:
        self.folder = folder
        self.start = start
        self.known: "dict[str, str]" = {}
        self.made: "set[str]" = set()

    def of(self, path: "Any", followed: bool = True) -> str:
        """Its real path; a link that is not to be `followed` is the caller's to recognise."""
        above, slash, name = path.rpartition("/") if isinstance(path, str) else ("", "", "")
        if name in ("", ".", "..") or "\0" in path or (slash and not above):
            return inside(self.folder, self.start, path)
        if above not in self.known:
            self.known[above] = inside(self.folder, self.start, above)
        place = self.known[above] + "/" + to_path(name)
        if followed and os.path.islink(place):
            return inside(self.folder, self.start, path)
        return place

    def make(self, folder: str) -> None:
        if folder not in self.made:
            os.makedirs(folder, 0o755, exist_ok=True)
            self.made.add(folder)


def what_is_at(folder: str, link: str) -> "Message | None":
    """What a link leads to; None if that is outside, or nothing."""
    try:
        place = inside(folder, folder, to_text(link))
        return described(os.path.basename(place), os.lstat(place))
    except (OSError, Refusal):
        return None


def open_in_place(place: str, flags: int, mode: int = 0o600) -> int:
    """Open what is at a real path, or nothing: its job may put a link in the place of a folder on
    the way since that was looked at. Raises OSError, Refusal."""
    above, name = os.path.split(place)
    folder = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if os.readlink("/proc/self/fd/%d" % folder) != above:
            raise Refusal("outside", "%s was replaced while it was being opened" % to_text(above))
        return os.open(name, flags | os.O_NOFOLLOW, mode, dir_fd=folder)
    finally:
        os.close(folder)


def read(place: str, path: str, offset: int, limit: int) -> "tuple[bytes, os.stat_result]":
    """Bytes of a plain file, and what it is."""
    # A named pipe must not block the agent.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = open_in_place(place, flags)
    try:
        facts = os.fstat(fd)
        if stat.S_ISDIR(facts.st_mode):
            raise IsADirectoryError(21, "is a folder")
        if not stat.S_ISREG(facts.st_mode):
            raise Refusal("denied", "%s is not a plain file" % path)
        return os.pread(fd, limit, offset), facts
    finally:
        os.close(fd)


def write(place: str, data: bytes, mode: int) -> None:
    """A whole file; what a killed agent left of it is in nobody's way."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = open_in_place(place + PART, flags)
    try:
        record.write_all(fd, data)
        os.fchmod(fd, mode & 0o777)
    finally:
        os.close(fd)
    os.rename(place + PART, place)


def version(facts: "os.stat_result") -> str:
    """Another one when a file was replaced by another; growing keeps it."""
    return "%d.%d" % (facts.st_dev, facts.st_ino)


def squeezed(request: "Message", answer: "Message", data: bytes) -> "tuple[Message, bytes]":
    """An answer and its bytes, which are compressed where that is asked for and helps."""
    # Judged by a sample: already compressed data would only cost time.
    sample = data[len(data) // 2 :][:4096] if request.get("z") else b""
    if len(data) > 1024 and sample and len(zlib.compress(sample, 1)) < 0.8 * len(sample):
        return dict(answer, z=True), zlib.compress(data, 1)
    return answer, data


def described(name: str, facts: "os.stat_result") -> "Message":
    return {
        "name": to_text(name),
        "kind": kind_of(facts.st_mode),
        "size": facts.st_size,
        "mtime": facts.st_mtime,
        "mode": stat.S_IMODE(facts.st_mode),
    }


def kind_of(mode: int) -> str:
    for kind, is_kind in (("file", stat.S_ISREG), ("dir", stat.S_ISDIR), ("link", stat.S_ISLNK)):
        if is_kind(mode):
            return kind
    return "other"


def refusal_of(problem: "OSError", path: str) -> "Refusal":
    if isinstance(problem, FileNotFoundError):
        return Refusal("no_such_file", "no such file: %s" % path)
    if isinstance(problem, IsADirectoryError):
        return Refusal("is_folder", "%s is a folder" % path)
    if isinstance(problem, NotADirectoryError):
        return Refusal("no_such_file", "%s is not a folder" % path)
    code = "failed" if problem.errno in FOR_A_MOMENT else "denied"
    return Refusal(code, "%s: %s" % (path, problem.strerror))
