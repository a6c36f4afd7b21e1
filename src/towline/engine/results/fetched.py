"""What one fetch brought home, and what it did not."""

import os

from msgspec import Struct, field

from towline.model.journal import Remark
from towline.model.odd_text import keepable

#: Of what did not come home as it is over there, so much is told.
_MOST_TOLD = 10


class Fetched(Struct):
    """What came home of one job."""

    folder: str
    files: int = 0
    bytes: int = 0
    #: Where the first of what it printed is.
    printed: str = ""
    #: Files that a person has here with other content, and where the newer copy went.
    conflicts: list[tuple[str, str]] = field(default_factory=list)
    #: Names that were left out: they would lead out of the folder, or cannot be read.
    refused: list[str] = field(default_factory=list)
    #: Where something of a person's is in place of a folder that is needed.
    in_the_way: list[str] = field(default_factory=list)

    #: Paths that were asked for, and of which nothing was made; and the first of what was.
    missing: list[str] = field(default_factory=list)
    made: list[str] = field(default_factory=list)

    def obstacle(self) -> str:
        """Why some of it is not here; it stays on its machine until it is."""
        if not self.in_the_way:
            return ""
        more = len(self.in_the_way) - 1
        return f"there is a file in the way of {self.in_the_way[0]}" + (
            f" and {more} more" if more else ""
        )

    def remarks(self) -> list[Remark]:
        """What did not come home under its own name."""
        top = os.path.dirname(os.path.dirname(self.folder))
        told = [
            Remark("kept", _below(top, here), newer=_below(top, newer))
            for here, newer in self.conflicts
        ]
        told += [Remark("left_out", keepable(name)) for name in self.refused]
        made = tuple(map(keepable, sorted(self.made)))
        told += [Remark("not_made", keepable(path), made=made) for path in self.missing]
        more = len(told) - _MOST_TOLD
        return told[:_MOST_TOLD] + ([Remark("more", count=more)] if more > 0 else [])


def _below(top: str, path: str) -> str:
    return keepable(os.path.relpath(path, top))
