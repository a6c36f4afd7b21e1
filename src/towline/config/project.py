"""A project's own file, `towline.toml`: which one holds, and what of it needs trust."""

import hashlib
import os
import stat

import msgspec
from msgspec import Struct, field
from msgspec.structs import fields, replace

from towline.config.check import Raw
from towline.config.settings import Cluster, MachineEntry, MachinesCluster
from towline.errors import ConfigError

PROJECT_FILE = "towline.toml"
#: Sections that only say what of the folder travels: anybody's file may say that.
HARMLESS = frozenset(["snapshot"])
#: Sections that concern all projects.
_NOT_HERE = ("engine", "cleanup")
_RENAME = "Give it another name there."


class Project(Struct, frozen=True):
    """The file of a project and what is in it; all empty where there is none."""

    file: str = ""
    raw: Raw = field(default_factory=dict)

    def demands(self) -> Raw:
        """What decides what runs where, and so counts only once the user trusts it."""
        return {key: value for key, value in self.raw.items() if value and key not in HARMLESS}

    def digest(self) -> str:
        """What tells these demands from others; how they are written down makes no difference."""
        return hashlib.sha256(msgspec.json.encode(self.demands(), order="sorted")).hexdigest()

    def check_sections(self, user_file: str) -> None:
        for section in _NOT_HERE:
            if section in self.raw:
                raise ConfigError(
                    f"{self.file}: `{section}` cannot be set here",
                    f"The Engine serves all projects: put it into {user_file}",
                )


def find_project_file(folder: str) -> str:
    """The nearest towline.toml in the folder or above it, or "" if there is none."""
    folder = os.path.abspath(folder)
    above_home = os.path.dirname(os.path.abspath(os.path.expanduser("~")))
    while folder not in (above_home, os.path.dirname(folder)):
        file = os.path.join(folder, PROJECT_FILE)
        if os.path.isfile(file) and not _could_be_anyones(file):
            return file
        folder = os.path.dirname(folder)
    return ""


def _could_be_anyones(file: str) -> bool:
    """True for a file that a stranger put where all can write, such as /tmp/towline.toml."""
    found = os.stat(file)
    open_to_all = (found.st_mode | os.stat(os.path.dirname(file)).st_mode) & stat.S_IWOTH
    return bool(open_to_all) and found.st_uid not in (os.geteuid(), 0)


def added_clusters(
    own: dict[str, Cluster], theirs: dict[str, Cluster], file: str
) -> dict[str, Cluster]:
    """The clusters that a project adds; the user's own, and their machines, it cannot change."""
    for name in theirs:
        if name in own:
            whose = "is this machine" if name == "local" else "is a cluster of your own"
            raise ConfigError(
                f"{file}: `clusters.{name}` {whose}, which a project cannot change",
                "Give the project's cluster another name.",
            )
    machines = _machines(own)
    added: dict[str, Cluster] = {}
    for name, cluster in theirs.items():
        place = f"{file}: `clusters.{name}`"
        if not isinstance(cluster, MachinesCluster):
            # A cluster that is reached through a machine has a connection under its own name.
            if name in machines:
                raise ConfigError(f"{place} is called like a machine of your own", _RENAME)
            added[name] = cluster
            continue
        given = [m if isinstance(m, MachineEntry) else MachineEntry(m) for m in cluster.machines]
        entries = [_as_the_user_has_it(entry, own, machines, place) for entry in given]
        added[name] = replace(cluster, machines=entries)
    return added


def _machines(clusters: dict[str, Cluster]) -> dict[str, MachineEntry]:
    found: dict[str, MachineEntry] = {}
    for cluster in clusters.values():
        if isinstance(cluster, MachinesCluster):
            for entry in cluster.entries():
                found.setdefault(entry.label, entry)
    return found


def _as_the_user_has_it(
    entry: MachineEntry, own: dict[str, Cluster], machines: dict[str, MachineEntry], place: str
) -> MachineEntry:
    """A machine that a project names; one of the user's has the user's limits, key and folder."""
    mine = machines.get(entry.label)
    if mine is None:
        if entry.label in own and not isinstance(own[entry.label], MachinesCluster):
            raise ConfigError(
                f"{place}: the machine {entry.label!r} is called like a cluster of your own",
                _RENAME,
            )
        return entry
    if mine.ssh != entry.ssh:
        raise ConfigError(
            f"{place}: the machine {entry.label!r} is {mine.ssh} in your own configuration, "
            f"not {entry.ssh}",
            _RENAME,
        )
    said = [one.name for one in fields(entry) if one.name not in ("ssh", "name")]
    if any(getattr(entry, name) is not None for name in said):
        raise ConfigError(
            f"{place}: {entry.label!r} is a machine of your own, which a project cannot change",
            f'Name it there as just "{entry.label}"; its limits are in your own configuration.',
        )
    return mine
