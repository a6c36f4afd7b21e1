"""The user's configuration file and, above it, the project's."""

import os
from typing import Any

import msgspec
from msgspec.structs import replace

from towline.config.check import Raw, read_file
from towline.config.project import Project, added_clusters, find_project_file
from towline.config.settings import (
    Cluster,
    Config,
    MachinesCluster,
    SnapshotSettings,
    local_only,
)
from towline.config.trust import Trusted, Trusts, anybody, check_trust, nobody
from towline.errors import ConfigError

#: file -> (what tells a changed file, its checked content); every submission reads the files.
_cache: dict[str, tuple[tuple[int, ...], Raw]] = {}


class Configuration:
    """What one user has configured, in whatever folder, and whose project files are trusted."""

    def __init__(self, user_file: str, trusted: Trusted) -> None:
        self.user_file = user_file
        self.trusted = trusted

    def in_folder(self, folder: str | None) -> Config:
        return load_config(self.user_file, folder, self.trusted)

    def with_sources(self, folder: str | None) -> tuple[Config, dict[str, str]]:
        return load_with_sources(self.user_file, folder, self.trusted)

    def source_of(self, cluster: str, folder: str | None) -> str:
        """The file that defines a cluster in a folder; the user's for one that none does."""
        project = project_of(folder)
        return project.file if cluster in project.raw.get("clusters", {}) else self.user_file

    def check(self, folder: str) -> None:
        """Whether a project's file could be used at all if it were trusted."""
        load_config(self.user_file, folder, anybody)

    def what_travels(self, folder: str) -> SnapshotSettings:
        return load_snapshot_settings(self.user_file, folder)


def load_config(
    user_file: str, project_folder: str | None = None, trusts: Trusts = nobody
) -> Config:
    """The configuration that holds in a folder."""
    return load_with_sources(user_file, project_folder, trusts)[0]


def load_with_sources(
    user_file: str, project_folder: str | None = None, trusts: Trusts = nobody
) -> tuple[Config, dict[str, str]]:
    """The configuration, and for each cluster the file that defines it ("" if none does)."""
    user = _read(user_file)
    project = project_of(project_folder)
    project.check_sections(user_file)
    built_in = msgspec.to_builtins(local_only())
    own = msgspec.convert(built_in | user.get("clusters", {}), dict[str, Cluster])
    theirs = msgspec.convert(project.raw.get("clusters", {}), dict[str, Cluster])
    clusters = {**own, **added_clusters(own, theirs, project.file)}
    raw = {**_merge(user, project.raw), "clusters": {}}
    config = replace(msgspec.convert(raw, Config), clusters=clusters)
    _check_default(config, project.file if "default_cluster" in project.raw else user_file)
    _check_machines(config, project.file or user_file)
    # Last, so that nobody is asked about a file that cannot be used anyway.
    check_trust(project, trusts)
    sources = dict.fromkeys(clusters, "")
    sources.update(dict.fromkeys(user.get("clusters", {}), user_file))
    sources.update(dict.fromkeys(theirs, project.file))
    return config, sources


def load_snapshot_settings(user_file: str, project_folder: str) -> SnapshotSettings:
    """What of a folder travels, which its own file may say though nobody trusts it."""
    user, project = _read(user_file), project_of(project_folder)
    raw = _merge(user.get("snapshot", {}), project.raw.get("snapshot", {}))
    return msgspec.convert(raw, SnapshotSettings)


def project_of(folder: str | None) -> Project:
    """The project's file that holds in a folder."""
    file = find_project_file(folder) if folder else ""
    return Project(file, _read(file)) if file else Project()


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
    """Key by key; lists as a whole."""
    merged: dict[str, Any] = dict(below)
    for key, value in above.items():
        if isinstance(value, dict):
            merged[key] = _merge(below.get(key, {}), value)
        else:
            merged[key] = value
    return merged


def check_config(raw: Raw, file: str) -> None:
    """Whether what one file says fits together."""
    clusters = msgspec.to_builtins(local_only()) | raw.get("clusters", {})
    config = msgspec.convert({**raw, "clusters": clusters}, Config)
    _check_default(config, file)
    _check_machines(config, file)


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
