"""ROOT, the folder on the machine in which everything of ours lies."""

import os
import re

from .machine import to_path
from .refusal import Refusal

KEY = re.compile(r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}$")
HASH = re.compile(r"^[0-9a-f]{64}$")


class Home:
    def __init__(self, root):
        self.root = os.path.abspath(os.path.expanduser(to_path(root)))
        self.jobs = os.path.join(self.root, "jobs")
        self.blobs = os.path.join(self.root, "blobs")
        self.partial = os.path.join(self.root, "blobs", "partial")
        self.packs = os.path.join(self.root, "blobs", "packs")
        self.snapshots = os.path.join(self.root, "snapshots")
        self.trash = os.path.join(self.root, "trash")

    def make(self):
        stores = (self.blobs, self.partial, self.packs, self.snapshots)
        for folder in (self.root, self.jobs, *stores, self.trash):
            os.makedirs(folder, 0o700, exist_ok=True)
        os.chmod(self.root, 0o700)

    def job(self, key):
        """The folder of the job with this key; it need not exist."""
        return self.jobs + "/" + checked_key(key)

    def handed(self, key):
        """The folder of an attempt that another queue runs."""
        return self.root + "/handed/" + checked_key(key)

    def news(self, key):
        """Where such attempts of one Engine tell that something happened."""
        return self.root + "/news/" + checked_key(key).partition("-")[0]

    def blob(self, digest):
        checked_hash(digest)
        return "%s/%s/%s" % (self.blobs, digest[:2], digest[2:])

    def snapshot(self, digest):
        return "%s/%s.json" % (self.snapshots, checked_hash(digest))


def checked_key(key):
    if not isinstance(key, str) or not KEY.match(key) or key.endswith("\n"):
        raise Refusal("bad_key", "not a job key: %.120r" % (key,))
    return key


def checked_hash(digest):
    if not isinstance(digest, str) or not HASH.match(digest) or digest.endswith("\n"):
        raise Refusal("bad_hash", "not a SHA-256 in hexadecimal: %.120r" % (digest,))
    return digest
