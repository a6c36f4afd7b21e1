"""Requests to a running Engine, as a program of any kind would send them."""

import json
import socket
from pathlib import Path
from typing import Any

from towline.client.transport import request


def ask(
    home: Path,
    method: str,
    target: str,
    body: Any = None,
    headers: dict[str, str] | None = None,
    raw: bytes | None = None,
) -> tuple[int, Any]:
    """The status and the body of one answer; `raw` is sent as it is."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(60)
    connection.connect(str(home / "engine.sock"))
    sent = raw if raw is not None else None if body is None else json.dumps(body).encode()
    with request(connection, method, target, sent, headers) as reply:
        answer = reply.read_all()
    try:
        return reply.status, json.loads(answer)
    except ValueError:
        return reply.status, answer
