"""A session with a team's server that is known here by a name: folders go there, results come
home, both in this process."""

from __future__ import annotations

import os

from towline.client.remote import RemoteSession
from towline.client.servers import VARIABLE, is_known, known_server
from towline.client.session import Session
from towline.config.paths import home_paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from towline.client.servers import KnownServer


class TeamSession(RemoteSession):
    """What is submitted is frozen here and sent before; what jobs made is put into place here."""

    takes_home = True

    def __init__(self, server: KnownServer, on_sign_in: Callable[[], str] | None = None) -> None:
        super().__init__(
            server.url, server.certificate, server.token, on_sign_in=on_sign_in, prepare=_prepare
        )
        self.server = server
        self.typed = f"tow @{server.name}"

    def take_home(self, job_id: int, facts: dict[str, Any] | None = None) -> dict[str, Any]:
        from towline.workspace.sending import bring_home

        job = facts or self.call("GET", f"/v1/jobs/{job_id}")
        taken: dict[str, Any] = {"folder": "", "files": 0, "bytes": 0, "conflicts": [], "left": []}
        if (job.get("home") or {}).get("kind") == "home":
            placed = bring_home(self, self.server.name, job, self.paths)
            taken.update({name: getattr(placed, name) for name in ("folder", "files", "bytes")})
            taken["conflicts"] = list(placed.conflicts)
            taken["left"] = [*placed.in_the_way, *placed.refused]
        return taken


def _prepare(session: RemoteSession, body: dict[str, Any]) -> None:
    from towline.workspace.sending import Sender

    Sender(session, session.paths).prepare(body)


def server_session(name: str) -> TeamSession:
    """A session with the team's server that `tow clusters add NAME` signed in to."""
    return TeamSession(known_server(home_paths(), name))


def split_cluster(cluster: str | None) -> tuple[str | None, str | None]:
    """The server that a cluster is, or is behind (`team/slurm`), and the cluster that it has."""
    name, _, behind = (cluster or "").partition("/")
    if is_known(home_paths(), name):
        return name, behind or None
    return os.environ.get(VARIABLE), cluster


def session_for(cluster: str | None) -> tuple[Session, str | None]:
    """The session that has a cluster, and what the cluster is called there."""
    server, behind = split_cluster(cluster)
    return (Session() if server is None else server_session(server)), behind
