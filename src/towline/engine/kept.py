"""What a job put into its `keep` folder, brought here for the job that goes on from it."""

import asyncio
import os

from towline.backends.machines import Machines
from towline.engine.listing import pages
from towline.engine.placing import Brought, Placer, inside
from towline.model.job import Job

_CHUNK = 256 * 1024
_PRIVATE = 0o077


async def fetch_kept(machines: Machines, job: Job, folder: str) -> None:
    """Copy what a job put into its `keep` folder to a folder here."""
    files = [
        entry
        async for found in pages(machines, job, 0, "walk", path="", kept=True)
        for entry in found
    ]
    placer = Placer(folder, Brought("", {}), 1, _PRIVATE)
    # Links last: nothing is written through one. They lead where they led, also out of the folder.
    for entry in sorted(files, key=lambda entry: entry["kind"] == "link"):
        target = inside(folder, entry["name"])
        if target is None or entry["kind"] not in ("file", "link"):
            continue
        if entry["kind"] == "link":
            placer.make_folders(os.path.dirname(target))
            os.symlink(entry["target"], target)
        else:
            await _fetch(machines, job, placer, entry["name"], target, entry["mode"])


async def _fetch(
    machines: Machines, job: Job, placer: Placer, name: str, target: str, mode: int
) -> None:
    part = await asyncio.to_thread(placer.begin, target)
    try:
        at_end = False
        while not at_end:
            answer, blob = await machines.file_operation(
                job, 0, "get", path=name, kept=True, offset=part.size, limit=_CHUNK
            )
            await asyncio.to_thread(part.write, blob)
            at_end = answer["eof"]
        await asyncio.to_thread(placer.place, part, target, mode)
    finally:
        part.discard()
