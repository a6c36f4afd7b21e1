"""What a job put into its `keep` folder, brought here for the job that goes on from it."""

import asyncio
import os

from towline.backends.base import Backend, Files
from towline.backends.terms import Wanted
from towline.model.job import Job
from towline.workspace.parts import Part
from towline.workspace.placing import Brought, Placer, inside

_PRIVATE = 0o077


async def fetch_kept(backend: Backend, job: Job, folder: str) -> None:
    """Copy what a job put into its `keep` folder to a folder here."""
    there = backend.files(job, 0, kept=True)
    files = [entry async for found in there.listed("walk") for entry in found]
    places = [(entry, inside(folder, entry["name"])) for entry in files]
    coming = [
        (Wanted(entry["name"], entry["size"]), target, entry["mode"])
        for entry, target in places
        if target is not None and entry["kind"] == "file"
    ]
    placer = Placer(folder, Brought("", {}), 1, _PRIVATE)
    await _receive(there, coming, placer)
    # Links last: nothing is written through one. They lead where they led, also out of the folder.
    for entry, target in places:
        if target is not None and entry["kind"] == "link":
            placer.make_folders(os.path.dirname(target))
            os.symlink(entry["target"], target)


async def _receive(files: Files, coming: list[tuple[Wanted, str, int]], placer: Placer) -> None:
    parts: dict[int, Part] = {}
    try:
        async for got in files.read_all([wanted for wanted, _, _ in coming]):
            if got.error is not None:
                raise got.error
            _, target, mode = coming[got.index]
            if got.index not in parts:
                parts[got.index] = await asyncio.to_thread(placer.begin, target)
            part = parts[got.index]
            await asyncio.to_thread(part.write, bytes(got.data))
            if got.last:
                await asyncio.to_thread(placer.place, part, target, mode)
                parts.pop(got.index).discard()
    finally:
        for part in parts.values():
            part.discard()
