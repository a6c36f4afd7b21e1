"""The files of `pit`: where the server is, who one is there, what a project says of its jobs."""

from __future__ import annotations

import os

from towline.cli.pit.failures import Failed, PitUsage

CONNECT = ".pitconnect.txt"
USER = ".pituser.txt"
REQUEST = ".pitrequest.txt"
SCRIPT = ".compute"
#: Whatever it is, it is no such file.
_MOST_BYTES = 1_000_000


class ServerAddress:
    """Where the server is, and the certificate to trust there (none: those of this machine)."""

    def __init__(self, url: str, certificate: str) -> None:
        self.url = url
        self.certificate = certificate


class UserInfo:
    """Who one is on this machine, and the file that says so."""

    def __init__(self, name: str, token: str, file: str) -> None:
        self.name = name
        self.token = token
        self.file = file

    def __repr__(self) -> str:
        return f"UserInfo({self.name!r})"


def connection() -> ServerAddress:
    """What `.pitconnect.txt` says, here or at home; nowhere else is looked."""
    text = _text(_here_or_at_home(CONNECT))
    if text is None:
        raise PitUsage(
            "Unable to find connectivity info about your pit.\n"
            f'Ask its administrators for the file "{CONNECT}"; `tow server init` wrote one.\n'
            "Place it in your home directory, or in the root of your project."
        )
    url, _, certificate = text.strip().partition("\n")
    url = url.strip().rstrip("/")
    if not url.startswith(("https://", "http://")):
        where = _here_or_at_home(CONNECT)
        raise Failed(f"{where} does not begin with an address like https://pit.lab:7443")
    return ServerAddress(url, certificate.strip() + "\n" if certificate.strip() else "")


def user_info() -> UserInfo | None:
    file = _here_or_at_home(USER)
    text = _text(file)
    lines = (text or "").split("\n")
    if len(lines) < 2 or not lines[0].strip():
        return None
    return UserInfo(lines[0].strip(), lines[1].strip(), file)


def keep_user_info(name: str, token: str, file: str = "") -> UserInfo:
    """Write who one is, for nobody else to read; a new login is kept in this very folder."""
    file = file or os.path.abspath(USER)
    beside = f"{file}.{os.getpid()}"
    try:
        writing = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(writing, "w", encoding="utf-8") as opened:
            opened.write(f"{name}\n{token}")
        os.replace(beside, file)
    except OSError as error:
        raise Failed(f"cannot write {file}: {error.strerror}") from None
    return UserInfo(name, token, file)


def default_request() -> str | None:
    """What `.pitrequest.txt` asks for; None where there is no such file."""
    text = _text(REQUEST)
    return None if text is None else text.strip()


def has_script() -> bool:
    return os.path.isfile(SCRIPT)


def _here_or_at_home(name: str) -> str:
    if os.path.isfile(name):
        return os.path.abspath(name)
    return os.path.join(os.path.expanduser("~"), name)


def _text(file: str) -> str | None:
    """None, where there is no such file."""
    try:
        with open(file, encoding="utf-8", errors="replace") as opened:
            return opened.read(_MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Failed(f"cannot read {file}: {error.strerror}") from None
