"""Names and links that machines tell stay inside the folder that they are for."""

import itertools
import os


def leads_out(folder: str, link: str, aim: str) -> bool:
    """True if a link to `aim` would lead out of `folder`, be it through other links in there."""
    parts = aim.split("/")
    ups = len(list(itertools.takewhile(lambda part: part == "..", parts)))
    if os.path.isabs(aim) or ".." in parts[ups:] or "\0" in aim:
        return True
    top = os.path.realpath(folder)
    # What is above a real folder is no link, so counting is enough.
    end = os.path.normpath(os.path.join(os.path.realpath(os.path.dirname(link)), aim))
    return end != top and not end.startswith(top + os.sep)


def inside(folder: str, name: str) -> str | None:
    """The path of `name` below `folder`; None if it would leave it."""
    return all_inside(folder, [name])[0]


def all_inside(folder: str, names: list[str]) -> list[str | None]:
    """The same of many names; what they have in common is looked at once."""
    top = os.path.realpath(folder)
    known: dict[str, bool] = {}

    def stays(place: str) -> bool:
        if place not in known:
            real = os.path.realpath(place)
            known[place] = real == top or real.startswith(top + os.sep)
        return known[place]

    found: list[str | None] = []
    for name in names:
        parts = name.split("/")
        bad = not name or "\0" in name or any(part in ("", "..") for part in parts)
        path = "" if bad else f"{folder}/{name}"
        found.append(path if path and stays(os.path.dirname(path)) else None)
    return found
