"""The user's configuration file and, above it, the project's."""

import os
import stat
from typing import Any

import msgspec

from towline.config.check import Raw, read_file
from towline.config.settings import Config, MachinesCluster, local_only
from towline.errors import ConfigError

PROJECT_FILE = "towline.toml"

#: file -> (what tells a changed file, its checked content); every submission reads the files.
_cache: dict[str, tuple[tuple[int, ...], Raw]] = {}


def load_config(user_file: str, project_folder: str | None = None) -> Config:
    """The configuration that holds in a folder."""
    return load_with_sources(user_file, project_folder)[0]


def load_with_sources(
    user_file: str, project_folder: str | None = None
) -> tuple[Config, dict[str, str]]:
    """The configuration, and for each cluster the file that defines it ("" if none does)."""
    user = _read(user_file)
    project_file = find_project_file(project_folder) if project_folder else ""
    project = _read(project_file) if project_file else {}
    for section in ("engine", "cleanup"):
        if section in project:
            raise ConfigError(
                f"{project_file}: `{section}` cannot be set here",
                f"The Engine serves all projects: put it into {user_file}",
            )
    raw = _merge(user, project)
    raw["clusters"] = {**msgspec.to_builtins(local_only()), **raw.get("clusters", {})}
    config = msgspec.convert(raw, Config)
    _check_default(config, project_file if "default_cluster" in project else user_file)
    _check_machines(config, project_file or user_file)
    sources = dict.fromkeys(config.clusters, "")
    sources.update(dict.fromkeys(user.get("clusters", {}), user_file))
    sources.update(dict.fromkeys(project.get("clusters", {}), project_file))
    return config, sources


def find_project_file(folder: str) -> str:
    """The nearest towline.toml in the folder or above it, or "" if there is none."""
    folder = os.path.abspath(folder)
    above_home = os.path.dirname(os.path.abspath(os.path.expanduser("~")))
    while folder not in (above_home, os.path.dirname(folder)):
        file = os.path.join(folder, PROJECT_FILE)
        if os.path.isfile(file) and _trusted(file):
            return file
        folder = os.path.dirname(folder)
    return ""


def _trusted(file: str) -> bool:
    """False for a file that anyone could have put there, such as /tmp/towline.toml."""
    found = os.stat(file)
    open_to_all = (found.st_mode | os.stat(os.path.dirname(file)).st_mode) & stat.S_IWOTH
    return not open_to_all or found.st_uid in (os.geteuid(), 0)


def _read(file: str) -> Raw:
    try:
        found = os.stat(file)
    except OSError:
        return read_file(file)
    seen = (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_dev)
    cached = _cache.get(file)
    if cached is None or cached[0] != seen:
        if len(_cache) > 100:
            _cache.clear()
        cached = _cache[file] = (seen, read_file(file))
    return cached[1]


def _merge(below: Raw, above: Raw) -> Raw:
    """Key by key; whole clusters by name, whole lists."""
    merged: dict[str, Any] = dict(below)
    for key, value in above.items():
        if key == "clusters":
            merged[key] = {**below.get(key, {}), **value}
        elif isinstance(value, dict):
            merged[key] = _merge(below.get(key, {}), value)
        else:
            merged[key] = value
    return merged


def _check_default(config: Config, file: str) -> None:
    if config.default_cluster not in config.clusters:
        raise ConfigError(
            f"{file}: `default_cluster` names {config.default_cluster!r}, which is not a cluster",
            f"Clusters: {', '.join(config.clusters)}",
        )


def _check_machines(config: Config, file: str) -> None:
    """One name stands for one machine, in whatever clusters it is."""
    targets: dict[str, str] = {}
    for name, cluster in config.clusters.items():
        if isinstance(cluster, MachinesCluster):
            for entry in cluster.entries():
                if targets.setdefault(entry.label, entry.ssh) != entry.ssh:
                    raise ConfigError(
                        f"{file}: the machine name {entry.label!r} stands for both "
                        f"{targets[entry.label]} and {entry.ssh} (in clusters.{name})",
                        "Give one of them another `name`.",
                    )
