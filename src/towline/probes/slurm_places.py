"""Who waits before whom in a Slurm's queue, as `squeue` prints it. Pure."""

from msgspec import Struct


class Pending(Struct, frozen=True):
    """One entry that waits, of any user, as far as the site shows them."""

    id: str
    partition: str
    priority: int


def pending_words() -> list[str]:
    """All that waits; an array is one line."""
    return ["squeue", "--noheader", "--states=PENDING", "--format=%A|%P|%Q"]


def read_pending(text: str) -> list[Pending]:
    fields = (line.strip().split("|") for line in text.splitlines())
    return [
        Pending(one[0], one[1], int(one[2]))
        for one in fields
        if len(one) == 3 and one[0].isdecimal() and one[2].isdecimal()
    ]


def place_of(number: str, waiting: list[Pending]) -> tuple[int, int]:
    """Which it is of those that wait in its partition, and how many do; 0 where it is not one."""
    whole = number.partition("_")[0]
    mine = next((one for one in waiting if one.id == whole), None)
    if mine is None:
        return 0, 0
    beside = [one for one in waiting if one.partition == mine.partition]
    mark = (-mine.priority, int(mine.id))
    before = sum((-one.priority, int(one.id)) < mark for one in beside)
    return before + 1, len(beside)
