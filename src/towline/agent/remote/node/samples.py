"""What jobs used on their nodes, as their runners wrote it down, for whoever asks."""

import json

from ..home import checked_key
from ..refusal import Refusal
from .sampling import FILE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..home import Home
    from ..typed import Message

#: So many lines of a job are told at most, the last ones.
MOST = 2000


class Samples:
    def __init__(self, home: "Home") -> None:
        self.home = home

    def samples(self, request: "Message", _blob: bytes) -> "Message":
        """The lines of each job whose minutes began after the time that is named with it."""
        since = request.get("since")
        if not isinstance(since, dict):
            raise Refusal("bad_request", "`since` does not say of which jobs, and since when")
        return {"samples": {key: self.of(checked_key(key), at) for key, at in since.items()}}

    def of(self, key: str, since: float) -> "list[Any]":
        try:
            with open(self.home.record(key) + FILE, "rb") as file:
                lines = [whole(line) for line in file]
        except OSError:
            return []
        return [line for line in lines if line and line[0] > since][-MOST:]


def whole(line: bytes) -> "list[Any]":
    """What one line says; nothing where it is being written at this moment."""
    try:
        found = json.loads(line.decode("ascii"))
    except ValueError:
        return []
    is_line = isinstance(found, list) and len(found) == 8 and isinstance(found[0], float)
    return found if is_line else []
