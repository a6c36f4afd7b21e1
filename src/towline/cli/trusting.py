"""A project's file that nobody trusted yet: what it wants, and whether it may."""

from __future__ import annotations

from towline.cli.terminal import paint, printable, tell, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from towline.client.session import Trust

#: Settings that a reader looks for first, and what they do.
_WORDS = {
    "default_cluster": "jobs run on",
    "defaults.setup": "before each job",
    "defaults.env": "variables",
    "defaults.request": "each job asks for",
    "defaults.time": "time limit",
    "aliases": "GPU names",
}
_COLUMN = 18
#: Of one setting, in a question.
MOST_LINES = 6


def asked_to_trust(wanted: Trust) -> bool:
    """Show what the file wants and ask; True when the person trusts it."""
    tell(f"{printable(wanted.file)} wants to decide what runs where:")
    for line in wishes(wanted.settings, MOST_LINES):
        tell(f"  {line}")
    write(2, paint("Trust it, until it changes? [y/N] ", "bold", 2).encode())
    try:
        answer = input().strip().lower()
    except (EOFError, KeyboardInterrupt):
        tell("")
        return False
    return answer in ("y", "yes")


def wishes(settings: dict[str, Any], most: int = 0) -> Iterator[str]:
    """What a file wants, in lines for people; of a long text, the first lines if `most` says so."""
    for name, text in _flat(settings):
        lines = text.splitlines() or [""]
        left = len(lines) - most if most else 0
        if left > 0:
            lines[most:] = [f"… and {left} more: tow trust --show"]
        for place, line in enumerate(lines):
            yield f"{printable(name) if not place else '':<{_COLUMN}} {printable(line)}"


def _flat(settings: dict[str, Any]) -> Iterator[tuple[str, str]]:
    top = {"default_cluster": settings.get("default_cluster")}
    for key, value in {**top, **settings}.items():
        if key == "clusters":
            for name, cluster in value.items():
                yield from _cluster(name, cluster)
        elif key == "defaults":
            for name, said in value.items():
                yield _WORDS.get(f"{key}.{name}", name), _text(said)
        elif value:
            yield _WORDS.get(key, key), _text(value)


def _cluster(name: str, cluster: dict[str, Any]) -> Iterator[tuple[str, str]]:
    kind = cluster.get("kind", "machines")
    where = cluster.get("machines") or cluster.get("host") or cluster.get("url") or "this"
    label = f"cluster {name}"
    yield label, _text(where) if kind == "machines" else f"{kind} at {_text(where)}"
    for key, value in cluster.items():
        if key not in ("kind", "machines", "host", "url") and value:
            yield f"  {key}", _text(value)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    if not isinstance(value, dict):
        return str(value)
    said = ", ".join(f"{name}={_text(one)}" for name, one in value.items() if name != "ssh")
    return f"{value['ssh']} ({said})" if "ssh" in value and said else str(value.get("ssh") or said)
