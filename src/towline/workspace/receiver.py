"""What jobs made and printed, in the folders of this machine that they were submitted from."""

import asyncio
import contextlib
import errno
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from towline.model.job import Job
from towline.model.odd_text import keepable, original
from towline.model.results import NOTHING, ResultsState, at_home
from towline.snapshot.blobs import BlobStore
from towline.snapshot.syncing import sync_file_systems
from towline.workspace.brought import Brought, Mark, decoded
from towline.workspace.delivery import FolderDelivery
from towline.workspace.parts import remove_parts
from towline.workspace.placing import FOLDER, Placer, digest_of_bytes, ignore_in_git
from towline.workspace.settling import Settling

_THREADS = 4
_PIECE = 256 * 1024


class FolderReceiver:
    """Results go into `job_results` where a job was submitted (`Receiver` of base.py)."""

    def __init__(self, spare_folder: str, blobs: BlobStore) -> None:
        #: Where results go when the folder they belong to is gone.
        self._spare_folder = spare_folder
        self._blobs = blobs
        self._writers = ThreadPoolExecutor(_THREADS, thread_name_prefix="results")
        self._settling = Settling(self._writers)
        #: Job -> what an earlier Engine was killed over, among its results.
        self._parts: dict[int, list[str]] = {}

    def deliver(self, job: Job, memory: bytes | None) -> FolderDelivery:
        assert job.attempt is not None
        folder, brought = self._folder(job), decoded(memory)
        placer = Placer(folder, brought, job.attempt.number, job.spec.umask)
        left_over = self._parts.get(job.id, [])
        return FolderDelivery(placer, self._blobs, self._writers, self._settling, left_over)

    def put_printed(
        self, job: Job, printed: tuple[bytes, bytes]
    ) -> tuple[ResultsState, bytes] | None:
        assert job.attempt is not None
        folder = self._folder(job)
        marks: dict[str, Mark] = {}
        try:
            for stream, content in zip(("out", "err"), printed, strict=True):
                if content or job.spec.empty_outputs:
                    path = f"{folder}.{stream}"
                    mtime_ns = _write_new(path, content, job.spec.umask)
                    mark = Mark(
                        job.attempt.number, len(content), mtime_ns, digest_of_bytes(content)
                    )
                    marks[keepable(os.path.basename(path))] = mark
        except OSError:
            return None
        brought = Brought(keepable(os.path.dirname(folder)), marks)
        first = keepable(f"{folder}.{'out' if printed[0] else 'err'}")
        return at_home(first), brought.encoded()

    def settle_soon(self, job: Job) -> None:
        stem = os.path.splitext(original(job.results.path))[0]
        self._settling.soon((f"{stem}.out", f"{stem}.err"))

    def tidy(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            # Tidying must not keep the Engine from starting.
            with contextlib.suppress(OSError):
                self._parts[job.id] = remove_parts(self._folder(job))

    async def sync(self, jobs: Iterable[Job]) -> None:
        homes = {original(job.spec.folder) for job in jobs if job.results != NOTHING}
        if homes:
            await asyncio.to_thread(sync_file_systems, [*homes, self._spare_folder])

    def has_output(self, job: Job, streams: Sequence[str]) -> bool:
        return all(os.path.isfile(_output(job, stream)) for stream in streams)

    def read_output(self, job: Job, stream: str, offset: int) -> bytes:
        with open(_output(job, stream), "rb") as file:
            file.seek(offset)
            return file.read(_PIECE)

    def close(self) -> None:
        self._settling.close()
        self._writers.shutdown(wait=False, cancel_futures=True)

    def _folder(self, job: Job) -> str:
        home = original(job.spec.folder)
        top = home if os.path.isdir(home) else self._spare_folder
        return os.path.join(top, FOLDER, original(job.spec.name) or str(job.id))


def _output(job: Job, stream: str) -> str:
    stem = original(job.results.path).removesuffix(".out").removesuffix(".err")
    return f"{stem}.{stream}"


def _write_new(path: str, content: bytes, umask: int) -> int:
    """Write a file that is not there yet; its time."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        file = os.open(path, flags, 0o666)
    except FileNotFoundError:
        folder = os.path.dirname(path)
        os.mkdir(folder)
        os.chmod(folder, 0o777 & ~umask)
        ignore_in_git(folder)
        file = os.open(path, flags, 0o666)
    try:
        if os.write(file, content) != len(content):
            raise OSError(errno.ENOSPC, "written in part", path)
        os.fchmod(file, 0o666 & ~umask)
        return os.fstat(file).st_mtime_ns
    finally:
        os.close(file)
