"""Which project files the user trusts: remembered by path and by what they demand."""

import hashlib
import os
import secrets
import time
from collections.abc import Iterator
from typing import Protocol

import msgspec
from msgspec import Struct

from towline.config.project import Project
from towline.errors import NotTrusted
from towline.model.odd_text import keepable


class Trusts(Protocol):
    def __call__(self, project: Project) -> bool: ...


class TrustGrant(Struct, frozen=True):
    """One file as it was when the user trusted it."""

    file: str
    digest: str
    at: float


def nobody(project: Project) -> bool:
    return False


def anybody(project: Project) -> bool:
    return True


def check_trust(project: Project, trusts: Trusts) -> None:
    """Refuse a project's file that decides what runs where, unless the user trusts it."""
    if project.demands() and not trusts(project):
        raise NotTrusted(project.file, project.digest(), project.demands())


class Trusted:
    """The user's grants, a small file for each; the user alone can write in their folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, project: Project) -> bool:
        return os.path.exists(self._grant_file(project.file, project.digest()))

    def grant(self, project: Project) -> None:
        """Trust a file as it is now; changed, it will have to be trusted again."""
        file = keepable(os.path.realpath(project.file))
        grant = TrustGrant(file, project.digest(), time.time())
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        target = self._grant_file(project.file, project.digest())
        temporary = f"{target}.{secrets.token_hex(4)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(temporary, flags, 0o600), "wb") as stream:
            stream.write(msgspec.json.encode(grant))
        os.replace(temporary, target)

    def revoke(self, file: str) -> int:
        """Trust no version of this file any more; how many were trusted."""
        real = os.path.realpath(file)
        revoked = [grant for grant in self.grants() if grant.file == keepable(real)]
        for grant in revoked:
            os.unlink(self._grant_file(real, grant.digest))
        return len(revoked)

    def grants(self) -> list[TrustGrant]:
        return sorted(self._read(), key=lambda grant: grant.at)

    def _read(self) -> Iterator[TrustGrant]:
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return
        for name in names:
            try:
                with open(os.path.join(self.folder, name), "rb") as stream:
                    yield msgspec.json.decode(stream.read(), type=TrustGrant)
            except (OSError, msgspec.DecodeError):
                # Half written by one that was killed: under that name it grants nothing.
                continue

    def _grant_file(self, file: str, digest: str) -> str:
        name = os.fsencode(os.path.realpath(file)) + b"\0" + digest.encode()
        return os.path.join(self.folder, hashlib.sha256(name).hexdigest()[:40])
