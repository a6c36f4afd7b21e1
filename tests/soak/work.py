"""What the soak runs: commands of which everything is known beforehand."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

#: Where every command leaves a line when it begins, on the hosts.
RAN_THERE = "/home/worker/ran.txt"
MADE = "made.txt"
# One write to a file opened for appending: lines of several commands never mix.
SCRIPT = (
    'echo "$1" >> "$2"; seq 1 "$3"; echo "err $1" >&2; [ "$4" = 0 ] || seq 1 "$4" > made.txt; '
    'sleep "$5"; echo "$1 ends"; exit "$6"'
)
LONGEST_OUTPUT = 20_000
LARGEST_FILE = 50_000
LONGEST_PAUSE_S = 4.0
#: Of so many nothing but what they print comes home; short prints come with the news of the end.
WITHOUT_FILE = 0.3


class Work(NamedTuple):
    """One command, where it is to run, and what must come of it."""

    name: str
    cluster: str
    ran: str
    printed: int
    made: int
    pause: float
    code: int

    @property
    def argv(self) -> list[str]:
        words = (self.name, self.ran, self.printed, self.made, f"{self.pause:.2f}", self.code)
        return ["sh", "-c", SCRIPT, "sh", *map(str, words)]

    @property
    def out(self) -> str:
        return f"{_counted(self.printed)}{self.name} ends\n"

    @property
    def err(self) -> str:
        return f"err {self.name}\n"

    @property
    def file(self) -> str:
        return _counted(self.made)

    def ask(self, folder: Path) -> dict[str, Any]:
        """The submission, as the Engine takes it."""
        return {
            "argv": self.argv,
            "cwd": str(folder),
            "cluster": self.cluster,
            "title": self.name,
            "environ": {"PATH": "/usr/local/bin:/usr/bin:/bin"},
        }


def endless_work(random: Random, ran_here: Path) -> Iterator[Work]:
    """Short and long ones, on this machine and on the hosts, with few and many bytes."""
    for number in itertools.count():
        here = random.random() < 0.3
        yield Work(
            name=f"soak{number}",
            cluster="local" if here else "lab",
            ran=str(ran_here) if here else RAN_THERE,
            printed=_skewed(random, LONGEST_OUTPUT),
            made=_skewed(random, LARGEST_FILE) if random.random() > WITHOUT_FILE else 0,
            pause=random.choice((0.0, random.uniform(0, 0.5), random.uniform(0, LONGEST_PAUSE_S))),
            code=random.choice((0, 0, random.randrange(1, 120))),
        )


def _skewed(random: Random, most: int) -> int:
    """Mostly small numbers, at times large ones."""
    return int(1 + (most - 1) * random.random() ** 4)


def _counted(last: int) -> str:
    return "".join(f"{number}\n" for number in range(1, last + 1))
