"""Files of a job that are as they were submitted: their contents are at home already."""

from typing import Any

from towline.backends.machines import Machines
from towline.model.job import Job
from towline.model.odd_text import original
from towline.snapshot.take import load_snapshot


async def unchanged_files(
    machines: Machines, job: Job, rank: int, changed: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """What is still there of what was sent, and is not in `changed`, described as that is.

    `blob` of a file names its content here, so that nothing of it travels.
    """
    if not job.spec.snapshot:
        return []
    header, _ = await machines.file_operation(job, rank, "walk", path="")
    there = {entry["name"]: entry["mode"] for entry in header["files"]}
    for entry in changed:
        there.pop(entry["name"], None)
    above = f"{original(job.spec.subfolder)}/" if job.spec.subfolder else ""
    found: list[dict[str, Any]] = []
    for path, kind, what in load_snapshot(machines.blobs, job.spec.snapshot):
        name = path.removeprefix(above)
        if not path.startswith(above) or name not in there:
            continue
        if kind == "l":
            found.append({"name": name, "kind": "link", "target": what})
        elif kind in "fx":
            found.append({"name": name, "kind": "file", "mode": there[name], "blob": what})
    return found
