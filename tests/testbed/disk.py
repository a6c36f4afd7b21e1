"""The private files of a host, laid over those of this machine."""

import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

USER = "worker"
UID = 7700
#: Somebody else on the same hosts, for tests of sharing: `ssh neighbour@h1`.
NEIGHBOUR = "neighbour"
NEIGHBOUR_UID = 7701
ACCOUNTS = {USER: UID, NEIGHBOUR: NEIGHBOUR_UID}
#: Works only on a host whose sshd was told to accept passwords.
PASSWORD = "let-me-in"
_PASSWORD_HASH = (
    "$6$towline$gagZcbvwHm/lwlttAM30YcIBgQJQNbGaBLs63tj"
    "r0By4FwvFN4iG2jHVYE2hwjWQEUF9mn/SrJVcOaXLKpmzS."
)

SSHD_CONFIG = "etc/ssh/testbed_sshd_config"
HOST_KEY = "etc/ssh/testbed_host_key"
SSHD_OPTIONS = {
    "ListenAddress": "0.0.0.0",
    "HostKey": f"/{HOST_KEY}",
    "PidFile": "/run/sshd.pid",
    "UsePAM": "no",
    "PubkeyAuthentication": "yes",
    "PasswordAuthentication": "no",
    "KbdInteractiveAuthentication": "no",
    "PermitRootLogin": "prohibit-password",
    "AuthorizedKeysFile": ".ssh/authorized_keys",
    "UseDNS": "no",
    "MaxStartups": "200:30:400",
    "MaxSessions": "100",
    "AcceptEnv": "LANG LC_*",
    "PrintMotd": "no",
    "Subsystem": "sftp internal-sftp",
}

GPU_FOLDER = "usr/local/share/testbed-gpus"
GPU_TOOL = "usr/local/bin/nvidia-smi"
_GPU_DEFAULTS: dict[str, Any] = {
    "index": 0,
    "uuid": "",
    "name": "NVIDIA GeForce GTX 1070",
    "memory_total": 8192,
    "memory_used": 0,
    "utilization": 0,
}
_APP_DEFAULTS: dict[str, Any] = {"gpu_uuid": "", "pid": 0, "used_memory": 0}
_GPU_QUERY = "index,uuid,name,memory.total,memory.used,utilization.gpu"
_GPU_TOOL_TEXT = f"""\
#!/bin/sh
# Answers the questions Towline asks, from files; anything else fails as the real tool does.
case "$*" in
'--query-gpu={_GPU_QUERY} --format=csv,noheader,nounits')
  exec cat /{GPU_FOLDER}/gpus ;;
'--query-compute-apps=gpu_uuid,pid,used_memory --format=csv,noheader,nounits')
  exec cat /{GPU_FOLDER}/apps ;;
'' | -L)
  exec cat /{GPU_FOLDER}/list ;;
*)
  echo "Invalid combination of input arguments: $*" >&2
  exit 2 ;;
esac
"""


def seed(upper: Path, name: str, hosts_file: str, host_key: bytes, client_key: bytes) -> None:
    """Write what makes a host itself into the upper layer of its disk, before its first boot."""
    repository = Path(__file__).resolve().parents[2]
    for hidden in ("/root", "/home", str(repository)):
        _hide_folder(upper, hidden)
    for tool in ("/usr/bin/nvidia-smi", f"/{GPU_TOOL}"):
        _hide_file(upper, tool)
    authorize(upper / "root", 0, client_key)
    for user, uid in ACCOUNTS.items():
        authorize(upper / "home" / user, uid, client_key)
    _like_here(upper, "/etc/ssh")
    _accounts(upper / "etc")
    put(upper / "etc/hosts", hosts_file)
    put(upper / "etc/hostname", f"{name}\n")
    put(upper / "etc/resolv.conf", "")
    put(upper / HOST_KEY, host_key, mode=0o600)
    put(upper / SSHD_CONFIG, sshd_config({}))


def put(path: Path, content: str | bytes, mode: int = 0o644) -> None:
    """Write a file whole or not at all: a program on the host may be reading it."""
    new = path.with_name(f".{path.name}.new")
    new.write_bytes(content.encode() if isinstance(content, str) else content)
    new.chmod(mode)
    new.rename(path)


def empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def sshd_config(options: Mapping[str, object]) -> str:
    return "".join(f"{key} {value}\n" for key, value in {**SSHD_OPTIONS, **options}.items())


def authorize(home: Path, uid: int, client_key: bytes) -> None:
    """Make a home that the client's key may enter."""
    folder = home / ".ssh"
    folder.mkdir(parents=True, exist_ok=True)
    put(folder / "authorized_keys", client_key, mode=0o600)
    for path in (home, folder):
        path.chmod(0o700)
    for path in (home, folder, folder / "authorized_keys"):
        os.chown(path, uid, uid)


def set_gpus(
    root: Path, gpus: Sequence[Mapping[str, object]], apps: Sequence[Mapping[str, object]]
) -> None:
    """Give a host these GPUs; none takes its GPU tool away."""
    tool = root / GPU_TOOL
    if not gpus:
        tool.unlink(missing_ok=True)
        return
    rows = [
        _row(_GPU_DEFAULTS | {"index": i, "uuid": f"GPU-{i}"}, gpu) for i, gpu in enumerate(gpus)
    ]
    folder = root / GPU_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    put(folder / "gpus", "".join(", ".join(row) + "\n" for row in rows))
    put(folder / "apps", "".join(", ".join(_row(_APP_DEFAULTS, app)) + "\n" for app in apps))
    put(folder / "list", "".join(f"GPU {row[0]}: {row[2]} (UUID: {row[1]})\n" for row in rows))
    tool.parent.mkdir(parents=True, exist_ok=True)
    put(tool, _GPU_TOOL_TEXT, mode=0o755)


def _row(defaults: Mapping[str, object], given: Mapping[str, object]) -> list[str]:
    if unknown := given.keys() - defaults.keys():
        raise ValueError(f"unknown {sorted(unknown)}; valid are {list(defaults)}")
    return [str(value) for value in {**defaults, **given}.values()]


def _accounts(etc: Path) -> None:
    users = [f"{user}:x:{uid}:{uid}::/home/{user}:/bin/bash\n" for user, uid in ACCOUNTS.items()]
    groups = [f"{user}:x:{uid}:\n" for user, uid in ACCOUNTS.items()]
    put(etc / "passwd", _others("/etc/passwd") + "".join(users))
    put(etc / "group", _others("/etc/group") + "".join(groups))
    # Of this machine's passwords the host learns none; `*` is no password, but lets keys in.
    keys_only = "".join(f"{user}:*:19000::::::\n" for user in ("root", NEIGHBOUR))
    put(etc / "shadow", f"{USER}:{_PASSWORD_HASH}:19000::::::\n{keys_only}", mode=0o640)


def _others(file: str) -> str:
    lines = Path(file).read_text().splitlines(keepends=True)
    return "".join(line for line in lines if line.split(":")[0] not in ACCOUNTS)


def _like_here(upper: Path, folder: str) -> Path:
    """Make a folder of the upper layer, with owners and modes as on this machine."""
    made = upper
    for at in (*reversed(Path(folder).parents), Path(folder)):
        made = upper / str(at)[1:]
        made.mkdir(exist_ok=True)
        if at.is_dir():
            here = at.stat()
            made.chmod(stat.S_IMODE(here.st_mode))
            os.chown(made, here.st_uid, here.st_gid)
    return made


def _hide_folder(upper: Path, folder: str) -> None:
    os.setxattr(_like_here(upper, folder), "trusted.overlay.opaque", b"y")


def _hide_file(upper: Path, file: str) -> None:
    if os.path.lexists(file):
        folder = _like_here(upper, os.path.dirname(file))
        os.mknod(folder / os.path.basename(file), stat.S_IFCHR, os.makedev(0, 0))
