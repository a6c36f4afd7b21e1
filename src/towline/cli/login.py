"""Asking for a password or a second factor, once, on the terminal."""

from __future__ import annotations

from towline.cli.terminal import interactive, note
from towline.model.names import shown_cluster

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from towline.cli.engine import Session


def log_in(session: Session, logins: list[dict[str, Any]]) -> bool:
    """Let ssh ask on this terminal and have the Engine dial again; False when that cannot be."""
    if not interactive():
        for name in (shown_cluster(_name(login)) for login in logins):
            note(f"{name} needs you once, on a terminal; type: tow login {name}")
        return False
    import subprocess

    opened = []
    for login in logins:
        target = shown_cluster(str(login["target"]))
        note(f"logging in to {target}")
        # ssh asks on the terminal and then stays behind as the connection's master.
        if subprocess.run([str(word) for word in login["command"]]).returncode == 0:
            opened.append(_name(login))
        else:
            note(f"could not log in to {target}")
    if opened:
        session.call("POST", "/v1/machines/redial", {"machines": opened}, repeat=True)
    return len(opened) == len(logins)


def _name(login: dict[str, Any]) -> str:
    return str(login.get("machine") or login["target"])
