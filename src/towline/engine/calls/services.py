"""What runs beside jobs, and the ports here that lead there."""

from collections.abc import AsyncIterator

from towline.api.places import ForwardView, ServiceView
from towline.engine.following.output import Frame
from towline.engine.parts import EngineParts
from towline.model.principal import Principal


class ServiceCalls:
    """Services and ports are their jobs' owners'."""

    def __init__(self, parts: EngineParts) -> None:
        self._parts = parts

    def list_all(self, who: Principal, job_id: int | None) -> list[ServiceView]:
        """The services of all of somebody's jobs, or of one."""
        return self._parts.services.list(who, job_id)

    def log(
        self, who: Principal, job_id: int, name: str, offset: int, follow: bool
    ) -> AsyncIterator[Frame]:
        """What a service printed after a place."""
        return self._parts.services.log(who, job_id, name, offset, follow)

    async def forward(self, who: Principal, job_id: int, port: int, local: int) -> int:
        """Let a port here lead to one beside a job; which port that is."""
        return await self._parts.forwards.add(who, job_id, port, local)

    def forwards(self, who: Principal) -> list[ForwardView]:
        """The ports here that lead to somebody's jobs."""
        return self._parts.forwards.list(who)

    async def close_forward(self, who: Principal, local: int) -> None:
        """Close such a port."""
        await self._parts.forwards.remove(who, local)
