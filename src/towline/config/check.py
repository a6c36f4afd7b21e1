"""One configuration file: its TOML, and whether every key and value in it is right."""

import difflib
import re
import tomllib
from typing import Any, NoReturn

import msgspec

from towline.config.settings import (
    CLUSTER_KINDS,
    SECTIONS,
    Config,
    MachineEntry,
    MachinesCluster,
    hours_of,
)
from towline.config.targets import split_target
from towline.errors import ConfigError, UsageError
from towline.model.grammar import parse_request
from towline.model.hours import parse_hours
from towline.model.units import parse_duration_s, parse_memory_mb

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_TOML_PLACE = re.compile(r" \(at line (\d+), column (\d+)\)$")
_TYPE_NAMES = {
    "str": "a text in quotes",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "null": "nothing",
}

#: Of a machine's settings: how files written for earlier versions call them.
OLDER_NAMES = {"cpus": "max_cpus", "mem": "max_mem"}

Raw = dict[str, Any]


def read_file(file: str) -> Raw:
    """The checked content of one file; a file that does not exist is empty."""
    try:
        with open(file, "rb") as stream:
            text = stream.read().decode()
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    return check_text(text, file)


def check_text(text: str, file: str) -> Raw:
    """The content of a file's text, or a ConfigError that says where it is wrong."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(_syntax_error(str(error), text, file)) from None
    except RecursionError:
        raise ConfigError(f"{file} is nested too deeply") from None
    _Checker(file).check(raw)
    return raw


def _syntax_error(message: str, text: str, file: str) -> str:
    lines = text.splitlines() or [""]
    found = _TOML_PLACE.search(message)
    if found:
        line, column = int(found[1]), int(found[2])
        message = message[: found.start()]
    else:
        message = message.replace(" (at end of document)", "")
        line, column = len(lines), len(lines[-1]) + 1
    shown = lines[line - 1] if line <= len(lines) else ""
    # Tabs would move the caret; long lines would wrap it.
    start = max(0, column - 60)
    shown = shown.replace("\t", " ")[start : start + 80]
    return (
        f"{file}, line {line}, column {column}: {message}\n"
        f"  {shown}\n  {' ' * (column - 1 - start)}^"
    )


class _Checker:
    """Walks one file's content; every failure names the file and the key's whole path."""

    def __init__(self, file: str) -> None:
        self.file = file

    def check(self, raw: Raw) -> None:
        self._keys(raw, Config, "")
        self._convert(raw.get("default_cluster", ""), str, "default_cluster")
        self._texts(raw.get("aliases", {}), "aliases")
        for name, section in SECTIONS.items():
            if name in raw:
                self._keys(raw[name], section, name)
                self._texts(raw[name].get("env", {}), f"{name}.env")
                self._convert(raw[name], section, name)
        self._defaults(raw.get("defaults", {}))
        clusters = raw.get("clusters", {})
        self._table(clusters, "clusters")
        for name, cluster in clusters.items():
            self._cluster(name, cluster)

    def _defaults(self, defaults: Raw) -> None:
        for name in defaults.get("env", {}):
            if not VARIABLE.match(name):
                self._fail(f"defaults.env.{name}", "is not the name of a variable")
        for key, parse in (("request", parse_request), ("time", parse_duration_s)):
            if defaults.get(key):
                self._parse(parse, defaults[key], f"defaults.{key}")

    def _cluster(self, name: str, cluster: Raw) -> None:
        path = f"clusters.{name}"
        if not NAME.match(name):
            self._fail(path, "is not a name: use letters, digits, `-`, `_` and `.`")
        self._table(cluster, path)
        kind = cluster.setdefault("kind", "machines")
        if not isinstance(kind, str) or kind not in CLUSTER_KINDS:
            near = _nearest(str(kind), list(CLUSTER_KINDS))
            self._fail(f"{path}.kind", f"must be one of {', '.join(CLUSTER_KINDS)}{near}")
        self._keys(cluster, CLUSTER_KINDS[kind], path, also=("kind",))
        for index, entry in enumerate(_list(cluster.get("machines"))):
            if isinstance(entry, dict):
                self._keys(entry, MachineEntry, f"{path}.machines[{index}]")
                self._one_name(entry, f"{path}.machines[{index}]")
        checked = self._convert(cluster, CLUSTER_KINDS[kind], path)
        self._links(cluster.get("links", {}), f"{path}.links")
        if isinstance(checked, MachinesCluster):
            self._machines(checked, path)
        elif kind != "server":
            self._parse(split_target, cluster.get("host", "this"), f"{path}.host")
        elif not cluster["url"].startswith(("https://", "http://")):
            self._fail(f"{path}.url", "must start with https:// or http://")

    def _links(self, links: dict[str, str], path: str) -> None:
        """A link has a name inside the job's folder, and leads somewhere."""
        for name, target in links.items():
            if "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
                hint = "name a path inside the job's folder, such as `data` or `models/base.pt`"
                near = [part for part in name.split("/") if part not in ("", ".", "..")]
                guess = f"; did you mean `{'/'.join(near)}`?" if near else ""
                self._fail(f'{path}."{name}"', f"is not the name of a link{guess}", hint)
            if not target or "\0" in target:
                self._fail(f'{path}."{name}"', "does not say what the link leads to")

    def _machines(self, cluster: MachinesCluster, path: str) -> None:
        if not cluster.machines:
            self._fail(f"{path}.machines", "is empty: name at least one machine, or `this`")
        labels: set[str] = set()
        for index, entry in enumerate(cluster.entries()):
            place = f"{path}.machines[{index}]"
            self._parse(split_target, entry.ssh, place)
            if entry.max_mem:
                given = cluster.machines[index]
                key = "mem" if isinstance(given, MachineEntry) and given.mem else "max_mem"
                self._parse(parse_memory_mb, entry.max_mem, f"{place}.{key}")
            for text in hours_of(entry.quiet_hours):
                self._parse(parse_hours, text, f"{place}.quiet_hours")
            if entry.label != entry.ssh and not NAME.match(entry.label):
                self._fail(f"{place}.name", "may have letters, digits, `-`, `_` and `.` only")
            if entry.label in labels:
                self._fail(place, f"names {entry.label} a second time")
            labels.add(entry.label)

    def _one_name(self, raw: Raw, path: str) -> None:
        """The older name of a setting stands for the newer one, not beside it."""
        for old, new in OLDER_NAMES.items():
            if old in raw and new in raw:
                self._fail(f"{path}.{old}", f"is the older name of `{new}`, which is there as well")

    def _keys(self, raw: Any, struct: type[Any], path: str, also: tuple[str, ...] = ()) -> None:
        self._table(raw, path)
        valid = [*also, *(field.encode_name for field in msgspec.structs.fields(struct))]
        for key in raw:
            if key not in valid:
                place = f"{path}.{key}" if path else key
                self._fail(place, f"is not a setting{_nearest(key, valid)}", _listing(path, valid))

    def _table(self, raw: Any, path: str) -> None:
        if not isinstance(raw, dict):
            self._fail(path, f"must be a table, written as [{path}]")

    def _texts(self, raw: Any, path: str) -> None:
        self._table(raw, path)
        for key, value in raw.items():
            self._convert(value, str, f"{path}.{key}")

    def _convert(self, raw: Any, kind: Any, path: str) -> Any:
        try:
            return msgspec.convert(raw, kind)
        except msgspec.ValidationError as error:
            message, _, inner = str(error).partition(" - at `$")
            # msgspec counts a value of a table as `[...]`; the key is in the message or above it.
            self._fail(path + inner.rstrip("`").replace("[...]", ""), _plain(message))

    def _parse(self, parse: Any, text: str, path: str) -> None:
        try:
            parse(text)
        except UsageError as error:
            self._fail(path, f"is wrong: {error.text}", error.hint)

    def _fail(self, path: str, problem: str, hint: str = "") -> NoReturn:
        raise ConfigError(f"{self.file}: `{path}` {problem}", hint)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _plain(message: str) -> str:
    """msgspec's message in words for people."""
    expected = re.match(r"Expected `([^`]+)`, got `([^`]+)`$", message)
    if expected:
        wanted = [_TYPE_NAMES.get(kind.strip(), kind.strip()) for kind in expected[1].split("|")]
        wanted = [kind for kind in wanted if kind != "nothing"]
        return f"must be {' or '.join(wanted)}, not {_TYPE_NAMES.get(expected[2], expected[2])}"
    missing = re.match(r"Object missing required field `([^`]+)`$", message)
    if missing:
        return f"lacks the setting `{missing[1]}`"
    return "is wrong: " + message.replace("`", "")


def _nearest(word: str, valid: list[str]) -> str:
    near = difflib.get_close_matches(word, valid, n=1)
    return f"; did you mean `{near[0]}`?" if near else ""


def _listing(path: str, valid: list[str]) -> str:
    where = f"in [{path}]" if path else "at the top"
    return f"Settings {where}: {', '.join(name for name in valid if name not in OLDER_NAMES)}"
