"""What a job put into its `keep` folder, as a snapshot for the job that goes on from it."""

import asyncio
import stat
import tempfile
from typing import BinaryIO, cast

from towline.backends.base import FileAccess, Fleet
from towline.backends.terms import SHORT, FileEntry, WantedFile
from towline.model.job import Job
from towline.snapshot.blobs import BlobStore
from towline.snapshot.entries import Entry, canonical


async def fetch_kept(source: Fleet, job: Job) -> str:
    """Snapshot id of a job's `keep` folder as it is now; "" if there is nothing in it."""
    there = source.files(job, 0, kept=True)
    listed = [entry async for found in there.listed("walk") for entry in found]
    named = {entry["name"]: entry for entry in listed if _stays_inside(entry["name"])}
    files = [entry for entry in named.values() if entry["kind"] == "file"]
    digests = await _receive(there, files, source.blobs)
    entries = _entries(named, digests)
    return await asyncio.to_thread(_keep, source.blobs, entries) if entries else ""


def _keep(blobs: BlobStore, entries: list[Entry]) -> str:
    snapshot = blobs.put_bytes(canonical(entries))
    blobs.unsynced.sync()
    return snapshot


def _entries(named: dict[str, FileEntry], digests: dict[str, str]) -> list[Entry]:
    """The entries of a snapshot; links lead where they led, also out of the folder."""
    found: list[Entry] = []
    above = {parent for name in digests for parent in _parents(name)}
    for name, entry in sorted(named.items()):
        if name in above:
            continue  # nothing is written through a link
        if name in digests:
            kind = "x" if entry["mode"] & stat.S_IXUSR else "f"
            found.append([name, kind, digests[name]])
        elif entry["kind"] == "link":
            found.append([name, "l", entry["target"]])
    return found


async def _receive(there: FileAccess, files: list[FileEntry], blobs: BlobStore) -> dict[str, str]:
    """Name -> the hash of its content, which is in the store."""
    wanted = [WantedFile(entry["name"], entry["size"]) for entry in files]
    digests: dict[str, str] = {}
    parts: dict[int, BinaryIO] = {}
    try:
        async for got in there.read_all(wanted):
            if got.error is not None:
                raise got.error
            if got.index not in parts:
                parts[got.index] = _scratch_file(blobs.root)
            await asyncio.to_thread(parts[got.index].write, got.data)
            if got.last:
                with parts.pop(got.index) as part:
                    digests[wanted[got.index].path] = await asyncio.to_thread(_put, blobs, part)
    finally:
        for part in parts.values():
            part.close()
    return digests


def _scratch_file(folder: str) -> BinaryIO:
    return cast("BinaryIO", tempfile.SpooledTemporaryFile(SHORT, dir=folder))


def _put(blobs: BlobStore, part: BinaryIO) -> str:
    part.seek(0)
    digest, _ = blobs.put(part)
    return digest


def _stays_inside(name: str) -> bool:
    return bool(name) and "\0" not in name and not {"", ".", ".."} & set(name.split("/"))


def _parents(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]
