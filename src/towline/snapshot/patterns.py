"""Patterns of paths, as in `.towignore`: a simple relative of git's."""

import fnmatch
import re
from collections.abc import Iterable


class Patterns:
    """Says whether a path is matched; of several patterns the last that matches decides.

    A pattern without `/` matches a name at any depth, one with `/` a path from the top;
    one that ends with `/` matches folders only, and `!` in front takes a match back.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self._rules = [rule for line in lines if (rule := _rule(line))]

    def __bool__(self) -> bool:
        return bool(self._rules)

    def match(self, path: str, is_folder: bool = False) -> bool:
        """True if this very path is matched, whatever holds for the folders above it."""
        matched = False
        for negated, folders_only, pattern in self._rules:
            if matched == negated and (is_folder or not folders_only) and pattern.match(path):
                matched = not negated
        return matched

    def match_below(self, path: str) -> bool:
        """True if the file at this path, or any folder above it, is matched."""
        if not self._rules:
            return False
        place = path.find("/")
        while place >= 0:
            if self.match(path[:place], is_folder=True):
                return True
            place = path.find("/", place + 1)
        return self.match(path)


def _rule(line: str) -> tuple[bool, bool, re.Pattern[str]] | None:
    line = line.strip()
    if not line or line.startswith("#"):
        return None
    negated = line.startswith("!")
    body = line.removeprefix("!")
    folders_only = body.endswith("/")
    body = body.rstrip("/")
    from_top = "/" in body
    body = body.removeprefix("/")
    translated = fnmatch.translate(body)
    return negated, folders_only, re.compile(translated if from_top else f"(?s:.*/)?{translated}")
