"""A session of the person at this terminal."""

from __future__ import annotations

from towline.cli.terminal import interactive
from towline.client.session import Session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from towline.cli.options import Parser
    from towline.client.session import Login, Trust


def open_session() -> Session:
    """Where somebody sits there, passwords and trust are asked for; elsewhere, errors say so."""
    return Session(on_login=_log_in, on_trust=_trust) if interactive() else Session()


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
