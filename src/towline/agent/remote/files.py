"""Files of a job: look, fetch, put; never outside its folder."""

import hashlib
import os
import stat
from typing import Any

from . import record, results
from .home import checked_key
from .machine import to_path, to_text
from .refusal import Refusal

MOST_PIECE = 256 << 10
MOST_ENTRIES = 10000
MOST_WALKED = 100000


class Files:
    def __init__(self, home):
        self.home = home

    def operations(self):
        return {
            name: self.refusing(getattr(self, name))
            for name in ("list", "stat", "get", "put", "walk", "changed")
        }

    def refusing(self, operation):
        """Turn what the system says into what the other side is told."""

        def answer(request, blob):
            try:
                return operation(request, blob)
            except OSError as problem:
                raise refusal_of(problem, request.get("path", "")) from None

        return answer

    def place(self, request):
        """The real path that is meant, which lies in the job's folder whatever links there are."""
        key, path = checked_key(request.get("key")), request.get("path", "")
        if not isinstance(path, str) or "\0" in path:
            raise Refusal("bad_request", "`path` is not a path")
        spec = record.read_spec(self.home.job(key))
        if spec is None:
            raise Refusal("unknown_job", "no job %s on this machine" % key)
        folder = os.path.realpath(self.home.job(spec["at"] or key))
        start = os.path.join(folder, "src", to_path(spec["cwd"]))
        if request.get("kept"):
            folder = start = os.path.join(folder, "keep")
        elif spec.get("folder"):
            folder = start = os.path.realpath(to_path(spec["folder"]))
        place = os.path.realpath(os.path.join(start, to_path(path)))
        if place != folder and not place.startswith(folder + "/"):
            raise Refusal("outside", "%s is outside the job's folder" % path)
        return place

    def list(self, request, _blob):
        entries: "list[dict[str, Any]]" = []
        with os.scandir(self.place(request)) as found:
            for entry in found:
                if len(entries) == MOST_ENTRIES:
                    return {"entries": entries, "more": True}
                entries.append(described(entry.name, entry.stat(follow_symlinks=False)))
        entries.sort(key=lambda entry: entry["name"])
        return {"entries": entries}

    def stat(self, request, _blob):
        place = self.place(request)
        return described(os.path.basename(place), os.lstat(place))

    def get(self, request, _blob):
        offset, limit = request.get("offset", 0), request.get("limit", MOST_PIECE)
        # A named pipe must not block the agent.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(self.place(request), flags)
        try:
            facts = os.fstat(fd)
            if stat.S_ISDIR(facts.st_mode):
                raise IsADirectoryError(21, "is a folder")
            if not stat.S_ISREG(facts.st_mode):
                raise Refusal("denied", "%s is not a plain file" % request["path"])
            data = os.pread(fd, min(limit, MOST_PIECE), offset)
        finally:
            os.close(fd)
        answer = {"size": facts.st_size, "eof": offset + len(data) >= facts.st_size}
        answer["sha256"] = hashlib.sha256(data).hexdigest()
        return answer, data

    def put(self, request, blob):
        place, offset = self.place(request), request.get("offset", 0)
        if os.path.isdir(place):
            raise IsADirectoryError(21, "is a folder")
        os.makedirs(os.path.dirname(place), 0o755, exist_ok=True)
        beside = place + ".towline-part"
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(beside, flags | (0 if offset else os.O_TRUNC), 0o600)
        try:
            if os.fstat(fd).st_size != offset:
                raise Refusal("bad_offset", "not the next piece of %s" % request["path"])
            os.lseek(fd, offset, os.SEEK_SET)
            record.write_all(fd, blob)
            if request.get("last", True):
                os.fchmod(fd, request.get("mode", 0o644) & 0o777)
                os.rename(beside, place)
        finally:
            os.close(fd)
        return {}

    def changed(self, request, _blob):
        """What the job made or changed so far; listed by its supervisor once it ended.

        `after` goes on at the `next` of an earlier answer.
        """
        key = checked_key(request.get("key"))
        folder = self.home.job(key)
        spec = record.read_spec(folder)
        if spec is None:
            raise Refusal("unknown_job", "no job %s on this machine" % key)
        found, following = results.page(self.home, folder, spec, place_in(request))
        return {"files": found, "next": following}

    def walk(self, request, _blob):
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


def place_in(request):
    """Where to go on in a list that does not fit into one answer."""
    after = request.get("after", 0)
    if not isinstance(after, int) or after < 0:
        raise Refusal("bad_request", "`after` is not a place in a list")
    return after


def described(name, facts):
    return {
        "name": to_text(name),
        "kind": kind_of(facts.st_mode),
        "size": facts.st_size,
        "mtime": facts.st_mtime,
        "mode": stat.S_IMODE(facts.st_mode),
    }


def kind_of(mode):
    for kind, is_kind in (("file", stat.S_ISREG), ("dir", stat.S_ISDIR), ("link", stat.S_ISLNK)):
        if is_kind(mode):
            return kind
    return "other"


def refusal_of(problem, path):
    if isinstance(problem, FileNotFoundError):
        return Refusal("no_such_file", "no such file: %s" % path)
    if isinstance(problem, IsADirectoryError):
        return Refusal("is_folder", "%s is a folder" % path)
    if isinstance(problem, NotADirectoryError):
        return Refusal("no_such_file", "%s is not a folder" % path)
    return Refusal("denied", "%s: %s" % (path, problem.strerror))
