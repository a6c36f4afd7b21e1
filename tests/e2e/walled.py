"""Hostile jobs and their victims, and machines that cannot wall them in."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.hosts import Hosts

_HOSTILE = Path(__file__).parent / "hostile"


def put_hostile(folder: Path) -> None:
    """The programs of a victim and of whoever tries everything against it."""
    for name in ("victim.py", "tries.py"):
        (folder / name).write_text((_HOSTILE / name).read_text())


def leaked(found: dict[str, str]) -> dict[str, str]:
    """What came of the tries that were not refused."""
    return {name: text for name, text in found.items() if text}


@contextmanager
def without_bubblewrap(hosts: Hosts, name: str) -> Iterator[None]:
    bwrap = hosts.root(name) / "usr/bin/bwrap"
    hidden = bwrap.rename(bwrap.with_name("hidden-bwrap"))
    try:
        yield
    finally:
        hidden.rename(bwrap)
