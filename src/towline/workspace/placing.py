"""Put what comes from machines into the user's folder.

What a person made or changed is never overwritten. What was brought home earlier, and is still as
it was then, gives way to what comes now: results are those of the last attempt.
"""

import errno
import itertools
import os
import stat
import threading
from collections.abc import Callable
from functools import partial

from towline.model.odd_text import keepable, original
from towline.workspace.brought import Brought, Mark
from towline.workspace.hidden import HiddenFolder
from towline.workspace.parts import PartialFile, new_hash, own_name

FOLDER = "job_results"
_CHUNK = 1 << 20
#: A file system without hard links says so by one of these.
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class InTheWay(Exception):
    """There is a file where a folder is needed."""


class Placer:
    """Places what comes of one attempt of a job. Its methods may be called in threads."""

    def __init__(self, folder: str, brought: Brought, attempt: int, umask: int) -> None:
        #: Where the files go, and the `job_results` that this is in.
        self.folder = folder
        self.top = os.path.dirname(folder)
        self.attempt = attempt
        self.umask = umask
        self.known = brought.files if brought.top == keepable(self.top) else {}
        self.now: dict[str, Mark] = {}
        #: Files and folders that are new here, or have new contents.
        self.placed: list[str] = []
        #: Files that a person has here with other content, and where the newer copy went.
        self.conflicts: list[tuple[str, str]] = []
        #: What came whole and has no place: there is a file of a person's in place of a folder.
        self.in_the_way: list[str] = []
        #: The new folder that is being filled, and whether there may be one.
        self._hidden: HiddenFolder | None = None
        self._may_hide = True
        self._hiding = threading.RLock()

    def brought(self) -> Brought:
        """What is remembered from now on."""
        return Brought(keepable(self.top), {**self.known, **self.now})

    # --- what arrives ------------------------------------------------------------------------

    def begin(self, target: str, what: str = "") -> PartialFile:
        """`what` it will be, if it is long: what is here of it already is gone on with."""
        self._reveal_above(target)
        self.make_folders(os.path.dirname(target))
        return PartialFile(os.path.dirname(target), what)

    def place(self, part: PartialFile, target: str, mode: int, grows: bool = False) -> str:
        """Put a file that arrived whole into place; where that is.

        Of something that only `grows`, a beginning that is here gives way to the whole.
        """
        digest = part.finish(mode & 0o777 & ~self.umask)
        mark = Mark(self.attempt, part.size, os.stat(part.path).st_mtime_ns, digest)
        whole = part.path if grows else ""
        return self._settle(
            part.path, target, mark, lambda place: self._is_same(place, mark, whole)
        )

    def _is_same(self, place: str, mark: Mark, whole: str) -> bool:
        """Whether it holds the same, or a beginning of the `whole`."""
        return self._holds(place, mark) or (bool(whole) and _begins_with(whole, place))

    def place_whole(
        self, target: str, content: bytes | memoryview, mode: int, grows: bool = False
    ) -> str:
        """The same of what is short."""
        mode = mode & 0o777 & ~self.umask
        if not grows and self._hide(target, content, mode):
            return target
        self._reveal_above(target)
        folder = os.path.dirname(target)
        self.make_folders(folder)
        beside = os.path.join(folder, own_name())
        try:
            mtime_ns = _write_new(beside, content, mode)
            mark = Mark(self.attempt, len(content), mtime_ns, digest_of_bytes(content))
            whole = beside if grows else ""
            return self._settle(
                beside, target, mark, lambda place: self._is_same(place, mark, whole)
            )
        finally:
            _remove(beside)

    def place_link(self, target: str, aim: str) -> str:
        self._reveal_above(target)
        self.make_folders(os.path.dirname(target))
        beside = os.path.join(os.path.dirname(target), own_name())
        os.symlink(aim, beside)
        try:
            mark = Mark(self.attempt, -1, 0, keepable(aim))
            return self._settle(beside, target, mark, lambda place: _leads_to(place, aim))
        finally:
            _remove(beside)

    def _settle(self, beside: str, wanted: str, mark: Mark, is_same: Callable[[str], bool]) -> str:
        """Under its own name, or beside what has that name and is somebody's own."""
        self._remove_older_below(wanted)
        numbered = (f"{wanted}.{number}" for number in itertools.count(2))
        for place in itertools.chain([wanted], numbered):
            name = self._name(place)
            if _put_new(beside, place):
                fresh = True
            elif is_same(place):
                fresh = False
                if mark.size >= 0 and not self._holds(place, mark):
                    os.replace(beside, place)  # what was here was the beginning of it
                mark = _as_it_is(place, mark)
            elif self._is_untouched(name, place):
                fresh = True
                os.replace(beside, place)
            else:
                continue
            self.now[name] = mark
            if mark.size >= 0:
                self.placed.append(place)
            if fresh and place != wanted:
                self.conflicts.append((wanted, place))
            return place
        raise AssertionError("there is always another name")

    def make_folders(self, folder: str) -> None:
        """Make a folder, and those above it; an older result that is in the way goes."""
        if os.path.isdir(folder):
            return
        above = os.path.dirname(folder)
        self.make_folders(above)
        if os.path.lexists(folder):
            self._remove_older(self._name(folder))
        try:
            os.mkdir(folder)
        except FileExistsError:
            if os.path.isdir(folder):
                return  # made meanwhile
            raise InTheWay(folder) from None
        os.chmod(folder, 0o777 & ~self.umask)
        self.placed.append(folder)
        if folder == self.top:
            ignore_in_git(folder)

    # --- new folders -------------------------------------------------------------------------

    def _hide(self, target: str, content: bytes | memoryview, mode: int) -> bool:
        """Write a file into a folder that nobody sees yet; False where its folder is here."""
        with self._hiding:
            folder, _, name = target.rpartition("/")
            try:
                path = self._hidden_folder(folder)
                if path is None:
                    return False
                mtime_ns = _write_new(f"{path}/{name}", content, mode)
            except FileExistsError:
                return False  # two of one name: that is seen to in the open
            mark = Mark(self.attempt, len(content), mtime_ns, digest_of_bytes(content))
            self.now[self._name(target)] = mark
            self.placed.append(target)
            return True

    def _hidden_folder(self, folder: str) -> str | None:
        """Where a new folder is being filled; None if it is no new one."""
        hidden = self._hidden
        if hidden is not None and (known := hidden.folders.get(folder)):
            return known
        if hidden is None or not hidden.is_above(folder):
            missing = self._first_missing(folder)
            if missing is None:
                return None
            self.reveal()
            hidden = self._hidden = HiddenFolder(missing, 0o777 & ~self.umask)
        return hidden.folder(folder)

    def _first_missing(self, folder: str) -> str | None:
        """The uppermost folder on the way to one that is not here; None if nothing lacks, or
        something else is in the way."""
        missing = None
        while self._may_hide and not os.path.isdir(folder):
            if os.path.lexists(folder):
                return None
            if folder == self.top:
                self.make_folders(folder)
                break
            missing, folder = folder, os.path.dirname(folder)
        return missing

    def _reveal_above(self, path: str) -> None:
        if self._hidden is not None and self._hidden.is_above(path):
            self.reveal()

    def reveal(self) -> None:
        """Let everybody see what was put into new folders."""
        with self._hiding:
            hidden, self._hidden = self._hidden, None
            if hidden is None:
                return
            try:
                if hidden.reveal():
                    self.placed += hidden.folders
                else:
                    self._merge(hidden)
            finally:
                hidden.remove()

    def _merge(self, hidden: HiddenFolder) -> None:
        """There is a folder of that name by now: each file gets its place beside what is in it."""
        for path, place in hidden.files():
            mark = self.now.pop(self._name(place))
            try:
                self.make_folders(os.path.dirname(place))
                self._settle(path, place, mark, partial(self._is_same, mark=mark, whole=""))
            except InTheWay:
                self.in_the_way.append(place)

    def close(self) -> None:
        """No more comes: what has come can be seen, and nothing is hidden from now on."""
        self._may_hide = False
        self.reveal()

    # --- what an earlier attempt left --------------------------------------------------------

    def remove_older(self) -> None:
        """Remove what an earlier attempt brought and this one did not make."""
        for name in set(self.known) - set(self.now):
            self._remove_older(name)

    def _remove_older_below(self, place: str) -> None:
        """Where a file is to be, an earlier attempt may have had a folder."""
        if not self.known or not os.path.isdir(place) or os.path.islink(place):
            return
        below = f"{self._name(place)}/"
        for name in list(self.known):
            if name.startswith(below):
                self._remove_older(name)

    def _remove_older(self, name: str) -> None:
        mark = self.known.get(name)
        if mark is None or mark.attempt >= self.attempt or name in self.now:
            return
        place = os.path.join(self.top, original(name))
        if self._is_untouched(name, place):
            os.unlink(place)
            self._remove_empty(os.path.dirname(place))
        # Gone, or a person's own from now on.
        self.known.pop(name, None)

    def _remove_empty(self, folder: str) -> None:
        while folder.startswith(self.folder):
            try:
                os.rmdir(folder)
            except OSError:
                return
            folder = os.path.dirname(folder)

    # --- what is here ------------------------------------------------------------------------

    def _name(self, place: str) -> str:
        return keepable(place[len(self.top) + 1 :])

    def _is_untouched(self, name: str, place: str) -> bool:
        """Whether it is what we brought, and as we brought it."""
        mark = self.known.get(name)
        return mark is not None and self._holds(place, mark)

    def _holds(self, place: str, mark: Mark) -> bool:
        try:
            facts = os.lstat(place)
            if stat.S_ISLNK(facts.st_mode):
                return mark.size < 0 and keepable(os.readlink(place)) == mark.digest
            if not stat.S_ISREG(facts.st_mode) or facts.st_size != mark.size:
                return False
            known = self.known.get(self._name(place))
            if known is not None and (known.size, known.mtime_ns) == (mark.size, facts.st_mtime_ns):
                return known.digest == mark.digest
            return digest_of(place) == mark.digest
        except OSError:
            return False


def ignore_in_git(folder: str) -> None:
    """Results are not for the repository that they lie in."""
    try:
        with open(os.path.join(folder, ".gitignore"), "x") as file:
            file.write("*\n")
    except OSError:
        pass  # it is only a convenience


def _write_new(path: str, content: bytes | memoryview, mode: int) -> int:
    """Write a file that is not there yet; its time."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        if os.write(file, content) != len(content):
            raise OSError(errno.ENOSPC, "written in part", path)
        facts = os.fstat(file)
        # The Engine's own umask may have taken more away; asking each time costs a lot.
        if stat.S_IMODE(facts.st_mode) != mode:
            os.fchmod(file, mode)
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(file)
    return facts.st_mtime_ns


def digest_of(path: str) -> str:
    found = new_hash()
    with open(path, "rb") as file:
        while piece := file.read(_CHUNK):
            found.update(piece)
    return found.hexdigest()


def digest_of_bytes(content: bytes | memoryview) -> str:
    found = new_hash()
    found.update(content)
    return found.hexdigest()


def _put_new(beside: str, place: str) -> bool:
    """False if there is something in that place already."""
    try:
        os.link(beside, place, follow_symlinks=False)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if os.path.lexists(place):
            return False
        os.rename(beside, place)
    return True


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass  # it has got its place


def _as_it_is(place: str, mark: Mark) -> Mark:
    facts = os.lstat(place)
    return mark if mark.size < 0 else Mark(mark.attempt, mark.size, facts.st_mtime_ns, mark.digest)


def _leads_to(place: str, aim: str) -> bool:
    return os.path.islink(place) and os.readlink(place) == aim


def _begins_with(path: str, beginning: str) -> bool:
    """True if there is a plain file `beginning` and `path` starts with all that is in it."""
    if not os.path.isfile(beginning) or os.path.islink(beginning):
        return False
    with open(path, "rb") as whole, open(beginning, "rb") as part:
        while piece := part.read(_CHUNK):
            if whole.read(len(piece)) != piece:
                return False
    return True
