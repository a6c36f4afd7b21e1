"""Work that goes on beside: kept until it is done, and never lost without a word."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from towline.errors import HostError, TowlineError

log = logging.getLogger("towline")

OnFailure = Callable[[Exception], None]


class Tasks:
    """The tasks of one owner. Whoever starts one says what follows when it fails.

    Where it `asks_again`, a broken connection is no failure: whatever was asked over it is asked
    over the next.
    """

    def __init__(self, owner: str, asks_again: bool = True) -> None:
        self.owner = owner
        self.asks_again = asks_again
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(
        self, coroutine: Coroutine[Any, Any, Any], on_failure: OnFailure
    ) -> "asyncio.Task[Any]":
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._done(done, on_failure))
        return task

    def __len__(self) -> int:
        return len(self._tasks)

    def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()

    def _done(self, task: "asyncio.Task[Any]", on_failure: OnFailure) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if not isinstance(error, Exception):
            return
        if self.asks_again and isinstance(error, HostError):
            return
        expected = isinstance(error, TowlineError)
        log.error("%s: %s", self.owner, error, exc_info=None if expected else error)
        try:
            on_failure(error)
        except Exception:
            log.exception("%s: after that failure", self.owner)
