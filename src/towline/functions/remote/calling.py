"""One call: what was asked for is loaded, called, and its value or its failure made to travel."""

import pickle
import sys
import traceback
from typing import Any

import cloudpickle

from .wire import RAISED, VALUE


def called(payload: bytes) -> tuple[bytes, bytes]:
    """Load a call and do it; which of the two it was, and what travels of it."""
    try:
        function, rows, *named = pickle.loads(payload)
        # One call, or one for each of several rows.
        value = function(*rows, **named[0]) if named else each(function, rows)
    except BaseException as error:
        made = RAISED, packed_failure(error)
    else:
        try:
            made = VALUE, cloudpickle.dumps(value)
        except Exception as error:
            what = f"the result of the call, of type {type(value).__name__}, cannot travel: {error}"
            made = RAISED, packed_failure(TypeError(what))
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return made


def each(function: Any, rows: list[tuple[Any, ...]]) -> list[tuple[bytes, Any]]:
    """Call it with every row; one that raises does not keep the others from theirs."""
    made = []
    for row in rows:
        try:
            made.append((VALUE, function(*row)))
        except BaseException as error:
            made.append((RAISED, packed_failure(error)))
    return made


def packed_failure(error: BaseException) -> bytes:
    """An exception with its traceback in words; its class and text alone if it cannot travel."""
    words = "".join(traceback.format_exception(error))
    error.__traceback__ = None
    whole: bytes | None
    try:
        whole = cloudpickle.dumps(error)
        # Some can be packed, and not be made again.
        pickle.loads(whole)
    except BaseException:
        whole = None
    name = f"{type(error).__module__}.{type(error).__qualname__}"
    return pickle.dumps((whole, name.removeprefix("builtins."), _text(error), words))


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(it has no text)"
