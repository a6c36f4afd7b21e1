"""Who is at the other end of the Engine's socket: the kernel says which user that is."""

import asyncio
import getpass
import os
import socket
import struct
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from towline.errors import Forbidden
from towline.model.principal import Principal

#: In the state of each request: the user who sent it, as a number.
UID = "uid"
#: Process, user and group, as Linux tells them.
_CREDENTIALS = struct.Struct("3i")


class PeerProtocol(HttpToolsProtocol):
    """HTTP on a unix socket; each request knows whose it is."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, UID: peer_uid(transport.get_extra_info("socket"))}


def peer_uid(connection: Any) -> int:
    """The user at the other end; where no system says it, ours: only we can open the socket."""
    if not hasattr(socket, "SO_PEERCRED"):
        return os.getuid()
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        told = same.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    uid: int = _CREDENTIALS.unpack(told)[1]
    return uid


class EngineOwner:
    """The one user whose Engine this is: nobody else is served, and this one may do everything."""

    def __init__(self) -> None:
        self.uid = os.getuid()
        self.principal = Principal(user_name(), administrator=True)

    def principal_of(self, uid: int) -> Principal:
        if uid != self.uid:
            raise Forbidden(
                f"this is the Engine of {self.principal.name} (uid {self.uid}), and you are "
                f"uid {uid}",
                hint="use your own: unset TOWLINE_HOME",
            )
        return self.principal


def user_name() -> str:
    """Who we are; in a container a uid need not have a name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
