"""`pit passwd` and `pit tokens`."""

from __future__ import annotations

from towline.cli.pit.failures import Failed
from towline.cli.pit.session import PitSession
from towline.cli.pit.typed.names import checked
from towline.cli.terminal import printable, say, say_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from towline.cli.pit.typed.grammar import Typed


def passwd(typed: Typed) -> None:
    """Everybody else is logged out with the old password; this machine stays logged in."""
    from towline.cli.pit.typed.dialogue import new_password, own_password

    session = PitSession()
    name = checked("user", typed.word(0) or session.name)
    body = {"verification": own_password(), "password": new_password()}
    session.call("PATCH", f"/v1/accounts/{name}", body)


def tokens(typed: Typed) -> None:
    session = PitSession()
    found = session.call("GET", "/v1/tokens")["tokens"]
    machine = typed.word(0)
    if machine is not None:
        return _log_out(session, found, machine)
    if "json" in typed.options:
        return say_json(found)
    rows = [_row("MACHINE", "ID", "LAST USED", "EXPIRES", "")]
    rows += [
        _row(one["machine"] or "?", one["id"], _when(one["used"]), _when(one["expires"]), here)
        for one in found
        for here in ["(this one)" if one["this"] else ""]
    ]
    return say("\n".join(rows))


def _log_out(session: PitSession, found: list[dict[str, Any]], machine: str) -> None:
    meant = [one["id"] for one in found if machine in (one["machine"], one["id"])]
    if not meant:
        raise Failed(f'You are not logged in on "{machine}"', "pit tokens lists the machines")
    for number in meant:
        session.call("DELETE", f"/v1/tokens/{number}")


def _row(machine: str, number: str, used: str, expires: str, here: str) -> str:
    line = f"{printable(machine):<24} {number:<10} {used:<17} {expires:<17} {here}"
    return line.rstrip()


def _when(at: float | None) -> str:
    import time

    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at)) if at else "never"
