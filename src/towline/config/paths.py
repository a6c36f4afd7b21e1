"""Where Towline keeps its files. On the hot path of every command: imports next to nothing."""

from __future__ import annotations

import os
import stat

from towline.errors import EngineError

#: A unix socket's path has at most 107 bytes on Linux and 103 elsewhere.
LONGEST_SOCKET = 100
#: ssh adds "/", 40 characters for %C and 17 while it creates a control socket.
LONGEST_SSH_DIR = 45
SHORT_ROOT = "/tmp"
#: Kinds of file systems that several machines see, or that may be such.
_NETWORK = (
    *("nfs", "nfs4", "lustre", "gpfs", "beegfs", "cifs", "smb3", "smbfs", "afs", "ceph", "9p"),
    *("glusterfs", "panfs", "orangefs", "pvfs2", "fuse", "ncpfs", "coda", "ocfs2", "gfs2"),
)


class Paths:
    """Every file and folder of one Towline installation of one user."""

    __slots__ = (
        "config_file",
        "home",
        "lock_file",
        "log_file",
        "pid_file",
        "socket",
        "ssh_dir",
        "state",
        "store_file",
        "trusted",
    )

    def __init__(self, home: str, config_file: str, socket: str) -> None:
        #: The folder that tells two installations apart.
        self.home = home
        self.config_file = config_file
        self.state = home
        self.socket = socket
        self.pid_file = os.path.join(home, "engine.pid")
        self.lock_file = os.path.join(home, "engine.lock")
        self.log_file = os.path.join(home, "engine.log")
        self.store_file = os.path.join(home, "store.db")
        self.trusted = os.path.join(home, "trusted")
        self.ssh_dir = os.path.join(home, "cm")
        if len(os.fsencode(self.socket)) > LONGEST_SOCKET:
            self.socket = _short_name(home) + ".sock"
        if len(os.fsencode(self.ssh_dir)) > LONGEST_SSH_DIR:
            self.ssh_dir = _short_name(home) + ".cm"


def home_paths() -> Paths:
    """The paths that TOWLINE_HOME, or else the XDG variables, ask for; creates nothing."""
    home = os.environ.get("TOWLINE_HOME")
    if home:
        home = os.path.abspath(os.path.expanduser(home))
        return Paths(home, os.path.join(home, "config.toml"), os.path.join(home, "engine.sock"))
    state = _own_state(os.path.join(_xdg("XDG_STATE_HOME", ".local/state"), "towline"))
    config = os.path.join(_xdg("XDG_CONFIG_HOME", ".config"), "towline", "config.toml")
    return Paths(state, config, os.path.join(state, "engine.sock"))


def _own_state(shared: str) -> str:
    """The folder of state: one for each machine where it would be on a network file system.

    What is there already stays in use.
    """
    own = os.path.join(shared, "hosts", os.uname().nodename)
    if os.path.exists(own):
        return own
    if os.path.exists(os.path.join(shared, "store.db")):
        return shared
    kind = file_system_of(os.path.realpath(shared), _mounts())
    return own if kind in _NETWORK else shared


def file_system_of(path: str, mounts: str) -> str:
    """Its kind, e.g. ext4 or nfs; `mounts` is what /proc/self/mounts says.

    What is mounted by a program in user space is `fuse`, whatever comes after that.
    """
    found, kind = "", ""
    for line in mounts.splitlines():
        _, place, named, *_ = [*line.split(" "), "", "", ""]
        place = place.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
        inside = f"{path}/".startswith(f"{place.rstrip('/')}/")
        if inside and len(place) >= len(found):
            found, kind = place, named
    return kind.partition(".")[0]


def _mounts() -> str:
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""


def make_folders(paths: Paths) -> None:
    """Create what is missing, for this user alone; refuse a folder that others could write in."""
    for folder in (
        os.path.dirname(paths.config_file),
        paths.home,
        os.path.dirname(paths.socket),
        paths.ssh_dir,
    ):
        if os.path.dirname(folder) == _short_folder():
            _make_private(_short_folder())
        _make_private(folder)


def _make_private(folder: str) -> None:
    try:
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            if not os.path.isdir(folder):
                raise
    except OSError as error:
        raise EngineError(
            f"cannot create the folder {folder}: {error.strerror}",
            "Mend that, or set TOWLINE_HOME to a folder of your own.",
        ) from None
    if folder == _short_folder():
        _check_short_folder(folder)
        return
    found = os.stat(folder)
    if found.st_uid != os.geteuid() or found.st_mode & stat.S_IWOTH:
        raise EngineError(
            f"the folder {folder} must be yours and closed to others",
            f"Do `chmod 700 {folder}`, or set TOWLINE_HOME to a folder of your own.",
        )


def _xdg(variable: str, default: str) -> str:
    value = os.environ.get(variable, "")
    # The XDG specification: a relative path is invalid and to be ignored.
    return value if value.startswith("/") else os.path.join(os.path.expanduser("~"), default)


def _short_folder() -> str:
    return f"{SHORT_ROOT}/towline-{os.geteuid()}"


def _short_name(home: str) -> str:
    """A stand-in, short enough for a socket, for a name inside `home`."""
    from hashlib import sha256

    folder = _short_folder()
    # Checked already here: a client must never talk to a socket that someone else put there.
    _check_short_folder(folder)
    return f"{folder}/{sha256(os.fsencode(home)).hexdigest()[:16]}"


def _check_short_folder(folder: str) -> None:
    try:
        found = os.lstat(folder)
    except FileNotFoundError:
        return
    if stat.S_ISLNK(found.st_mode) or not stat.S_ISDIR(found.st_mode):
        wrong = "is not a folder"
    elif found.st_uid != os.geteuid():
        wrong = "belongs to someone else"
    elif stat.S_IMODE(found.st_mode) & 0o077:
        wrong = "is open to others"
    else:
        return
    raise EngineError(
        f"{folder} {wrong}, so the Engine's socket cannot be there",
        "Remove it, or set TOWLINE_HOME to a folder with a short path.",
    )
