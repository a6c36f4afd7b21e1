"""How many equal processes fit on a machine at a time, beside what is there now."""

from towline.core.machines.room import Room
from towline.core.machines.want import want_of
from towline.model.request import Need

#: Nobody needs to know more exactly how much room there is.
MOST = 1000


def seats_for(room: Room | None, need: Need) -> list[tuple[int, ...]]:
    """The GPUs of each of the processes that would fit now; none on a machine that is away."""
    if room is None or not room.up:
        return []
    want, twin = want_of(need), room.copy()
    seats: list[tuple[int, ...]] = []
    while len(seats) < MOST and (gpus := twin.choose(want)) is not None:
        twin.take(0, want, gpus)
        seats.append(gpus)
    return seats
