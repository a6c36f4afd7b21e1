"""Once the results of a job are home, its folder over there shrinks to what it made."""

import asyncio
import logging

from towline.backends.base import Fleet
from towline.backends.tasks import Tasks
from towline.engine.engine import Engine
from towline.errors import AgentError, HostError
from towline.model.job import Job, key_of

log = logging.getLogger("towline")

#: Nothing more came home for so long: now there is time for it.
_CALM_S = 5.0
_REACH_S = 20.0


class Shrinking:
    def __init__(self, engine: Engine, fleet: Fleet, calm_s: float = _CALM_S) -> None:
        self.engine = engine
        self.fleet = fleet
        self.calm_s = calm_s
        #: Machine -> the folders that are to shrink there.
        self._keys: dict[str, list[str]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._tasks = Tasks("job folders that shrink", asks_again=False)
        self._task: asyncio.Task[None] | None = None

    def soon(self, job: Job) -> None:
        """All that is wanted of this job is home."""
        if job.attempt is None or not job.spec.snapshot or job.spec.in_place:
            return
        engine_id = self.engine.store.engine_id
        for rank, slot in enumerate(job.attempt.placement):
            key = key_of(engine_id, job.id, job.attempt, rank)
            self._keys.setdefault(slot.machine, []).append(key)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(self.calm_s, self._start)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._tasks.close()

    def _start(self) -> None:
        if self._task is None or self._task.done():
            # What it does not come to is left to housekeeping.
            self._task = self._tasks.spawn(self._shrink(), lambda error: None)

    async def _shrink(self) -> None:
        """Machines that are away are left to housekeeping."""
        while self._keys:
            name, keys = self._keys.popitem()
            machine = self.fleet.machines.get(name)
            try:
                if machine is not None and machine.is_connected:
                    await (await machine.upkeep(_REACH_S)).shrink(keys)
            except (HostError, AgentError) as error:
                log.info("job folders stay as they are for now: %s", error.text)
