"""Machines as the ssh scheduler describes them: a small YAML file for each.

username: ben
ip: gpu1.example.org
port: 22
ssh_key_path: ~/.ssh/id_ed25519
"""

from __future__ import annotations

import os

from towline.cli.cwd import whole_path
from towline.config.targets import split_target
from towline.errors import ConfigError, NotFound, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SETTINGS = ("username", "ip", "port", "ssh_key_path")
#: Where files are looked for that are not here.
SHARED = "~/.local/var"
USUAL_PORT = 22
_AN_EXAMPLE = "username: ben, ip: gpu1.example.org, port: 22, ssh_key_path: ~/.ssh/id_ed25519"


def machine_entries(names: list[str]) -> list[dict[str, Any]]:
    """The machines of these files, as the Engine is told of them."""
    return [read_machine(name) for name in names]


def read_machine(name: str) -> dict[str, Any]:
    """The machine of one file."""
    file = find_file(name)
    raw = _content(file)
    unknown = [key for key in raw if key not in SETTINGS]
    if unknown:
        raise ConfigError(f"{file}: `{unknown[0]}` is not a setting{_nearest(unknown[0])}", _HINT)
    user = _text(file, raw, "username")
    host = _text(file, raw, "ip")
    if not host:
        raise ConfigError(f"{file} lacks `ip`, the machine's name or address", _HINT)
    entry = {"ssh": _target(file, user, host, _port(file, raw.get("port")))}
    if key := _text(file, raw, "ssh_key_path"):
        entry["key"] = _key(file, key)
    return entry


def find_file(name: str) -> str:
    """The file that is meant: as given, with `.yaml`, or one of these in ~/.local/var."""
    if not name:
        raise UsageError("the name of a machine's file is empty")
    places = _places(name)
    for place in places:
        if os.path.isfile(place):
            return place
    raise NotFound(
        f"there is no machine file {name}",
        f"looked for {', '.join(dict.fromkeys(places))}; it looks like: {_AN_EXAMPLE}",
    )


def is_machine_file(name: str) -> bool:
    return any(os.path.isfile(place) for place in _places(name))


def _places(name: str) -> tuple[str, ...]:
    shared = os.path.join(os.path.expanduser(SHARED), name)
    return (name, f"{name}.yaml", shared, f"{shared}.yaml")


_HINT = f"Settings: {', '.join(SETTINGS)}"


def _content(file: str) -> dict[str, Any]:
    import yaml

    try:
        with open(file, "rb") as stream:
            raw = yaml.safe_load(stream)
    except yaml.YAMLError as error:
        raise ConfigError(f"{file}{_place(error)}", f"it looks like: {_AN_EXAMPLE}") from None
    except (UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{file} is not a YAML text: {error}") from None
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{file} holds no settings of a machine", _HINT)
    return {str(key): value for key, value in raw.items()}


def _place(error: Any) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "it is not YAML"
    return (
        f", line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else f": {problem}"
    )


def _text(file: str, raw: dict[str, Any], key: str) -> str:
    value = raw.get(key)
    if value is None:
        return ""
    # YAML reads a user called 1234 as a number.
    if isinstance(value, int) and not isinstance(value, bool) and key == "username":
        value = str(value)
    if not isinstance(value, str):
        raise ConfigError(f'{file}: `{key}` must be a text; write it like {key}: "{value}"')
    return value.strip()


def _port(file: str, value: Any) -> int:
    if value is None:
        return USUAL_PORT
    text = str(value).strip() if isinstance(value, str | int) else ""
    if isinstance(value, bool) or not (text.isascii() and text.isdigit() and len(text) <= 5):
        raise ConfigError(f"{file}: `port` must be a number from 1 to 65535, not {value!r}")
    if not 1 <= int(text) <= 65535:
        raise ConfigError(f"{file}: `port` must be a number from 1 to 65535, not {value!r}")
    return int(text)


def _target(file: str, user: str, host: str, port: int) -> str:
    host = f"[{host}]" if ":" in host and not host.startswith("[") else host
    at = f"{user}@{host}" if user else host
    target = at if port == USUAL_PORT else f"{at}:{port}"
    try:
        split_target(target)
    except UsageError as error:
        raise ConfigError(f"{file}: {error.text}", _HINT) from None
    return target


def _key(file: str, typed: str) -> str:
    path = whole_path(os.path.expanduser(typed))
    if not os.path.isfile(path):
        raise ConfigError(
            f"{file}: there is no key file {path} (`ssh_key_path`)",
            "make one with `ssh-keygen`, and put it on the machine with `ssh-copy-id -i`",
        )
    return path


def _nearest(word: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word, SETTINGS, n=1)
    return f"; did you mean `{near[0]}`?" if near else ""
