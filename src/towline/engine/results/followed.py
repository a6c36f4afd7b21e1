"""What followers have been given of the output of jobs: it does not travel a second time.

It lies in files without a name, which go with the Engine; what is missing is fetched as ever.
"""

import asyncio
import tempfile
import threading
from typing import BinaryIO, cast

from towline.engine.engine import Engine
from towline.model.job import Job
from towline.model.results import PENDING

#: Of less than this no copy is kept on disk: it is quicker to fetch it again.
WORTH_KEEPING = 256 * 1024
#: How much of what is known must be the same over there before the rest is added to it.
OVERLAP = 4096

#: Job, attempt, process and stream.
_Key = tuple[int, int, int, str]


class Copy:
    """An output from its beginning on, as far as somebody has followed it."""

    def __init__(self, folder: str) -> None:
        self.size = 0
        self._file = cast("BinaryIO", tempfile.SpooledTemporaryFile(WORTH_KEEPING, dir=folder))
        self._lock = threading.Lock()
        self._sealed = False

    def add(self, offset: int, content: bytes) -> None:
        """Go on with it; what another follower has brought already, or a gap, is left out."""
        with self._lock:
            if offset == self.size and not self._sealed:
                self._file.seek(0, 2)
                self._file.write(content)
                self.size += len(content)

    def seal(self) -> None:
        """Let it grow no more: what is fetched goes on behind the size that it has now."""
        with self._lock:
            self._sealed = True

    def end(self) -> bytes:
        """The last bytes of it."""
        with self._lock:
            self._file.seek(max(0, self.size - OVERLAP))
            return self._file.read()

    def read(self, offset: int) -> bytes:
        """The next piece of it."""
        with self._lock:
            self._file.seek(offset)
            return self._file.read(WORTH_KEEPING)

    def close(self) -> None:
        with self._lock:
            self._sealed = True
            self._file.close()


class FollowedOutputs:
    """The copies, for as long as the results of their jobs are not home."""

    def __init__(self, engine: Engine, folder: str) -> None:
        self.engine = engine
        self.folder = folder
        self._copies: dict[_Key, Copy] = {}

    async def add(self, job: Job, rank: int, stream: str, offset: int, content: bytes) -> None:
        """A follower of a job gets this of its output."""
        now = self.engine.job(job.id)
        over = now.state.final and now.results != PENDING
        if over or job.attempt is None or not job.spec.results:
            return
        key = (job.id, job.attempt.number, rank, stream)
        if key not in self._copies:
            if offset:
                return
            self._copies[key] = Copy(self.folder)
        copy = self._copies[key]
        if copy.size + len(content) <= WORTH_KEEPING:
            copy.add(offset, content)  # it is still in memory
            return
        await asyncio.to_thread(copy.add, offset, content)

    def take(self, job: Job, rank: int, stream: str) -> Copy | None:
        """What is known of an output, if it is worth anything; it is the caller's to close."""
        assert job.attempt is not None
        copy = self._copies.pop((job.id, job.attempt.number, rank, stream), None)
        if copy is None:
            return None
        copy.seal()  # a follower may be about to add to it, in a thread
        if copy.size <= WORTH_KEEPING:
            copy.close()
            return None
        return copy

    def forget(self, job_id: int) -> None:
        """Nobody needs the copies of a job any more."""
        for key in [key for key in self._copies if key[0] == job_id]:
            self._copies.pop(key).close()
