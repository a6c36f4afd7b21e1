"""ROOT, the folder on the machine in which everything of ours lies."""

import os
import re

from .machine import to_path
from .refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

KEY = re.compile(r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}$")
#: Where an older agent began a job, one of these is in the job's own folder.
OLD_RECORDS = ("/life", "/exit", "/elsewhere")
HASH = re.compile(r"^[0-9a-f]{64}$")


class JobPlace:
    """Where the files of a job are: its own, and those about it."""

    def __init__(self, key: str, job: str, record: str) -> None:
        self.key = key
        self.job = job
        self.record = record


class Home:
    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(os.path.expanduser(to_path(root)))
        self.jobs = os.path.join(self.root, "jobs")
        self.records = os.path.join(self.root, "records")
        self.blobs = os.path.join(self.root, "blobs")
        self.partial = os.path.join(self.root, "blobs", "partial")
        self.packs = os.path.join(self.root, "blobs", "packs")
        self.snapshots = os.path.join(self.root, "snapshots")
        self.trash = os.path.join(self.root, "trash")

    def make(self) -> None:
        ours = not os.path.isdir(self.root)
        stores = (self.blobs, self.partial, self.packs, self.snapshots)
        for folder in (self.root, self.jobs, self.records, *stores, self.trash):
            os.makedirs(folder, 0o700, exist_ok=True)
        if ours:  # one that was there before is its owner's to open or to close
            os.chmod(self.root, 0o700)

    def is_there(self) -> bool:
        """False once somebody removed a part of it."""
        return os.path.isdir(self.partial) and os.path.isdir(self.records)

    def job(self, key: str) -> str:
        """The folder of the job with this key; it need not exist."""
        return self.jobs + "/" + checked_key(key)

    def new_record(self, key: str) -> str:
        """The folder for what is written down about a job; no variable of the job leads there."""
        return self.records + "/" + checked_key(key)

    def record(self, key: str) -> str:
        """The same, or the job's own folder, where an older agent wrote it down."""
        found = self.new_record(key)
        if not os.path.isdir(found) and has_old_record(self.job(key)):
            return self.job(key)
        return found

    def place(self, key: str) -> "JobPlace":
        return JobPlace(key, self.job(key), self.record(key))

    def keys(self) -> "set[str]":
        """Of all jobs that have a folder or a record here."""
        names = set(os.listdir(self.jobs)).union(os.listdir(self.records))
        return {name for name in names if KEY.match(name)}

    def handed(self, key: str) -> str:
        """The folder of an attempt that another queue runs."""
        return self.root + "/handed/" + checked_key(key)

    def news(self, key: str) -> str:
        """Where such attempts of one Engine tell that something happened."""
        return self.root + "/news/" + checked_key(key).partition("-")[0]

    def blob(self, digest: "Any") -> str:
        checked_hash(digest)
        return "%s/%s/%s" % (self.blobs, digest[:2], digest[2:])

    def snapshot(self, digest: "Any") -> str:
        return "%s/%s.json" % (self.snapshots, checked_hash(digest))


def has_old_record(folder: str) -> bool:
    return any(os.path.exists(folder + name) for name in OLD_RECORDS)


def checked_key(key: "Any") -> str:
    if not isinstance(key, str) or not KEY.match(key) or key.endswith("\n"):
        raise Refusal("bad_key", "not a job key: %.120r" % (key,))
    return key


def checked_hash(digest: "Any") -> str:
    if not isinstance(digest, str) or not HASH.match(digest) or digest.endswith("\n"):
        raise Refusal("bad_hash", "not a SHA-256 in hexadecimal: %.120r" % (digest,))
    return digest
