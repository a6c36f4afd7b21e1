"""Two snapshots beside each other: which files differ, and how."""

import difflib
from collections.abc import Callable, Iterator

from towline.snapshot.entries import Entry

_MOST_TEXT = 2 * 1024 * 1024
Read = Callable[[str], bytes]


def changes(old: list[Entry], new: list[Entry]) -> Iterator[tuple[str, str, Entry, Entry]]:
    """(letter, path, old entry, new entry) where they differ; an empty entry is absent."""
    before = {entry[0]: entry for entry in old}
    after = {entry[0]: entry for entry in new}
    for path in sorted(before.keys() | after.keys()):
        was, is_now = before.get(path, []), after.get(path, [])
        if was != is_now:
            yield "A" if not was else "D" if not is_now else "M", path, was, is_now


def unified(old: list[Entry], new: list[Entry], read: Read) -> Iterator[str]:
    """A unified diff, as `git diff` would show it; binaries are only named."""
    for letter, path, was, is_now in changes(old, new):
        yield f"diff {path}\n"
        if was and is_now and was[1] != is_now[1]:
            yield f"kind {_KINDS[was[1]]} -> {_KINDS[is_now[1]]}\n"
            if was[2] == is_now[2]:
                continue
        texts = [_lines(entry, read) for entry in (was, is_now)]
        if None in texts:
            yield f"binary file {_VERBS[letter]}\n"
            continue
        names = (f"a/{path}" if was else "/dev/null", f"b/{path}" if is_now else "/dev/null")
        for line in difflib.unified_diff(texts[0] or [], texts[1] or [], *names):
            yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


_KINDS = {"f": "file", "x": "executable file", "l": "link", "d": "folder"}
_VERBS = {"A": "added", "D": "deleted", "M": "changed"}


def _lines(entry: Entry, read: Read) -> list[str] | None:
    """The text of an entry; None if it is binary or too long to compare line by line."""
    if not entry or entry[1] == "d":
        return []
    if entry[1] == "l":
        return [f"{entry[2]}\n"]
    content = read(entry[2])
    if b"\0" in content[:8192] or len(content) > _MOST_TEXT:
        return None
    return content.decode(errors="surrogateescape").splitlines(keepends=True)
