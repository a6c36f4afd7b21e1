"""Files that are handed to bubblewrap by their numbers, and what is written down about a box."""

import fcntl
import json
import os

from ..commands import process_tree
from ..records import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..typed import Message

#: Beside the record of a job, while its box is there: the first process inside, as we number it.
BOX = "/box"
#: Above all numbers that are given out by name.
OUT_OF_THE_WAY = 64


def holding(folder: str, data: bytes) -> int:
    """A file without a name that holds this; a pipe would take no more than 64 KB."""
    path = "%s/handed.%d" % (folder, os.getpid())
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.unlink(path)
        record.write_all(fd, data)
        os.lseek(fd, 0, os.SEEK_SET)
    except OSError:
        os.close(fd)
        raise
    return fd


def give_out(numbers: "dict[int, int]") -> None:
    """Just before exec: {number: file}. Everything else is closed, whoever opened it."""
    aside = {
        number: fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, OUT_OF_THE_WAY)
        for number, fd in numbers.items()
    }
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd not in aside.values():
            close(fd)
    for number, fd in aside.items():
        os.dup2(fd, number)
        os.set_inheritable(number, True)
        os.close(fd)


def close(fd: int) -> None:
    try:
        os.close(fd)
    except OSError:
        pass


def note_box(folder: str, init: int) -> None:
    """`init`: the first process inside."""
    about = {"init": init, "start": process_tree.start_of(init)}
    record.write_whole(folder + BOX, json.dumps(about).encode("ascii"))


def box_of(folder: str) -> "int | None":
    """The first process inside the box of a job with this record; None where there is none."""
    try:
        with open(folder + BOX, "rb") as file:
            about: "Message" = json.loads(file.read().decode("ascii"))
    except (OSError, ValueError):
        return None
    init = about["init"]
    return init if process_tree.lives(init, about["start"]) else None
