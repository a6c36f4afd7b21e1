"""The team's servers that somebody uses from this machine: an address, a certificate, a token."""

from __future__ import annotations

import json
import os

from towline.errors import ConfigError, NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from towline.config.paths import Paths

#: The server that every command is for, by its name; as `tow @NAME COMMAND` sets it.
VARIABLE = "TOWLINE_SERVER"


class KnownServer:
    """What is remembered of one; the token is a secret."""

    def __init__(self, name: str, url: str, certificate: str, account: str, token: str) -> None:
        self.name = name
        self.url = url
        self.certificate = certificate
        self.account = account
        self.token = token

    def __repr__(self) -> str:
        return f"KnownServer({self.name!r}, {self.url!r})"


def is_known(paths: Paths, name: str) -> bool:
    """Whether a name is that of a server; one look at the disk."""
    return bool(name) and os.path.exists(_file(paths, name))


def known_server(paths: Paths, name: str) -> KnownServer:
    try:
        with open(_file(paths, name), encoding="utf-8") as file:
            told: dict[str, Any] = json.load(file)
        fields = ("url", "certificate", "account", "token")
        return KnownServer(name, *(str(told[field]) for field in fields))
    except FileNotFoundError:
        raise NotFound(
            f"there is no server {name!r}", f"tow clusters add {name} --server https://HOST:PORT"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{_file(paths, name)} cannot be read: {error}") from None


def known_servers(paths: Paths) -> list[KnownServer]:
    """All of them."""
    try:
        names = sorted(os.listdir(os.path.join(paths.home, "servers")))
    except FileNotFoundError:
        return []
    return [known_server(paths, one[:-5]) for one in names if one.endswith(".json")]


def remember(paths: Paths, server: KnownServer) -> None:
    """Write it where nobody else can read it."""
    from towline.config.paths import make_folders

    make_folders(paths)
    file = _file(paths, server.name)
    os.makedirs(os.path.dirname(file), 0o700, exist_ok=True)
    fresh = f"{file}.{os.getpid()}"
    told = {name: value for name, value in vars(server).items() if name != "name"}
    with open(fresh, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as opened:
        json.dump(told, opened)
    os.rename(fresh, file)


def forget(paths: Paths, name: str) -> None:
    os.unlink(_file(paths, name))


def _file(paths: Paths, name: str) -> str:
    safe = "".join(c for c in name if c.isalnum() or c in "._-").lstrip(".")
    return os.path.join(paths.home, "servers", f"{safe}.json")
