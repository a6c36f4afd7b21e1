"""Several folders made one: identical files collapse, different ones of one name are an error.

Everything is compared before anything is written; what is written is written beside its place
first, so that a folder is there whole or not at all.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile

from towline.errors import TowlineError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FILE, LINK, FOLDER = "a file", "a link", "a folder"
_PIECE = 1 << 20
#: Of what does not go together, so much is told.
_MOST_TOLD = 10
_BESIDE = ".combining-"


class CombinedEntry:
    """One path of one source."""

    __slots__ = ("kind", "place")

    def __init__(self, place: str) -> None:
        self.place = place
        mode = os.lstat(place).st_mode
        kinds = ((stat.S_ISREG, FILE), (stat.S_ISLNK, LINK), (stat.S_ISDIR, FOLDER))
        self.kind = next((kind for is_kind, kind in kinds if is_kind(mode)), "")
        if not self.kind:
            raise TowlineError(f"{place} is neither a file nor a folder nor a link")

    def differs_from(self, other: CombinedEntry) -> str:
        """Why both cannot be one; empty when they can."""
        if self.kind != other.kind:
            return f"{other.place} is {other.kind}, but {self.place} is {self.kind}"
        same = (
            self.kind == FOLDER
            or (self.kind == LINK and os.readlink(self.place) == os.readlink(other.place))
            or (self.kind == FILE and same_content(self.place, other.place))
        )
        return "" if same else f"{other.place} and {self.place} are different"


def combine(target: str, sources: list[str]) -> tuple[int, int]:
    """Make `target` hold all that the sources hold; how many files it got, and how many it has.

    What is in `target` already counts like a source, and stays as it is.
    """
    _check_folders(target, sources)
    here = dict(entries(target)) if os.path.isdir(target) else {}
    found = dict(here)
    problems: list[str] = []
    for source in sources:
        for path, entry in entries(source):
            known = found.setdefault(path, entry)
            if known is not entry and (problem := entry.differs_from(known)):
                problems.append(problem)
    if problems:
        raise _conflict(problems)
    fresh = {path: entry for path, entry in found.items() if path not in here}
    _write(target, fresh)
    return _files(fresh), _files(found)


def entries(folder: str) -> Iterator[tuple[str, CombinedEntry]]:
    """Every path below a folder, parents first; links are not followed."""

    def unreadable(error: OSError) -> None:
        raise TowlineError(f"cannot read {error.filename}: {error.strerror}")

    for place, folders, names in os.walk(folder, onerror=unreadable):
        if place == folder:
            folders[:] = [name for name in folders if not name.startswith(_BESIDE)]
        for name in sorted([*folders, *names]):
            whole = os.path.join(place, name)
            yield os.path.relpath(whole, folder), CombinedEntry(whole)


def same_content(one: str, other: str) -> bool:
    with open(one, "rb") as left, open(other, "rb") as right:
        if os.fstat(left.fileno()).st_size != os.fstat(right.fileno()).st_size:
            return False
        while piece := left.read(_PIECE):
            if piece != right.read(_PIECE):
                return False
        return True


def _check_folders(target: str, sources: list[str]) -> None:
    for source in sources:
        if not os.path.isdir(source):
            what = "is not a folder" if os.path.lexists(source) else "does not exist"
            raise UsageError(f"{source} {what}", "combine_folders DEST SRC...")
        top, inside = os.path.realpath(source), os.path.realpath(target)
        if inside != top and inside.startswith(top.rstrip("/") + "/"):
            raise UsageError(
                f"{target} is inside {source}, and would become part of itself",
                "choose a destination outside of the folders that are combined",
            )
    if os.path.lexists(target) and not os.path.isdir(target):
        raise UsageError(f"{target} is not a folder", "choose another destination")


def _conflict(problems: list[str]) -> TowlineError:
    more = len(problems) - _MOST_TOLD
    told = problems[:_MOST_TOLD] + ([f"and {more} more"] if more > 0 else [])
    return TowlineError("\n  ".join(told), "nothing was written")


def _files(found: dict[str, CombinedEntry]) -> int:
    return sum(entry.kind != FOLDER for entry in found.values())


def _write(target: str, fresh: dict[str, CombinedEntry]) -> None:
    """All of it, or nothing: first beside its place, then into it."""
    target = os.path.realpath(target)
    into = os.path.isdir(target)
    parent = target if into else os.path.dirname(target)
    made = _missing_folders(parent)
    os.makedirs(parent, exist_ok=True)
    draft = tempfile.mkdtemp(prefix=_BESIDE, dir=parent)
    try:
        _copy(draft, fresh)
        if into:
            _move_in(draft, target, fresh)
        else:
            os.chmod(draft, 0o777 & ~_umask())
            os.rename(draft, target)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        _remove_empty(made)
        raise
    shutil.rmtree(draft, ignore_errors=True)


def _move_in(draft: str, target: str, fresh: dict[str, CombinedEntry]) -> None:
    """Into a folder that is there; what was moved goes again if not all can be."""
    moved: list[str] = []
    try:
        for path, entry in fresh.items():
            place = os.path.join(target, path)
            if entry.kind == FOLDER:
                os.mkdir(place)
            elif os.path.lexists(place):
                raise FileExistsError(17, "somebody has just put a file there", place)
            else:
                os.rename(os.path.join(draft, path), place)
            moved.append(place)
    except BaseException:
        for place in reversed(moved):
            if os.path.islink(place) or not os.path.isdir(place):
                os.unlink(place)
            else:
                _remove_empty([place])
        raise


def _remove_empty(folders: Iterable[str]) -> None:
    for folder in folders:
        try:
            os.rmdir(folder)
        except OSError:
            return


def _missing_folders(folder: str) -> list[str]:
    """Those that will have to be made, the innermost first."""
    missing = []
    while not os.path.exists(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    return missing


def _copy(draft: str, fresh: dict[str, CombinedEntry]) -> None:
    for path, entry in fresh.items():
        place = os.path.join(draft, path)
        # A parent may be in the target already, and so not among what is fresh.
        os.makedirs(place if entry.kind == FOLDER else os.path.dirname(place), exist_ok=True)
        if entry.kind != FOLDER:
            shutil.copy2(entry.place, place, follow_symlinks=False)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
