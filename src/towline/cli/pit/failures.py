"""What `pit` says when something does not work, and what it exits with: always 1."""

from __future__ import annotations

import re

from towline.errors import TowlineError


class Failed(TowlineError):
    """`Command failed: ...`"""

    def said(self) -> str:
        return "\n".join([f"Command failed: {self.text}", *_indented(self.hint)])


class PitUsage(Failed):
    """What was typed cannot be; said as it stands here."""

    def said(self) -> str:
        return "\n".join([self.text, *_indented(self.hint)])


class Leave(Exception):
    """Somebody does not want to go on; nothing is wrong."""


#: The ancestor's words for what a server refuses, by the code of Towline's own error.
PHRASES = {
    "forbidden": "Forbidden",
    "not_found": "Not Found",
    "unauthorized": "Unauthorized",
    "impossible": "Cluster cannot fulfill resource request",
    "request": "Problem parsing allocation",
}


def failure(error: TowlineError) -> Failed:
    """What went wrong, in the ancestor's words; what Towline knows of it stands below."""
    if isinstance(error, Failed):
        return error
    # What to type next is said in the words of another program there.
    hint = "" if re.search(r"\btow ", error.hint) else error.hint
    if how := getattr(error, "errno_name", ""):
        return Failed(f"Unable to reach pit: {how}", error.text)
    phrase = PHRASES.get(error.code)
    if phrase is None:
        return Failed(error.text, hint)
    more = "\n".join(filter(None, (error.text if error.text != phrase else "", hint)))
    return Failed(phrase, more)


def _indented(text: str) -> list[str]:
    return [f"  {line}" for line in text.splitlines()]
