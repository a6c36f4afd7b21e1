"""What came home is on disk before that is said; one sync serves all that come meanwhile."""

import asyncio
import logging
from collections.abc import Iterable
from concurrent.futures import Executor

from towline.backends.tasks import Tasks
from towline.snapshot.syncing import sync_files

log = logging.getLogger("towline")

#: What short jobs printed is synced when no more of it came for so long.
_CALM_S = 2.0


class Settling:
    def __init__(self, writers: Executor) -> None:
        self._writers = writers
        self._paths: list[str] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._tasks = Tasks("results on their way to the disk", asks_again=False)
        self._task: asyncio.Task[None] | None = None
        self._calm: asyncio.TimerHandle | None = None

    async def on_disk(self, paths: Iterable[str]) -> None:
        """Returns once these files are on disk."""
        paths = list(paths)
        if not paths:
            return
        self._paths += paths
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        self._start()
        await done

    def soon(self, paths: Iterable[str]) -> None:
        """These need not be waited for; the job's own copies stay until they are on disk."""
        self._paths += paths
        if self._calm is not None:
            self._calm.cancel()
        self._calm = asyncio.get_running_loop().call_later(_CALM_S, self._start)

    def close(self) -> None:
        if self._calm is not None:
            self._calm.cancel()
        self._tasks.close()

    def _start(self) -> None:
        if self._task is None:
            self._task = self._tasks.spawn(self._sync(), self._failed)

    def _failed(self, error: Exception) -> None:
        """Nobody is left waiting."""
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            if not done.done():
                done.set_exception(error)

    async def _sync(self) -> None:
        try:
            while self._waiting or self._paths:
                paths, self._paths = self._paths, []
                waiting, self._waiting = self._waiting, []
                outcome = await self._sync_now(paths)
                for done in waiting:
                    if not done.done():
                        done.set_result(None) if outcome is None else done.set_exception(outcome)
        finally:
            self._task = None

    async def _sync_now(self, paths: list[str]) -> Exception | None:
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._writers, sync_files, paths)
        except Exception as error:
            expected = isinstance(error, OSError)
            log.warning("results could not be synced: %s", error, exc_info=not expected)
            return error
        return None
