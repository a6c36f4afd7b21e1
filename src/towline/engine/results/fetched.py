"""What one fetch brought home, and what it did not."""

from msgspec import Struct, field

from towline.api.files import FetchedView as FetchedView
from towline.engine.wording import why_not_collected
from towline.model.journal import Remark
from towline.model.odd_text import keepable
from towline.workspace.base import PlacedResults

#: Of what did not come home as it is over there, so much is told.
_MOST_TOLD = 10


class Fetched(Struct):
    """What came home of one job."""

    #: As its receiver says.
    placed: PlacedResults = field(default_factory=lambda: PlacedResults(""))
    #: Where the first of what it printed is.
    printed: str = ""
    #: Names of what cannot be read.
    unreadable: list[str] = field(default_factory=list)
    #: What it wrote elsewhere on its machine and could not be copied there, and why; of so many.
    not_collected: list[tuple[str, str]] = field(default_factory=list)
    uncollected: int = 0
    #: Paths that were asked for, and of which nothing was made; and the first of what was.
    missing: list[str] = field(default_factory=list)
    made: list[str] = field(default_factory=list)

    @property
    def refused(self) -> list[str]:
        """Names that were left out: they cannot be read, or would lead out of the folder."""
        return self.unreadable + self.placed.refused

    def obstacle(self) -> str:
        """Why some of it is not here; it stays on its machine until it is."""
        in_the_way = self.placed.in_the_way
        if not in_the_way:
            return ""
        more = len(in_the_way) - 1
        return f"there is a file in the way of {in_the_way[0]}" + (
            f" and {more} more" if more else ""
        )

    def remarks(self) -> list[Remark]:
        """What did not come home under its own name."""
        told = [Remark("kept", here, newer=newer) for here, newer in self.placed.kept]
        told += [Remark("left_out", keepable(name)) for name in self.refused]
        told += [
            Remark("not_collected", keepable(name), why=why) for name, why in self.not_collected
        ]
        made = tuple(map(keepable, sorted(self.made)))
        told += [Remark("not_made", keepable(path), made=made) for path in self.missing]
        more = len(told) - _MOST_TOLD + self.uncollected - len(self.not_collected)
        return told[:_MOST_TOLD] + ([Remark("more", count=more)] if more > 0 else [])

    def view(self) -> FetchedView:
        """The same for programs."""
        return {
            "folder": self.placed.folder,
            "files": self.placed.files,
            "bytes": self.placed.bytes,
            "printed": self.printed,
            "conflicts": [[here, newer] for here, newer in self.placed.conflicts],
            "refused": self.refused,
            "not_collected": [[name, why_not_collected(why)] for name, why in self.not_collected],
            "uncollected": self.uncollected,
            "in_the_way": self.placed.in_the_way,
            "missing": self.missing,
            "made": self.made,
        }
