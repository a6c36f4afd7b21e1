"""How a machine is named: `this`, a name from ~/.ssh/config, or user@host:port."""

from towline.errors import UsageError

#: The word for the machine that Towline itself runs on.
THIS = "this"

_EXAMPLES = "Machines look like this, gpu1, me@gpu1, me@10.0.0.5:2222 or [::1]:22."
#: ssh puts user and host into shell commands of ~/.ssh/config (ProxyCommand, Match exec).
_UNSAFE = frozenset("'`\"$;&<>|(){}*?!#,=")


def split_target(target: str) -> tuple[str, int | None]:
    """What to give to ssh as destination, and the port if the target names one."""
    _check_letters(target)
    user, at, host = target.removeprefix("ssh://").rpartition("@")
    port: str | None = None
    if host.startswith("["):
        host, closed, rest = host[1:].partition("]")
        if not closed or (rest and not rest.startswith(":")):
            raise _wrong(target, "`[` must end with `]`, and then maybe :port")
        port = rest[1:] if rest else None
    elif host.count(":") == 1:
        host, _, port = host.partition(":")
    if not host or (at and not user):
        raise _wrong(target, "a part of it is empty")
    if host.startswith("-") or any(letter in host for letter in "[]\\/@"):
        raise _wrong(target, f"{host!r} is not the name of a host")
    if user.startswith("-") or "/" in user:
        raise _wrong(target, f"{user!r} is not the name of a user")
    return f"{user}{at}{host}", None if port is None else _port(target, port)


def _check_letters(target: str) -> None:
    if not target:
        raise UsageError("a machine's name is empty", _EXAMPLES)
    if target.startswith("-"):
        raise _wrong(target, "it starts with `-`")
    for letter in target:
        if letter.isspace() or not letter.isprintable():
            raise _wrong(target, "it contains white space or a control character")
        if letter in _UNSAFE:
            raise _wrong(target, f"it contains `{letter}`")


def _port(target: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= 65535):
        raise _wrong(target, f"{text!r} is not a port from 1 to 65535")
    return int(text)


def _wrong(target: str, reason: str) -> UsageError:
    return UsageError(f"{target!r} cannot be a machine: {reason}", _EXAMPLES)
