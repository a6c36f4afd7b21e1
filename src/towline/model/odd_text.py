"""Arguments and names that are not UTF-8, in places that only take UTF-8 (JSON, SQLite).

Python shows such bytes as lone surrogates. They are kept as NUL + base64: no argument, variable or
path can contain a NUL, so the two cannot be confused.
"""

import base64
import binascii


def keepable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return "\0" + base64.b64encode(text.encode("utf-8", "surrogateescape")).decode()
    return text


def original(text: str) -> str:
    if not text.startswith("\0"):
        return text
    try:
        return base64.b64decode(text[1:]).decode("utf-8", "surrogateescape")
    except binascii.Error:
        return text
