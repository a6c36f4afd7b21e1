"""Who did what on a team's server: a line of JSON for whatever changed something or was refused."""

import logging
import logging.handlers
import os
from typing import Any

from towline.agent.frames import encode_json

_MOST_BYTES = 16 << 20
_FILES = 10


class Audit:
    """A log that is put aside when it is long; never a secret, never a body."""

    def __init__(self, file: str) -> None:
        self._handler = rotated(file, _FILES)

    def note(self, **about: Any) -> None:
        line = encode_json({name: value for name, value in about.items() if value != ""})
        text = line.decode("utf-8", "replace")
        self._handler.emit(logging.LogRecord("audit", logging.INFO, "", 0, text, None, None))

    def close(self) -> None:
        self._handler.close()


def rotated(file: str, files: int) -> logging.handlers.RotatingFileHandler:
    """A log for nobody else to read."""
    os.close(os.open(file, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    handler = _Private(file, maxBytes=_MOST_BYTES, backupCount=files, encoding="utf-8")
    return handler


class _Private(logging.handlers.RotatingFileHandler):
    def _open(self) -> Any:
        opened = super()._open()
        os.fchmod(opened.fileno(), 0o600)
        return opened
