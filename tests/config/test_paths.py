"""Where Towline's files are, and that nobody else can put theirs there."""

import os
import stat
from pathlib import Path

import pytest

from towline.config import paths as paths_module
from towline.config.paths import LONGEST_SOCKET, file_system_of, home_paths, make_folders
from towline.errors import EngineError


@pytest.fixture(autouse=True)
def short_root(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands for /tmp, so that the user's own short folder is left alone."""
    root = tmp_path_factory.mktemp("t")
    monkeypatch.setattr(paths_module, "SHORT_ROOT", str(root))
    for name in ("TOWLINE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/someone")
    return root


def mode(path: str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def test_towline_home_holds_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOWLINE_HOME", "/x/y")
    paths = home_paths()
    assert {name: getattr(paths, name) for name in paths.__slots__} == {
        "home": "/x/y",
        "state": "/x/y",
        "config_file": "/x/y/config.toml",
        "socket": "/x/y/engine.sock",
        "pid_file": "/x/y/engine.pid",
        "lock_file": "/x/y/engine.lock",
        "log_file": "/x/y/engine.log",
        "store_file": "/x/y/store.db",
        "trusted": "/x/y/trusted",
        "ssh_dir": "/x/y/cm",
    }


def test_relative_towline_home_is_made_absolute(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOWLINE_HOME", "here")
    assert home_paths().home == str(tmp_path / "here")


def test_without_variables_the_usual_folders_are_used() -> None:
    paths = home_paths()
    assert paths.config_file == "/home/someone/.config/towline/config.toml"
    assert paths.state == "/home/someone/.local/state/towline"
    assert paths.socket == "/home/someone/.local/state/towline/engine.sock"


def test_xdg_variables_are_followed_and_relative_ones_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/c")
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    paths = home_paths()
    assert paths.config_file == "/c/towline/config.toml"
    assert paths.state == "/home/someone/.local/state/towline"


def test_socket_does_not_move_with_the_login_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """A runtime folder goes at the last logout; the Engine and its jobs do not."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1000")
    assert home_paths().socket == "/home/someone/.local/state/towline/engine.sock"


def test_long_home_gets_a_short_socket_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, short_root: Path
) -> None:
    sockets = set()
    for name in ("a" * 120, "b" * 120):
        monkeypatch.setenv("TOWLINE_HOME", str(tmp_path / name))
        paths = home_paths()
        assert os.path.dirname(paths.socket) == f"{short_root}/towline-{os.geteuid()}"
        assert home_paths().socket == paths.socket
        make_folders(paths)
        assert mode(os.path.dirname(paths.socket)) == 0o700
        assert mode(paths.ssh_dir) == 0o700
        sockets.add(paths.socket)
    assert len(sockets) == 2


def test_socket_that_just_fits_stays_at_home(
    monkeypatch: pytest.MonkeyPatch, short_root: Path
) -> None:
    for length in (LONGEST_SOCKET, LONGEST_SOCKET + 1):
        home = "/" + "h" * (length - len("/engine.sock") - 1)
        monkeypatch.setenv("TOWLINE_HOME", home)
        assert (home_paths().socket == f"{home}/engine.sock") == (length == LONGEST_SOCKET)
        # ssh adds to the names of its own sockets, so these leave earlier.
        assert home_paths().ssh_dir.startswith(str(short_root))


@pytest.mark.parametrize("trap", ["link", "file", "open"])
def test_short_folder_prepared_by_someone_else_is_refused(
    trap: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, short_root: Path
) -> None:
    folder = short_root / f"towline-{os.geteuid()}"
    if trap == "link":
        folder.symlink_to(tmp_path)
    elif trap == "file":
        folder.touch()
    else:
        folder.mkdir()
        folder.chmod(0o755)
    monkeypatch.setenv("TOWLINE_HOME", "/" + "long" * 40)
    with pytest.raises(EngineError, match="so the Engine's socket cannot be there"):
        home_paths()


def test_short_folder_of_another_user_is_refused(
    monkeypatch: pytest.MonkeyPatch, short_root: Path
) -> None:
    folder = short_root / "towline-12345"
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    monkeypatch.setenv("TOWLINE_HOME", "/" + "long" * 40)
    if os.getuid() != 12345:
        with pytest.raises(EngineError, match="belongs to someone else"):
            home_paths()


def test_folders_are_made_for_this_user_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TOWLINE_HOME", str(tmp_path / "a" / "b"))
    paths = home_paths()
    make_folders(paths)
    make_folders(paths)
    assert mode(paths.home) == 0o700
    assert mode(paths.ssh_dir) == 0o700


def test_home_open_to_everyone_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    monkeypatch.setenv("TOWLINE_HOME", str(tmp_path))
    with pytest.raises(EngineError, match="must be yours and closed to others"):
        make_folders(home_paths())


def test_file_in_the_way_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "home").touch()
    monkeypatch.setenv("TOWLINE_HOME", str(tmp_path / "home"))
    with pytest.raises(EngineError, match="cannot create the folder"):
        make_folders(home_paths())


MOUNTS = """\
/dev/sda1 / ext4 rw,relatime 0 0
server:/home /home nfs4 rw,relatime 0 0
sshfs /home/some\\040one/far fuse.sshfs rw 0 0
/dev/sdb1 /home/local ext4 rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/x", "ext4"),
        ("/home/someone/.local/state/towline", "nfs4"),
        ("/home/some one/far/x", "fuse"),
        ("/home/local/x", "ext4"),
        ("/homes/x", "ext4"),
        ("/", "ext4"),
    ],
)
def test_kind_of_file_system_is_that_of_the_nearest_mount(path: str, kind: str) -> None:
    assert file_system_of(path, MOUNTS) == kind
    assert file_system_of(path, "") == ""


def test_on_a_network_file_system_each_machine_has_a_state_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    shared, own = tmp_path / "towline", tmp_path / "towline" / "hosts" / os.uname().nodename
    monkeypatch.setattr(paths_module, "_mounts", lambda: f"server:/x {tmp_path} nfs rw 0 0\n")
    assert home_paths().home == str(own)
    # What an earlier version put there stays in use.
    shared.mkdir()
    (shared / "store.db").touch()
    assert home_paths().home == str(shared)
    (shared / "store.db").unlink()
    own.mkdir(parents=True)
    monkeypatch.setattr(paths_module, "_mounts", lambda: "")
    assert home_paths().home == str(own)
