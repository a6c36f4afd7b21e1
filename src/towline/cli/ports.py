"""Ports of jobs on a team's server, reached from this machine while a command runs."""

from __future__ import annotations

import signal

from towline.client.transport import with_query
from towline.errors import TowlineError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from types import FrameType
    from typing import Any

    from towline.client.remote import RemoteSession


def listen(here: int) -> socket.socket:
    """A port of this machine that only this machine reaches; 0: any that is free."""
    import socket

    try:
        return socket.create_server(("127.0.0.1", here))
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or "there is no such port"
        raise UsageError(f"cannot listen on port {here}: {why}") from None


def lead(listener: socket.socket, session: RemoteSession, job: int, **there: Any) -> None:
    """Let whoever connects here talk to a port or a service beside a job, from now on."""
    import threading

    where = with_query(f"/v1/jobs/{job}/connect", **there)

    def serve() -> None:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=_join, args=(session, connection, where), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()


def until_left() -> None:
    """Stay until Ctrl-C, or until somebody ends us."""
    import threading

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        return


def _leave(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _join(session: RemoteSession, local: socket.socket, where: str) -> None:
    """Carry one connection, both ways, in one request."""
    from towline.cli.pit.joint import carry

    try:
        remote = session.connect()
    except TowlineError:
        return local.close()
    try:
        remote.settimeout(None)
        lines = [f"POST {where} HTTP/1.1", f"Host: {session.host}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in session.headers().items()]
        head = "\r\n".join([*lines, "Transfer-Encoding: chunked", "", ""])
        remote.sendall(head.encode("latin-1"))
        carry(local, remote)
    except OSError:
        pass  # either side may leave at any time
    finally:
        local.close()
        remote.close()
    return None
