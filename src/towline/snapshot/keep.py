"""The list of what is in a snapshot, kept beside the blobs so that an Engine finds it again."""

import json
import os
import secrets

from towline.snapshot.blobs import BlobStore
from towline.snapshot.take import Entry, Snapshot


def keep_entries(blobs: BlobStore, snapshot: Snapshot) -> None:
    path = _path(blobs, snapshot.id)
    if os.path.exists(path):
        return
    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
    fresh = f"{path}.{secrets.token_hex(4)}"
    with open(fresh, "x", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        json.dump(snapshot.entries, file)
    os.rename(fresh, path)


def load_entries(blobs: BlobStore, snapshot_id: str) -> list[Entry]:
    with open(_path(blobs, snapshot_id)) as file:
        entries: list[Entry] = json.load(file)
    return entries


def _path(blobs: BlobStore, snapshot_id: str) -> str:
    return f"{blobs.root}/snapshots/{snapshot_id}.json"
