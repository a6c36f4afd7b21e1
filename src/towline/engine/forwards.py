"""Local ports that lead to jobs; kept by the Engine, found again after a restart."""

import asyncio
import os

from towline.api.places import ForwardView
from towline.backends.base import Backend
from towline.backends.tasks import Tasks
from towline.backends.terms import Port
from towline.engine.engine import Engine
from towline.engine.lookup import job_for
from towline.errors import CannotWrite, NotFound, UsageError
from towline.forward.tunnels import Forward
from towline.model.principal import Principal


class Forwards:
    def __init__(self, engine: Engine, backend: Backend) -> None:
        self.engine = engine
        self.backend = backend
        self._open: dict[int, Forward] = {}
        self._tasks = Tasks("forwarded ports", asks_again=False)
        #: Local port -> what closes it with its job.
        self._closing: dict[int, asyncio.Task[None]] = {}

    async def add(self, who: Principal, job_id: int, port: int, local: int = 0) -> int:
        """Let a port here lead to one beside a job; its number."""
        job = job_for(who, job_id, self.engine)
        if not 1 <= port <= 65535 or not 0 <= local <= 65535:
            raise UsageError(f"{port if not 1 <= port <= 65535 else local} is not a port")
        if job.attempt is None:
            raise NotFound(f"job {job_id} has not started yet", hint=f"tow why {job_id}")
        if job.state.final and job.spec.queue is not None:
            # With it its node was given back, and with that the way there.
            raise NotFound(
                f"job {job_id} does not run now, so nothing of it can be reached",
                hint=f"tow log {job_id} and tow ls {job_id} show what it left",
            )
        for forward in self._open.values():
            if (forward.job, forward.port) == (job_id, port) and local in (0, forward.local):
                return forward.local
        forward = await self._listen_on_same(job_id, port, local)
        store = self.engine.store
        try:
            await self.engine.in_turn(lambda: store.remember_forward(forward.local, job_id, port))
        except CannotWrite:
            await self._remove(forward.local)
            raise
        return forward.local

    async def _listen_on_same(self, job_id: int, port: int, local: int) -> Forward:
        """Where nothing else was said, the port has the same number here if that is free."""
        if not local:
            try:
                return await self._listen(job_id, port, port)
            except UsageError:
                pass
        return await self._listen(job_id, port, local)

    async def _listen(self, job_id: int, port: int, local: int) -> Forward:
        async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self.backend.carry(self.engine.job(job_id), 0, Port(port), reader, writer)

        forward = Forward(job_id, port, carry)
        try:
            await forward.open(local)
        except OSError as error:
            raise UsageError(
                f"cannot listen on port {local} here: {os.strerror(error.errno or 0)}",
                hint="choose another --local port",
            ) from error
        self._open[forward.local] = forward
        # Whoever asks for a port of an ended job has something else running there.
        if not self.engine.job(job_id).state.final:
            # Whatever hinders that: the next Engine does not open it again.
            closing = self._tasks.spawn(
                self._close_with_job(forward), lambda error: self._forget(forward.local)
            )
            self._closing[forward.local] = closing
        return forward

    async def _close_with_job(self, forward: Forward) -> None:
        await self.engine.job_where(forward.job, lambda job: job.state.final)
        del self._closing[forward.local]
        await self._remove(forward.local)

    async def remove(self, who: Principal, local: int) -> None:
        """Close a port of one's own."""
        if local not in self._open or not self._is_for(who, self._open[local]):
            raise NotFound(
                f"nothing is forwarded from port {local}", hint="`tow forward` lists what is"
            )
        await self._remove(local)

    async def _remove(self, local: int) -> None:
        forward = self._open.pop(local)
        if closing := self._closing.pop(local, None):
            closing.cancel()
        self._forget(local)
        await forward.close()

    def _forget(self, local: int) -> None:
        what = f"that port {local} is not forwarded any more"
        self.engine.soon(what, lambda: self.engine.store.forget_forward(local))

    async def restore(self, remembered: list[tuple[int, int, int]]) -> None:
        """The same local ports as before, so that an open browser tab works again."""
        for local, job_id, port in remembered:
            job = self.engine.store.job(job_id)
            if job is None or job.state.final:
                self._forget(local)
                continue
            try:
                await self._listen(job_id, port, local)
            except UsageError:
                self._forget(local)

    async def close(self) -> None:
        self._tasks.close()
        for forward in self._open.values():
            await forward.close()

    def list(self, who: Principal) -> list[ForwardView]:
        """The ports here that lead to one's own jobs; an administrator's list has all."""
        return [
            {"job": forward.job, "port": forward.port, "local": forward.local}
            for forward in self._open.values()
            if self._is_for(who, forward)
        ]

    def _is_for(self, who: Principal, forward: Forward) -> bool:
        return who.owns(self.engine.job(forward.job).spec.owner)

    def __len__(self) -> int:
        return len(self._open)
