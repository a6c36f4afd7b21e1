"""The submitted version of a job's folder, brought back whatever happened since."""

import os
import time
from collections.abc import Iterator

from towline.api.files import SnapshotRecord
from towline.config.load import Configuration
from towline.config.settings import SnapshotSettings
from towline.errors import UsageError
from towline.model.job import Job
from towline.model.odd_text import original
from towline.snapshot import branch
from towline.snapshot.apart import set_apart
from towline.snapshot.compare import changes, unified
from towline.snapshot.entries import Entry, load_snapshot
from towline.snapshot.folder import only_these
from towline.snapshot.restore import restore
from towline.workspace.draft import Freezer, in_thread


class Versions:
    def __init__(self, configuration: Configuration, freezer: Freezer) -> None:
        self._configuration = configuration
        self._freezer = freezer
        self._blobs = freezer.blobs

    async def diff(self, job: Job, other: Job | None, names_only: bool) -> str:
        """What changed from a job's version to another job's, or to its folder as it is now."""
        old = await in_thread(self._entries, job)
        if other is not None:
            new = await in_thread(self._entries, other)
        else:
            new = await self._present(job)
        return await in_thread(self._diff_text, old, new, names_only)

    def _diff_text(self, old: list[Entry], new: list[Entry], names_only: bool) -> str:
        lines: Iterator[str]
        if names_only:
            lines = (f"{letter} {path}\n" for letter, path, _, _ in changes(old, new))
        else:
            lines = unified(old, new, self._read)
        return "".join(lines)

    async def _present(self, job: Job) -> list[Entry]:
        folder = original(job.spec.folder)
        if not os.path.isdir(folder):
            raise UsageError(
                f"{folder}, where job {job.id} was submitted, is gone",
                hint=f"`tow checkout {job.id} FOLDER` brings the submitted version back",
            )
        base, spec = self._configuration.what_travels(folder), job.spec
        # What is looked at is not limited: nothing travels.
        settings = SnapshotSettings(
            1e9,
            [*base.exclude, *map(original, spec.exclude)],
            [*base.include, *map(original, spec.include)],
        )
        if spec.only is not None:
            settings = only_these(settings, map(original, spec.only))
        return (await self._freezer.snapshot(folder, settings)).entries

    async def checkout(self, job: Job, folder: str) -> int:
        """The submitted version as a folder; how many files that are."""
        if not os.path.isabs(folder):
            raise UsageError(f"{folder} is not an absolute path")
        entries = await in_thread(self._entries, job)
        files = await in_thread(restore, self._blobs, entries, folder)
        await in_thread(set_apart, folder, original(job.spec.folder))
        return files

    def records(self, cwd: str) -> list[SnapshotRecord]:
        """What the repository at `cwd` keeps of dirty trees, oldest first."""
        return [
            {"branch": one.name, "commit": one.commit, "at": one.at, "title": one.title}
            for one in branch.records(cwd)
        ]

    def prune(self, cwd: str, older_than_s: float) -> list[str]:
        """Forget records that are older; the jobs' own copies stay."""
        until = time.time() - older_than_s
        names = [one.name for one in branch.records(cwd) if one.at <= until]
        branch.forget(cwd, names)
        return names

    def _entries(self, job: Job) -> list[Entry]:
        return load_snapshot(self._blobs, job.spec.snapshot) if job.spec.snapshot else []

    def _read(self, digest: str) -> bytes:
        with self._blobs.open(digest) as file:
            return file.read()
