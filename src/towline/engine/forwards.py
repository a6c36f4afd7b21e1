"""Local ports that lead to jobs; kept by the Engine, found again after a restart."""

from typing import Any

from towline.agent.link import Link
from towline.backends.machines import Machines
from towline.engine.engine import Engine
from towline.errors import NotFound, UsageError
from towline.forward.tunnels import Forward


class Forwards:
    def __init__(self, engine: Engine, machines: Machines) -> None:
        self.engine = engine
        self.machines = machines
        self._open: dict[int, Forward] = {}

    async def add(self, job_id: int, port: int, local: int = 0) -> int:
        if not 1 <= port <= 65535 or not 0 <= local <= 65535:
            raise UsageError(f"{port if not 1 <= port <= 65535 else local} is not a port")
        job = self.engine.job(job_id)
        if job.attempt is None:
            raise NotFound(f"job {job_id} has not started yet", hint=f"tow why {job_id}")
        for forward in self._open.values():
            if (forward.job, forward.port) == (job_id, port) and local in (0, forward.local):
                return forward.local
        forward = await self._listen(job_id, port, local)
        self.engine.store.remember_forward(forward.local, job_id, port)
        return forward.local

    async def _listen(self, job_id: int, port: int, local: int) -> Forward:
        async def reach() -> Link:
            return await self.machines.tunnel(self.engine.job(job_id), 0)

        forward = Forward(job_id, port, reach)
        try:
            await forward.open(local)
        except OSError as error:
            raise UsageError(
                f"cannot listen on port {local} here: {error.strerror}",
                hint="choose another --local port",
            ) from error
        self._open[forward.local] = forward
        return forward

    async def remove(self, local: int) -> None:
        forward = self._open.pop(local, None)
        if forward is None:
            raise NotFound(
                f"nothing is forwarded from port {local}", hint="`tow forward` lists what is"
            )
        await forward.close()
        self.engine.store.forget_forward(local)

    async def restore(self, remembered: list[tuple[int, int, int]]) -> None:
        """The same local ports as before, so that an open browser tab works again."""
        for local, job_id, port in remembered:
            try:
                await self._listen(job_id, port, local)
            except UsageError:
                self.engine.store.forget_forward(local)

    async def close(self) -> None:
        for forward in self._open.values():
            await forward.close()

    def list(self) -> list[dict[str, Any]]:
        return [{"job": f.job, "port": f.port, "local": f.local} for f in self._open.values()]

    def __len__(self) -> int:
        return len(self._open)
