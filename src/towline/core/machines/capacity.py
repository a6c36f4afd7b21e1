"""How many equal processes fit on a machine at a time, beside what is there now."""

from towline.core.machines.demand import demand_of
from towline.core.machines.host_state import HostState
from towline.model.request import Need

#: Nobody needs to know more exactly how many there are.
MOST = 1000


def seats_for(host: HostState | None, need: Need) -> list[tuple[int, ...]]:
    """The GPUs of each of the processes that would fit now; none on a machine that is away."""
    if host is None or not host.up:
        return []
    demand, twin = demand_of(need), host.copy()
    seats: list[tuple[int, ...]] = []
    while len(seats) < MOST and (gpus := twin.choose(demand)) is not None:
        twin.take(0, demand, gpus)
        seats.append(gpus)
    return seats
