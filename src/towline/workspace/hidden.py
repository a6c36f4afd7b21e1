"""A folder that nobody sees until it is filled.

Where a folder of results is not here yet, nothing of a person's can be in it: files are written
under their own names into one that is called otherwise, and which then gets its name. Putting every
file beside its place first, and then into it, takes the file system twice as long.
"""

import errno
import os
import shutil
from collections.abc import Iterator

from towline.workspace.parts import own_name

#: What is said where there is something of that name already.
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)


class HiddenFolder:
    """`place` is where it will be, and where nothing is yet; folders in it have the same `mode`."""

    def __init__(self, place: str, mode: int) -> None:
        self.place = place
        self._path = os.path.join(os.path.dirname(place), own_name())
        self._mode = mode
        #: It and the folders in it, as they will be -> as they are now.
        self.folders: dict[str, str] = {}
        self._make(place, self._path)

    def is_above(self, path: str) -> bool:
        return path.startswith(f"{self.place}/")

    def folder(self, place: str) -> str:
        """Where a folder in it is now, made if need be; FileExistsError if a file has its name."""
        known = self.folders.get(place)
        if known is None:
            above, _, name = place.rpartition("/")
            known = f"{self.folder(above)}/{name}"
            self._make(place, known)
        return known

    def _make(self, place: str, path: str) -> None:
        os.mkdir(path)
        os.chmod(path, self._mode)
        self.folders[place] = path

    def reveal(self) -> bool:
        """Give it its name; False: somebody made something of that name meanwhile."""
        try:
            os.rename(self._path, self.place)
        except OSError as error:
            if error.errno in _TAKEN:
                return False
            raise
        return True

    def files(self) -> Iterator[tuple[str, str]]:
        """Every file in it: where it is now, and where it is to be."""
        for place, path in self.folders.items():
            for entry in os.scandir(path):
                if not entry.is_dir(follow_symlinks=False):
                    yield entry.path, f"{place}/{entry.name}"

    def remove(self) -> None:
        """Remove what is left of it."""
        shutil.rmtree(self._path, ignore_errors=True)
