"""A team's server, used from a terminal: signing in, and saying what came home."""

from __future__ import annotations

import os
import sys

from towline.cli.terminal import interactive, note, tell
from towline.client.remote import RemoteSession
from towline.client.servers import KnownServer, known_server, remember
from towline.client.team import TeamSession
from towline.config.paths import home_paths
from towline.errors import SignInWanted, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class TeamTerminal(TeamSession):
    """Asks for the password when the token has expired, and says where results went."""

    def __init__(self, server: KnownServer) -> None:
        super().__init__(server, self._sign_in if interactive() else None)

    def _sign_in(self) -> str:
        """The token has expired: ask for the password, and remember the new one."""
        note(f"you are not signed in to {self.server.name} any more")
        password = _hidden(f"Password of {self.server.account}: ")
        self.server.token = sign_in(self.server, self.server.account, password)
        remember(self.paths, self.server)
        return self.server.token

    def take_home(self, job_id: int, facts: dict[str, Any] | None = None) -> dict[str, Any]:
        taken = super().take_home(job_id, facts)
        if taken["files"] and facts is None:
            tell(f"results: {_short(taken['folder'])}")
        for here, newer in taken["conflicts"]:
            note(f"kept your {_short(here)}; the job's is {_short(newer)}")
        for path in taken["left"]:
            note(f"left on the server: {path}")
        return taken


def _short(path: str) -> str:
    shown = os.path.relpath(path)
    return path if shown.startswith("..") else shown


def terminal_session(name: str) -> TeamTerminal:
    return TeamTerminal(known_server(home_paths(), name))


def sign_in(server: KnownServer, account: str, password: str) -> str:
    """A token for this machine."""
    plain = RemoteSession(server.url, server.certificate)
    body = {"name": account, "password": password, "machine": os.uname().nodename}
    token: str = plain.call("POST", "/v1/tokens", body)["token"]
    return token


def add_server(name: str, url: str, connect_file: str, user: str, from_stdin: bool) -> KnownServer:
    """Sign in to a server and remember it under a name."""
    certificate = ""
    if connect_file:
        from towline.client.remote import read_connect_file

        try:
            with open(connect_file, encoding="utf-8") as file:
                told, certificate = read_connect_file(file.read())
        except OSError as error:
            raise UsageError(f"cannot read {connect_file}: {error.strerror}") from None
        url = url or told
    server = KnownServer(name, url.rstrip("/"), certificate, user, "")
    RemoteSession(server.url, certificate).call("GET", "/v1/hello")
    if not from_stdin and not interactive():
        raise SignInWanted("there is no terminal to sign in on", "--user NAME --password-stdin")
    if not server.account:
        server.account = input("User name: ").strip()
    if from_stdin:
        password = sys.stdin.readline().rstrip("\n")
    else:
        password = _hidden(f"Password of {server.account}: ")
    server.token = sign_in(server, server.account, password)
    remember(home_paths(), server)
    return server


def _hidden(question: str) -> str:
    from getpass import getpass

    return getpass(question)
