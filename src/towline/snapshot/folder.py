"""Which files of a folder travel: what git would not ignore, or all of it where there is no git."""

import os
import stat
from collections.abc import Iterable

from msgspec import Struct, structs

from towline.config.settings import SnapshotSettings
from towline.errors import UsageError
from towline.snapshot import git
from towline.snapshot.apart import MARK
from towline.snapshot.mounts import job_folders
from towline.snapshot.patterns import Patterns

IGNORE_FILE = ".towignore"
#: Never of use on another machine.
NEVER = frozenset({".git", "__pycache__"})


class Tree(Struct):
    """What was found: each path (relative to `root`, with `/`) with its lstat."""

    root: str
    #: Where the command runs, relative to `root`; "" is the root itself.
    subfolder: str
    found: dict[str, os.stat_result]
    is_git: bool = False


class Selection(SnapshotSettings, frozen=True):
    """Only these paths below the folder travel, whether git ignores them or not."""

    only: tuple[str, ...] = ()


def only_these(settings: SnapshotSettings, paths: Iterable[str]) -> Selection:
    """The settings, narrowed to some paths below the folder; `.` is all of it."""
    return Selection(**structs.asdict(settings), only=tuple(paths))


def list_tree(folder: str, settings: SnapshotSettings | None = None) -> Tree:
    """The tree that a folder is part of; inside a git repository that is the whole of it."""
    settings = settings or SnapshotSettings()
    folder = os.path.realpath(folder)
    if not os.path.isdir(folder):
        raise UsageError(f"there is no folder {folder}")
    if isinstance(settings, Selection):
        return _selected(folder, settings)
    root = git.find_root(folder)
    if root:
        subfolder = _relative(folder, root)
        paths = git.list_files(root, job_folders(root))
        if not _hidden_by_git(root, subfolder, paths):
            lister = _Lister(root, settings)
            lister.git(paths, "")
            lister.keep_folder(subfolder)
            return Tree(root, subfolder, lister.found, is_git=True)
    _refuse_too_wide(folder)
    lister = _Lister(folder, settings)
    lister.walk("")
    return Tree(folder, "", lister.found)


def _selected(folder: str, settings: Selection) -> Tree:
    lister = _Lister(folder, settings, by_git=False)
    for path in settings.only:
        normal = os.path.normpath(path)
        if normal == ".":
            _refuse_too_wide(folder)
            lister.walk("")
        else:
            lister.named(normal)
    return Tree(folder, "", lister.found)


def _relative(folder: str, root: str) -> str:
    return "" if folder == root else os.path.relpath(folder, root)


def _hidden_by_git(root: str, subfolder: str, paths: list[str]) -> bool:
    """True for a folder that git ignores as a whole: to git it is no part of the project."""
    if not subfolder or any(path.startswith(subfolder + "/") for path in paths):
        return False
    return git.is_ignored(root, subfolder)


def _refuse_too_wide(folder: str) -> None:
    home = os.path.realpath(os.path.expanduser("~"))
    if folder == "/" or (home + "/").startswith(folder + "/"):
        name = "your home folder" if folder == home else folder
        raise UsageError(
            f"the current folder goes along with the job, but it is {name}",
            "cd into the folder of your project first (any folder will do, also an empty one).",
        )


class _Lister:
    def __init__(self, root: str, settings: SnapshotSettings, by_git: bool = True) -> None:
        self.root = root
        #: Of a repository inside, what git would not ignore; else all of it.
        self.by_git = by_git
        self.found: dict[str, os.stat_result] = {}
        self.exclude = Patterns([*self._ignore_lines(), *settings.exclude])
        self.include = Patterns(settings.include)
        self._real_folders: dict[str, bool] = {"": True}
        self._mounts = job_folders(root)

    def git(self, paths: list[str], prefix: str) -> None:
        """The files that git listed in the repository at `prefix`."""
        if self.include:
            ignored = git.list_ignored(os.path.join(self.root, prefix))
            paths = paths + [path for path in ignored if self.include.match_below(prefix + path)]
        root, found, real, exclude = self.root, self.found, self._real_folders, self.exclude
        for name in paths:
            path = prefix + name
            if exclude and exclude.match_below(path.rstrip("/")):
                continue
            if self._mounts and self._is_mounted(path):
                continue
            # The ordinary case without a further call: there may be very many.
            if real.get(path.rpartition("/")[0]) and not path.endswith("/"):
                try:
                    facts = os.lstat(f"{root}/{path}")
                except OSError:
                    facts = None
                if facts is not None and not stat.S_ISDIR(facts.st_mode):
                    found[path] = facts
                    continue
            self._git_path(path)

    def _git_path(self, path: str) -> None:
        path = path.rstrip("/")
        # git knows a file below a folder that was replaced by a link as deleted.
        if path in self.found or not self._is_real(os.path.dirname(path)):
            return
        found = self._lstat(path)
        if found is None:
            return
        if not stat.S_ISDIR(found.st_mode):
            self.found[path] = found
        elif os.path.lexists(os.path.join(self.root, path, ".git")):
            nested = os.path.join(self.root, path)
            self.git(git.list_files(nested), path + "/")

    def _is_real(self, folder: str) -> bool:
        known = self._real_folders.get(folder)
        if known is None:
            found = self._lstat(folder)
            known = (
                found is not None
                and stat.S_ISDIR(found.st_mode)
                and self._is_real(os.path.dirname(folder))
            )
            self._real_folders[folder] = known
        return known

    def keep_folder(self, folder: str) -> None:
        """Let the folder exist over there even if nothing in it travels."""
        if folder and not any(path.startswith(folder + "/") for path in self.found):
            found = self._lstat(folder)
            if found is not None:
                self.found[folder] = found

    def named(self, path: str) -> None:
        """One path that was named, with all below it; it must be there, and really inside."""
        outside = os.path.isabs(path) or path.split("/")[0] == ".."
        if outside or not self._is_real(os.path.dirname(path)):
            raise UsageError(
                f"{path} is not inside {self.root}", "Only what is below the folder can be sent."
            )
        found = self._lstat(path)
        if found is None:
            raise UsageError(f"there is no {path} in {self.root} to be sent")
        if stat.S_ISDIR(found.st_mode):
            self.walk(path)
        else:
            self.found[path] = found

    def walk(self, top: str) -> None:
        waiting = [top]
        while waiting:
            folder = waiting.pop()
            entries = self._scan(folder)
            if folder != top and any(entry.name == MARK for entry in entries):
                continue
            kept = 0
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                is_folder = entry.is_dir(follow_symlinks=False)
                if self._left_out(entry.name, path, is_folder):
                    continue
                kept += 1
                if not is_folder:
                    found = self._lstat(path)
                    if found is not None:
                        self.found[path] = found
                elif self.by_git and os.path.lexists(os.path.join(self.root, path, ".git")):
                    self.git(git.list_files(os.path.join(self.root, path)), path + "/")
                else:
                    waiting.append(path)
            if folder and not kept:
                self.found[folder] = os.lstat(os.path.join(self.root, folder))

    def _left_out(self, name: str, path: str, is_folder: bool) -> bool:
        if name in NEVER or (is_folder and name == git.RESULTS) or path in self._mounts:
            return True
        return self.exclude.match(path, is_folder) and not self.include.match(path, is_folder)

    def _is_mounted(self, path: str) -> bool:
        return any(f"{path}/".startswith(f"{mount}/") for mount in self._mounts)

    def _scan(self, folder: str) -> list[os.DirEntry[str]]:
        where = os.path.join(self.root, folder)
        try:
            with os.scandir(where) as entries:
                return list(entries)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UsageError(
                f"cannot read the folder {where}: {error.strerror}",
                f"Leave it out with a line `/{folder}/` in {self.root}/{IGNORE_FILE}.",
            ) from None

    def _lstat(self, path: str) -> os.stat_result | None:
        try:
            return os.lstat(f"{self.root}/{path}")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise UsageError(f"cannot read {self.root}/{path}: {error.strerror}") from None

    def _ignore_lines(self) -> list[str]:
        try:
            with open(os.path.join(self.root, IGNORE_FILE), errors="surrogateescape") as stream:
                return stream.read().splitlines()
        except (FileNotFoundError, IsADirectoryError):
            return []
        except OSError as error:
            raise UsageError(f"cannot read {self.root}/{IGNORE_FILE}: {error.strerror}") from None
