"""What is typed as an entity: `user:anna`, `node:n0:1`, `job:190` or 190, `me`, `nodes`. Pure."""

from __future__ import annotations

import re

from towline.cli.pit.failures import Failed, PitUsage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Sequence

KINDS = ("user", "node", "group", "alias", "job")
LISTS = ("users", "groups", "nodes", "jobs", "aliases")
#: What has data besides jobs.
DATA = ("home", "shared", "group", "user")
_FORMATS = {
    "user": (r"[a-z][a-z0-9]*|~", "Wrong user id format"),
    "node": (r"[a-z][a-z0-9]*", "Wrong node id format"),
    "alias": (r"[a-z][a-z0-9]*", "Wrong alias format"),
    "group": (r"[a-z]+", "Wrong group id format"),
    "job": (r"[0-9]+", "Wrong job id format"),
}


class Entity:
    """Its kind, its name, and of a node which of its resources."""

    def __init__(self, kind: str, name: str = "", index: int | None = None) -> None:
        self.kind = kind
        self.name = name
        self.index = index


def entity(
    typed: str, kinds: Container[str], *, wrong: str = "Unsupported", indices: bool = False
) -> Entity:
    """What is meant, if it is one of these kinds; the errors are the ancestor's."""
    kind, colon, name = typed.partition(":")
    name, second, index = name.partition(":")
    if kind not in kinds:
        raise Failed(f'{wrong} entity type "{kind}"')
    if kind not in KINDS:
        if colon:
            raise Failed(f'"{kind}" takes no name')
        return Entity(kind)
    if second and not (indices and kind == "node"):
        raise Failed(f"Indices not allowed for {kind} entities")
    if second and not index.isdecimal():
        raise Failed(f'"{index}" is no index of a resource')
    return Entity(kind, checked(kind, name), int(index) if second else None)


def checked(kind: str, name: str) -> str:
    pattern, complaint = _FORMATS[kind]
    if not re.fullmatch(pattern, name):
        raise Failed(complaint, f"write it like {kind}:{'190' if kind == 'job' else 'name'}")
    return name


def job_number(typed: str) -> int:
    """A job by its number, with or without `job:` in front."""
    number = typed.removeprefix("job:")
    if not number.isdecimal():
        raise Failed(f'"{typed}" is not the number of a job', "pit status lists them")
    return int(number)


def with_data(typed: str) -> Entity:
    """What has data: home, shared, a group, a user, or a job, also by its number alone."""
    if typed.isdecimal():
        return Entity("job", typed)
    return entity(typed, (*DATA, "job"))


def properties(words: Sequence[str]) -> dict[str, str]:
    """`name=value` by name; the value may have further `=`."""
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise PitUsage(f'error: "{word}" is no assignment', "write it like email=anna@lab.org")
        found[name] = value
    return found
