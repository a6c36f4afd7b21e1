"""What older versions wrote as sentences, read once more: by the migration that makes data of it.

Nothing else reads a sentence.
"""

import json
import re
import sqlite3
from collections.abc import Callable
from typing import Any

#: How an older version told results that had not come.
_WANTED, _NOT_FETCHED = "wanted", "not fetched: "
#: Why jobs ended or waited, as far as it was always said alike; the rest stays as it was said.
_REASONS = {
    "stopped": "stopped",
    "stopped before it started": "stopped_waiting",
    "stop was asked for": "stop_asked",
    "stopped at its time limit": "timeout",
}
_PATTERNS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], dict[str, Any]]], ...] = (
    (re.compile(r"exit code (-?\d+)"), lambda m: {"kind": "exit_code", "code": int(m[1])}),
    (
        re.compile(r"killed by signal (\d+) \(\w+\)"),
        lambda m: {"kind": "signal", "signal": int(m[1])},
    ),
    (
        re.compile(r"stopped because line (\d+) (\w+)"),
        lambda m: {"kind": "line_ended", "line": int(m[1]), "state": m[2]},
    ),
)


def register(db: sqlite3.Connection) -> None:
    """Let migrations use these as functions of SQL."""
    db.create_function("results_part", 2, lambda text, name: _results(text).get(name, ""))
    db.create_function("reason_as_data", 1, lambda text: json.dumps(_reason(text)))
    db.create_function("event_as_data", 1, _event)


def _results(text: str) -> dict[str, str]:
    if not text:
        return {"kind": "none"}
    if text == _WANTED:
        return {"kind": "pending"}
    if text[0] in "/\0":
        return {"kind": "home", "path": text}
    return {"kind": "failed", "why": text.removeprefix(_NOT_FETCHED)}


def _reason(text: str) -> dict[str, Any]:
    if kind := _REASONS.get(text):
        return {"kind": kind}
    for pattern, make in _PATTERNS:
        if found := pattern.fullmatch(text):
            return make(found)
    return {"kind": "told", "text": text} if text else {"kind": ""}


def _event(data: bytes) -> bytes:
    fields: dict[str, Any] = json.loads(data)
    if isinstance(fields.get("results"), str):
        fields["results"] = _results(fields["results"])
    if isinstance(fields.get("reason"), str):
        fields["reason"] = _reason(fields["reason"])
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
