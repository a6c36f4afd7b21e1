"""Work that goes on beside: kept until it is done, and never lost without a word."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from towline.errors import AgentError, HostError

log = logging.getLogger("towline")


class Tasks:
    """Of one cluster; a broken connection is no news, since all is asked again after it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, HostError | AgentError):
            log.error("cluster %s", self.name, exc_info=error)
