"""Make the folder of a team's server, invite people, and copy its store while it runs."""

import os
import sqlite3
import time
from contextlib import closing
from urllib.parse import urlsplit

import tomlkit
from msgspec import Struct

from towline.config.paths import make_folders
from towline.errors import EngineError, Exists, UsageError
from towline.model.principal import Account, check_name
from towline.server.team.certificate import make_certificate
from towline.server.team.passwords import digest_of, hash_password, new_secret
from towline.server.team.settings import Registration, TeamPaths, TeamSettings, read_settings
from towline.store.store import Store

_DAY_S = 86400.0


class NewServer(Struct, frozen=True):
    """What is to be known of a server before it is there."""

    url: str
    host: str
    port: int
    administrator: str
    registration: Registration = Registration.INVITATION
    #: Files of a certificate and its key; none: they are made.
    certificate: str = ""
    key: str = ""


def set_up(folder: str, new: NewServer, password: str) -> TeamPaths:
    """Make everything that a server needs, with its first administrator."""
    paths = TeamPaths(folder)
    if os.path.exists(paths.settings_file):
        raise Exists(f"{paths.home} is the folder of a server already")
    check_name(new.administrator)
    hashed = hash_password(password)
    parts = urlsplit(new.url)
    if parts.scheme != "https" or not parts.hostname:
        raise UsageError(f"{new.url!r} is not the address of a server", "https://HOST:PORT")
    if bool(new.certificate) != bool(new.key):
        raise UsageError("a certificate needs its key", "--certificate FILE --key FILE")
    make_folders(paths)
    for made in (paths.results, os.path.dirname(paths.key)):
        os.makedirs(made, 0o700, exist_ok=True)
    if not new.certificate:
        make_certificate(parts.hostname, paths.certificate, paths.key)
    store = Store(paths.store_file)
    try:
        first = Account(new.administrator, password=hashed, administrator=True, created=time.time())
        store.accounts.add(first)
    finally:
        store.close()
    write_connect_file(paths, new.url, new.certificate or paths.certificate)
    _write_settings(paths, new)
    return paths


def _write_settings(paths: TeamPaths, new: NewServer) -> None:
    """Last: with this file it is the folder of a server."""
    document = tomlkit.document()
    document.add(tomlkit.comment("A team's server; docs/server.md describes every setting."))
    document["url"] = new.url
    document["host"] = new.host
    document["port"] = new.port
    document["registration"] = new.registration.value
    if new.certificate:
        document["certificate"] = os.path.abspath(new.certificate)
        document["key"] = os.path.abspath(new.key)
    document.add(tomlkit.comment('Clusters whose jobs have no walls between them: "none".'))
    document["isolation"] = ""
    with open(paths.settings_file, "x", encoding="utf-8") as file:
        file.write(tomlkit.dumps(document))


def write_connect_file(paths: TeamPaths, url: str, certificate: str) -> None:
    """The address, then the certificate to trust: no secret is in it."""
    with open(certificate, encoding="ascii") as file:
        pem = file.read()
    with open(paths.connect_file, "w", encoding="utf-8") as file:
        file.write(f"{url}\n{pem}")


def certificate_files(paths: TeamPaths, settings: TeamSettings) -> tuple[str, str]:
    if settings.certificate:
        return settings.certificate, settings.key
    return paths.certificate, paths.key


def invite(folder: str, days: float, name: str) -> str:
    """A code with which one person can register."""
    paths = TeamPaths(folder)
    read_settings(paths)
    if name:
        check_name(name)
    code = new_secret()
    store = Store(paths.store_file)
    try:
        store.accounts.add_invitation(digest_of(code), time.time() + days * _DAY_S, name)
    finally:
        store.close()
    return code


def back_up(folder: str, file: str) -> None:
    """Copy the store into a new file, as it is at one moment, also while the server runs."""
    paths = TeamPaths(folder)
    read_settings(paths)
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        raise Exists(f"{file} is there already", "name a new file") from None
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}") from None
    with closing(sqlite3.connect(paths.store_file)) as source, closing(sqlite3.connect(file)) as to:
        source.backup(to)


def restore(folder: str, file: str) -> str:
    """Put a copy in place of the store of a server that does not run; where the old one went."""
    from towline.config.lock import leave, take

    paths = TeamPaths(folder)
    read_settings(paths)
    if not os.path.isfile(file):
        raise UsageError(f"there is no file {file}")
    lock = take(paths)
    if lock is None:
        raise EngineError(f"the server of {paths.home} runs", "stop it first")
    try:
        fresh = f"{paths.store_file}.new"
        with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(fresh)) as to:
            os.chmod(fresh, 0o600)
            if source.execute("PRAGMA quick_check").fetchone()[0] != "ok":
                raise UsageError(f"{file} is damaged")
            source.backup(to)
        before = f"{paths.store_file}.{time.strftime('%Y%m%d-%H%M%S')}"
        with closing(sqlite3.connect(paths.store_file)) as old:
            old.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        os.rename(paths.store_file, before)
        for part in ("-wal", "-shm"):
            if os.path.exists(paths.store_file + part):
                os.unlink(paths.store_file + part)
        os.rename(fresh, paths.store_file)
    except sqlite3.DatabaseError as error:
        raise UsageError(f"{file} is not a copy of a store: {error}") from None
    finally:
        leave(lock)
        os.close(lock)
    return before
