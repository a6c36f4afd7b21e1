"""What an ssh client needs to reach the hosts: keys, known hosts and a configuration."""

from collections.abc import Mapping
from pathlib import Path

from . import disk, network
from .slot import command


def make_key(file: Path) -> None:
    command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", file.name, "-f", str(file))


def write_config(folder: Path, addresses: Mapping[str, str]) -> None:
    """Write `ssh_config` and `known_hosts`; BatchMode is left to whoever calls ssh."""
    public = {name: (folder / "keys" / f"{name}.pub").read_text() for name in addresses}
    (folder / "known_hosts").write_text("".join(f"{name} {key}" for name, key in public.items()))
    hosts = "".join(_host(name, address) for name, address in addresses.items())
    (folder / "ssh_config").write_text(hosts + _for_all(folder))


def _host(name: str, address: str) -> str:
    jump = f"  ProxyJump {network.GATEWAY}\n" if name == network.INNER else ""
    return f"Host {name}\n  HostName {address}\n  HostKeyAlias {name}\n{jump}"


def _for_all(folder: Path) -> str:
    # The default key exchange costs 100 ms of computing per login.
    return f"""\
Host *
  User {disk.USER}
  IdentityFile {folder}/keys/client
  IdentitiesOnly yes
  IdentityAgent none
  StrictHostKeyChecking yes
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile /dev/null
  ConnectTimeout 5
  ServerAliveInterval 5
  ServerAliveCountMax 2
  KexAlgorithms curve25519-sha256
"""
