"""A session of the person at this terminal."""

from __future__ import annotations

from towline.cli.engine import Session
from towline.cli.terminal import interactive

TYPE_CHECKING = False
if TYPE_CHECKING:
    from towline.cli.engine import Login, Trust


def open_session() -> Session:
    """Where somebody sits there, passwords and trust are asked for; elsewhere, errors say so."""
    return Session(on_login=_log_in, on_trust=_trust) if interactive() else Session()


def _log_in(login: Login) -> bool:
    from towline.cli.login import typed_here

    return typed_here(login)


def _trust(wanted: Trust) -> bool:
    from towline.cli.trusting import asked_to_trust

    return asked_to_trust(wanted)
