"""Changes to the user's configuration file that keep its comments and its shape."""

import os
import secrets
import stat
from typing import Any

import tomlkit
from msgspec import NODEFAULT, to_builtins
from msgspec.structs import FieldInfo, fields
from tomlkit.exceptions import TOMLKitError

from towline.config.check import NAME, check_text, read_file
from towline.config.load import check_config
from towline.config.settings import MachinesCluster, QueueCluster
from towline.config.targets import split_target
from towline.errors import ConfigError, NotFound, UsageError


def add_cluster(file: str, name: str, cluster: MachinesCluster | QueueCluster) -> None:
    """Write a new cluster into the file, which is made if there is none."""
    _save(file, text_with_cluster(file, name, cluster))


def text_with_cluster(file: str, name: str, cluster: MachinesCluster | QueueCluster) -> str:
    """What the file would say with a new cluster; refuses what could not be used."""
    if name == "local":
        raise UsageError(
            "`local` is this machine",
            f"Choose another name. What jobs may use of it: [clusters.local] in {file}",
        )
    if not NAME.match(name):
        raise UsageError(
            f"{name!r} cannot be the name of a cluster", "Use letters, digits, `-`, `_` and `.`."
        )
    _check_targets(name, cluster)
    text = _read(file)
    document = tomlkit.parse(text)
    if name in document.get("clusters", {}):
        raise UsageError(
            f"there is a cluster {name} already in {file}",
            f"Edit it there, or `tow clusters remove {name}` first.",
        )
    text = _with_cluster(text, name, _said(cluster))
    check_config(check_text(text, file), file)
    return text


def set_default(file: str, name: str) -> None:
    """Make a cluster the one that is meant where none is named."""
    document = tomlkit.parse(_read(file))
    clusters = ["local", *document.get("clusters", {})]
    if name not in clusters:
        known = ", ".join(dict.fromkeys(clusters))
        raise NotFound(f"there is no cluster {name} in {file}", f"Clusters: {known}")
    if "default_cluster" in document or not document:
        document["default_cluster"] = name
        text = tomlkit.dumps(document)
    else:
        # Behind a table it would be a setting of that table.
        text = tomlkit.dumps({"default_cluster": name}) + "\n" + tomlkit.dumps(document)
    _save(file, text)


def _check_targets(name: str, cluster: MachinesCluster | QueueCluster) -> None:
    if isinstance(cluster, QueueCluster):
        split_target(cluster.host)
        return
    if not cluster.machines:
        raise UsageError(f"the cluster {name} needs at least one machine")
    for entry in cluster.entries():
        split_target(entry.ssh)


def _said(cluster: MachinesCluster | QueueCluster) -> dict[str, Any]:
    """Its settings, but for those that are as if nothing was said."""
    plain = to_builtins(cluster)
    said = [one.name for one in fields(cluster) if getattr(cluster, one.name) != _default(one)]
    return {"kind": cluster.kind} | {name: plain[name] for name in said}


def _default(setting: FieldInfo) -> Any:
    return setting.default if setting.default_factory is NODEFAULT else setting.default_factory()


def _with_cluster(text: str, name: str, cluster: dict[str, Any]) -> str:
    """The text and the new cluster behind it; or in its line, if clusters are written in one."""
    behind = tomlkit.dumps({"clusters": {name: cluster}})
    space = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    try:
        tomlkit.parse(text + space + behind)
        return text + space + behind
    except TOMLKitError:
        document = tomlkit.parse(text)
        in_line = tomlkit.inline_table()
        in_line.update(cluster)
        document["clusters"][name] = in_line
        return tomlkit.dumps(document)


def remove_cluster(file: str, name: str) -> None:
    """Take a cluster out of the file."""
    document = tomlkit.parse(_read(file))
    clusters = document.get("clusters", {})
    if name not in clusters:
        known = ", ".join(clusters) or "none"
        raise NotFound(f"there is no cluster {name} in {file}", f"Clusters there: {known}")
    if document.get("default_cluster") == name:
        raise UsageError(
            f"{name} is the default cluster", "Choose another first: tow clusters default NAME"
        )
    del clusters[name]
    _save(file, tomlkit.dumps(document))


def _read(file: str) -> str:
    # Whatever is wrong with the file already is better said before it is changed.
    read_file(file)
    try:
        with open(file, encoding="utf-8", newline="") as stream:
            return stream.read()
    except FileNotFoundError:
        return ""


def _save(file: str, text: str) -> None:
    check_text(text, file)
    # Behind a link (a dotfiles folder, say) is the file that is meant.
    target = os.path.realpath(file)
    temporary = f"{target}.new-{secrets.token_hex(4)}"
    try:
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        _write(temporary, text, _mode(target))
        os.replace(temporary, target)
    except OSError as error:
        _unlink_if_there(temporary)
        raise ConfigError(f"cannot write {file}: {error.strerror}") from None


def _mode(file: str) -> int:
    try:
        return stat.S_IMODE(os.stat(file).st_mode)
    except FileNotFoundError:
        return 0o600


def _write(file: str, text: str, mode: int) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="utf-8", newline="") as stream:
        os.fchmod(descriptor, mode)
        stream.write(text)
        stream.flush()
        os.fsync(descriptor)


def _unlink_if_there(file: str) -> None:
    try:
        os.unlink(file)
    except FileNotFoundError:
        pass
