"""The entries of a snapshot, as they are kept under its id."""

import hashlib
import json

import msgspec

from towline.errors import NotFound
from towline.snapshot.blobs import BlobStore

#: path, "f" file | "x" executable | "l" link | "d" empty folder, hash or link target or ""
Entry = list[str]
_decode = msgspec.json.Decoder(list[Entry]).decode


def load_snapshot(store: BlobStore, snapshot_id: str) -> list[Entry]:
    """The entries of a snapshot that was taken earlier."""
    try:
        with store.open(snapshot_id) as stream:
            content = stream.read()
    except FileNotFoundError:
        content = b""
    if hashlib.sha256(content).hexdigest() != snapshot_id:
        raise NotFound(
            f"the snapshot {snapshot_id[:12]} is no longer on this machine",
            "Submit the job again from its folder.",
        )
    try:
        return _decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # File names that are not UTF-8.
        odd: list[Entry] = json.loads(content.decode("utf-8", "surrogateescape"))
        return odd


def canonical(entries: list[Entry]) -> bytes:
    """The bytes whose sha256 is a snapshot's id; the agent makes the same from what it was sent."""
    try:
        return msgspec.json.encode(entries)
    except UnicodeEncodeError:
        # The same text, also of file names that are not UTF-8.
        text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False)
        return text.encode("utf-8", "surrogateescape")
