"""`cedar.json`: the access node of a Slurm, default options of sbatch, and what is run first.

{"host": "me@cedar.example.org", "sbatch": {"--mem": "16G"}, "setup": ["module load python"]}

Options may also stand alone, at the top; then the file's name is that of the host.
"""

from __future__ import annotations

import os

from towline.client.submission import this_folder
from towline.config.targets import THIS, split_target
from towline.errors import ConfigError, NotFound, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

SETTINGS = ("host", "sbatch", "setup", "folder")
ENDINGS = (".json", ".yaml", ".yml", ".toml")
_HINT = (
    'it looks like: {"host": "me@cedar.example.org", "sbatch": {"--mem": "16G"}, "setup": ["..."]}'
)


class Destination:
    """Where a job is submitted to: a configured cluster, or the access node of a Slurm."""

    __slots__ = ("cluster", "folder", "host", "options", "setup", "where")

    def __init__(self, cluster: str = "", host: str = "") -> None:
        self.cluster = cluster
        self.host = host
        #: Where jobs live over there, if not in the usual place.
        self.folder = ""
        self.options: dict[str, str] = {}
        self.setup = ""
        #: What errors about its options begin with.
        self.where = ""


def read_destination(name: str) -> Destination:
    """What `-c` means: the name of a file, or that of a cluster."""
    # No shell does that in `-c=~/cedar.json`.
    name = os.path.expanduser(name)
    if not name:
        raise UsageError("-c names no file and no cluster", "submit -c cedar.json COMMAND")
    if not name.endswith(ENDINGS):
        if "/" in name:
            raise UsageError(
                f"{name} has none of the endings that are understood", f"use {', '.join(ENDINGS)}"
            )
        return Destination(cluster=name)
    file = find_file(name)
    return _destination(file, _content(file))


def find_file(name: str) -> str:
    """The file itself, or one of this name higher up in the same git repository."""
    places = [os.path.join(folder, name) if folder else name for folder in _folders(name)]
    for place in places:
        if os.path.isfile(place):
            return place
    looked = f"looked in {', '.join(os.path.dirname(p) or 'this folder' for p in places)}; {_HINT}"
    raise NotFound(f"there is no file {name}", looked if len(places) > 1 else _HINT)


def _folders(name: str) -> Iterator[str]:
    yield ""
    folder = this_folder()
    if "/" in name or not _repository(folder):
        return
    while folder != _repository(folder):
        folder = os.path.dirname(folder)
        yield folder


def _repository(folder: str) -> str:
    """The top of the git repository that a folder is in; empty outside of any."""
    while not os.path.exists(os.path.join(folder, ".git")):
        parent = os.path.dirname(folder)
        if parent == folder:
            return ""
        folder = parent
    return folder


def _destination(file: str, raw: dict[str, Any]) -> Destination:
    found = Destination()
    found.where = f"{file}: "
    for key in raw:
        if key not in SETTINGS and not key.startswith("-"):
            raise ConfigError(
                f"{file}: `{key}` is not a setting{_nearest(key)}",
                f"settings: {', '.join(SETTINGS)}; options of sbatch begin with a dash: --{key}",
            )
    stem = os.path.basename(file).rpartition(".")[0]
    found.host = _host(file, _text(file, raw, "host") if "host" in raw else stem)
    found.folder = _text(file, raw, "folder")
    found.setup = _setup(file, raw.get("setup"))
    alone = {key: value for key, value in raw.items() if key not in SETTINGS}
    sbatch = raw.get("sbatch")
    if sbatch is not None and not isinstance(sbatch, dict):
        raise ConfigError(f'{file}: `sbatch` must be like {{"--mem": "16G"}}', _HINT)
    found.options = option_texts({**alone, **(sbatch or {})}, found.where)
    return found


def _host(file: str, host: str) -> str:
    try:
        if host != THIS:
            split_target(host)
    except UsageError as error:
        raise ConfigError(f"{file}: `host`: {error.text}", error.hint) from None
    return host


def _text(file: str, raw: dict[str, Any], key: str) -> str:
    value = raw.get(key)
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"{file}: `{key}` must be a text", _HINT)
    return (value or "").strip()


def _setup(file: str, value: Any) -> str:
    """Shell text; of several commands, none is run after one that failed."""
    if value is None or isinstance(value, str):
        return value or ""
    if not isinstance(value, list) or not all(isinstance(line, str) for line in value):
        raise ConfigError(f"{file}: `setup` must be a text or a list of texts", _HINT)
    return "\n(exit $?) || exit\n".join(line for line in value if line.strip())


def option_texts(raw: dict[str, Any], where: str) -> dict[str, str]:
    """Options of sbatch as the Engine takes them."""
    found = {}
    for typed, value in raw.items():
        if value is not None and not isinstance(value, str | int | float):
            raise UsageError(
                f"{where}the option {typed} has no plain value", 'write it like {"--mem": "16G"}'
            )
        # Some options are mere words, which have no value.
        found[str(typed)] = "true" if value is None or value is True else str(value)
    return found


def _content(file: str) -> dict[str, Any]:
    try:
        with open(file, "rb") as stream:
            text = stream.read().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{file} is not a text in UTF-8") from None
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    try:
        raw = _parsed(file, text)
    except RecursionError:
        raise ConfigError(f"{file} is too deeply nested", _HINT) from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{file} holds no settings", _HINT)
    return {str(key): value for key, value in raw.items()}


def _parsed(file: str, text: str) -> Any:
    if file.endswith(".toml"):
        import tomllib

        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{file}: {error}", _HINT) from None
    if file.endswith(".json"):
        import json

        try:
            return json.loads(text)
        except ValueError as error:
            raise ConfigError(f"{file} is not JSON: {error}", _HINT) from None
    import yaml

    try:
        # All as it is written: YAML's own idea of 3:00:00 is the number 10800.
        return yaml.load(text, Loader=yaml.BaseLoader)
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())
        raise ConfigError(f"{file} is not YAML: {problem}", _HINT) from None


def _nearest(word: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word, SETTINGS, n=1)
    return f"; did you mean `{near[0]}`?" if near else ""
