"""Files of a job that are as they were submitted: their contents are at home already."""

from towline.backends.base import FileSource
from towline.backends.terms import FileEntry
from towline.model.job import Job
from towline.model.odd_text import original
from towline.snapshot.entries import load_snapshot


async def unchanged_files(
    source: FileSource, job: Job, rank: int, changed: set[str]
) -> list[FileEntry]:
    """What is still there of what was sent, and is not in `changed`, described as that is.

    `blob` of a file names its content here, so that nothing of it travels.
    """
    if not job.spec.snapshot:
        return []
    there: dict[str, int] = {}
    async for found in source.files(job, rank).listed("walk"):
        there.update((e["name"], e["mode"]) for e in found if e["name"] not in changed)
    above = f"{original(job.spec.subfolder)}/" if job.spec.subfolder else ""
    unchanged: list[FileEntry] = []
    for path, kind, what in load_snapshot(source.blobs, job.spec.snapshot):
        name = path.removeprefix(above)
        if not path.startswith(above) or name not in there:
            continue
        if kind == "l":
            unchanged.append({"name": name, "kind": "link", "target": what})
        elif kind in "fx":
            unchanged.append({"name": name, "kind": "file", "mode": there[name], "blob": what})
    return unchanged
