"""Errors in one shape: what was wrong, what to do next, and what `tow` would exit with."""

import logging
from typing import Any

from starlette.exceptions import HTTPException

from towline.engine.following.follow import error_frame
from towline.errors import TowlineError, UsageError

log = logging.getLogger("towline")


def described(error: Exception) -> tuple[int, dict[str, Any]]:
    """The status and the body that tell of an error."""
    if isinstance(error, TowlineError):
        return error.status, error_frame(error)[0]
    if isinstance(error, HTTPException):
        return error.status_code, _body("usage", str(error.detail), "", 2)
    if text := _odd(error):
        return described(UsageError(text))
    # A bug: the log has the traceback, the user a sentence.
    log.error("unexpected", exc_info=error)
    text = f"the Engine failed unexpectedly: {type(error).__name__}: {error}"
    return 500, _body("bug", text, "`tow engine log` shows more", 1)


def _odd(error: Exception) -> str:
    """Numbers, texts and nesting that nothing here can hold are the sender's to mend."""
    if isinstance(error, OverflowError):
        return "a number in the request is too large"
    if isinstance(error, RecursionError):
        return "the request is nested too deeply"
    if isinstance(error, UnicodeError):
        return "a text in the request is not Unicode"
    if isinstance(error, ValueError) and any(
        nul in str(error) for nul in ("null byte", "null character")
    ):
        return "a path in the request has a NUL in it"
    return ""


def _body(code: str, text: str, hint: str, exit_code: int) -> dict[str, Any]:
    return {"error": {"code": code, "text": text, "hint": hint}, "exit": exit_code}
