"""A team's server, used from a terminal: signing in, submitting there, taking results home."""

from __future__ import annotations

import os
import sys

from towline.cli.terminal import interactive, note, tell
from towline.client.remote import RemoteSession
from towline.client.servers import KnownServer, known_server, remember
from towline.config.paths import home_paths
from towline.errors import SignInWanted, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class TeamSession(RemoteSession):
    """A session with a server that is known here by a name."""

    def __init__(self, server: KnownServer) -> None:
        super().__init__(
            server.url,
            server.certificate,
            server.token,
            on_sign_in=self._sign_in if interactive() else None,
            prepare=_prepare,
        )
        self.server = server

    def _sign_in(self) -> str:
        """The token has expired: ask for the password, and remember the new one."""
        note(f"you are not signed in to {self.server.name} any more")
        password = _hidden(f"Password of {self.server.account}: ")
        self.server.token = sign_in(self.server, self.server.account, password)
        remember(self.paths, self.server)
        return self.server.token

    def take_home(self, job_id: int) -> bool:
        """Put what a job made there into the folder that it came from, and say where."""
        from towline.workspace.sending import bring_home

        job = self.call("GET", f"/v1/jobs/{job_id}")
        if (job.get("home") or {}).get("kind") != "home":
            return True
        placed = bring_home(self, self.server.name, job, self.paths)
        if placed.files:
            tell(f"results: {_short(placed.folder)}")
        for here, newer in placed.conflicts:
            note(f"kept your {_short(here)}; the job's is {_short(newer)}")
        for path in (*placed.in_the_way, *placed.refused):
            note(f"left on the server: {path}")
        return True


def _short(path: str) -> str:
    shown = os.path.relpath(path)
    return path if shown.startswith("..") else shown


def server_session(name: str) -> TeamSession:
    return TeamSession(known_server(home_paths(), name))


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


def _prepare(session: RemoteSession, body: dict[str, Any]) -> None:
    from towline.workspace.sending import Sender

    Sender(session, session.paths).prepare(body)


def _hidden(question: str) -> str:
    from getpass import getpass

    return getpass(question)
