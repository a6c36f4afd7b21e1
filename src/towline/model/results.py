"""What became of what a job made: data, which is put into words where people look."""

from typing import Literal

from msgspec import Struct

Stand = Literal["none", "pending", "home", "failed"]


class ResultsState(Struct, frozen=True, omit_defaults=True):
    """Where the results of a job stand."""

    kind: Stand
    #: Where they are; what is not UTF-8 is kept as `model/odd_text.py` says.
    path: str = ""
    #: What keeps them from coming, as it was said; they stay on the job's machine.
    why: str = ""

    @property
    def here(self) -> bool:
        """There is something of it on this machine."""
        return self.kind == "home"


#: Nothing is to come home, or there is nothing yet.
NOTHING = ResultsState("none")
#: There is something to bring home.
PENDING = ResultsState("pending")


def at_home(path: str) -> ResultsState:
    """All that was to come is here; nothing was to come where there is no path."""
    return ResultsState("home", path) if path else NOTHING


def not_fetched(why: str) -> ResultsState:
    return ResultsState("failed", why=why)
