"""Asking for a password or a second factor, once, on the terminal."""

from __future__ import annotations

from towline.cli.terminal import note
from towline.model.names import shown_cluster

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from towline.client.session import Login, Session


def log_in(session: Session, logins: list[dict[str, Any]]) -> bool:
    """Let ssh ask on this terminal and have the Engine dial again; False when that cannot be."""
    if session.on_login is None:
        for login in logins:
            name = shown_cluster(str(login.get("machine") or login["target"]))
            note(f"{name} needs you once, on a terminal; type: tow login {name}")
    return session.log_in(logins)


def typed_here(login: Login) -> bool:
    """Let ssh ask on this terminal; True when it is connected."""
    import subprocess

    target = shown_cluster(login.target)
    note(f"logging in to {target}")
    if subprocess.run(login.command).returncode == 0 and _stays(login):
        return True
    note(f"could not log in to {target}")
    return False


def _stays(login: Login) -> bool:
    """Wait until the connection that ssh leaves behind is cut off from this terminal.

    ssh ends a moment before that: were the terminal to go now, the connection would go with it. It
    answers as soon as it is on its own.
    """
    import subprocess

    program, *rest = login.command
    question = [program, "-O", "check", "-o", "ControlMaster=no", *rest]
    return subprocess.run(question, capture_output=True).returncode == 0
