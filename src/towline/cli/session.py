"""A session of the person at this terminal."""

from __future__ import annotations

import os

from towline.cli.terminal import interactive
from towline.client.session import Session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from towline.cli.options import Parser
    from towline.client.data import DataFolder
    from towline.client.session import Login, Trust


def open_session(cluster: str | None = None) -> Session:
    """Where somebody sits there, passwords and trust are asked for; elsewhere, errors say so.

    A cluster that is a team's server is talked to directly: its Engine decides, not ours.
    """
    if (server := os.environ.get("TOWLINE_SERVER") or server_of(cluster)) is not None:
        from towline.cli.team import terminal_session

        return terminal_session(server)
    return Session(on_login=_log_in, on_trust=_trust) if interactive() else Session()


def open_for(options: Namespace) -> Session:
    """The session that `-c` asks for; what is left of that is a cluster of its Engine."""
    session = open_session(options.cluster)
    if server_of(options.cluster) is not None:
        options.cluster = options.cluster.partition("/")[2] or None
    return session


def server_of(cluster: str | None) -> str | None:
    """The server that a cluster is, or is behind (`team/slurm`)."""
    if not cluster:
        return None
    from towline.client.servers import is_known
    from towline.config.paths import home_paths

    name = cluster.partition("/")[0]
    return name if is_known(home_paths(), name) else None


def domain_in(session: Session, typed: str) -> DataFolder | None:
    """The domain of a team's data that is meant; None where it is a job."""
    if typed not in ("home", "shared") and not typed.startswith(("group:", "user:")):
        return None
    from towline.client.remote import RemoteSession

    if not isinstance(session, RemoteSession):
        return None
    from towline.client.data import DataFolder

    return DataFolder(session, typed)


def read_with_job(parser: Parser, args: list[str]) -> tuple[Namespace, Session, int]:
    """The options as given, a session, and the number of the job that is meant."""
    from towline.client.names import job_number

    options = parser.read(args)
    session = open_session()
    return options, session, job_number(session, options.job)


def _log_in(login: Login) -> bool:
    from towline.cli.login import typed_here

    return typed_here(login)


def _trust(wanted: Trust) -> bool:
    from towline.cli.trusting import asked_to_trust

    return asked_to_trust(wanted)
