"""The data of a team as people reach it: who asks comes first, and is judged before anything."""

import contextlib
import os
import secrets
import time
from typing import NamedTuple

from towline.api.team import DataArrival, DataDomainView, DataListing, DataStat
from towline.errors import Forbidden, NotFound
from towline.model.principal import AccountState, Principal
from towline.model.team.data import (
    SHARED,
    DataAccess,
    DataDomain,
    DomainKind,
    access,
    domain_of,
    domains_of,
)
from towline.server.team.data import tree
from towline.server.team.data.beneath import names_of, told
from towline.server.team.data.uploads import ComingData, Uploads, WantedData
from towline.server.team.data.use import DataUse
from towline.store.accounts import AccountRows, no_group
from towline.store.nodes import NodeRows

#: Below the root: the data of accounts and groups that are no more, for administrators to look at.
REMOVED = "removed"
MARK = ".mark-"


class DataTop(NamedTuple):
    """A domain that somebody was let into."""

    domain: DataDomain
    folder: str
    #: How many bytes it may have; 0: no limit.
    quota: int
    access: DataAccess


class DataPlace(NamedTuple):
    """A path of such a domain, and as it was typed."""

    top: DataTop
    names: list[str]
    path: str


class TeamData:
    """Every domain there is, and who is let in."""

    def __init__(self, root: str, accounts: AccountRows, nodes: NodeRows) -> None:
        self.root = root
        self._accounts = accounts
        self._nodes = nodes
        self.files = DataFiles()
        #: The name of a file in the root, and what is in it: whoever finds it sees this very root.
        self.mark = ("", "")

    def prepare(self) -> None:
        """Make the root, for nobody else to look into, and what is in it."""
        os.makedirs(self.root, 0o700, exist_ok=True)
        os.chmod(self.root, 0o700)
        for name in (SHARED.folder, "groups", "home"):
            with contextlib.suppress(FileExistsError):
                os.mkdir(os.path.join(self.root, name), 0o755)
        self.mark = _marked(self.root)

    # --- whose it is -------------------------------------------------------------------------

    def at(self, who: Principal, typed: str, path: str, need: DataAccess) -> "DataPlace":
        """A path of a domain, if whoever asks may do that there; nothing else leads to files."""
        return DataPlace(self._judged(who, domain_of(typed, who), need), names_of(path), path)

    def domains(self, who: Principal) -> list["DataTop"]:
        """What somebody has."""
        return [
            self._judged(who, domain, DataAccess.READ)
            for domain in domains_of(who.name, who.groups)
        ]

    def _judged(self, who: Principal, domain: DataDomain, need: DataAccess) -> "DataTop":
        has = access(who, domain)
        if has is DataAccess.READ and need is DataAccess.WRITE:
            raise Forbidden(
                f"{domain} is read-only",
                "whoever works on the server's own machine changes what is in it",
            )
        if has < need:
            raise Forbidden(f"the data of {domain} is not for {who.name or 'strangers'}")
        self._check_there(domain)
        return DataTop(domain, self.folder(domain), self._quota(domain), has)

    def _quota(self, domain: DataDomain) -> int:
        if domain.kind is DomainKind.SHARED:
            return 0
        limits = self._nodes.limits(domain.kind is DomainKind.GROUP).get(domain.name)
        return limits.data_bytes if limits is not None else 0

    def _check_there(self, domain: DataDomain) -> None:
        if domain.kind is DomainKind.GROUP and domain.name not in self._accounts.groups():
            raise no_group(domain.name)
        if domain.kind is DomainKind.USER:
            account = self._accounts.find(domain.name)
            if account is None or account.state is AccountState.DELETED:
                raise NotFound(f"there is no account {domain.name}")

    def folder(self, domain: DataDomain) -> str:
        """Where a domain is; made when it is first asked for."""
        top = os.path.join(self.root, domain.folder)
        with contextlib.suppress(FileExistsError):
            os.mkdir(top, 0o755 if domain is SHARED else 0o700)
        return top

    def retire(self, domain: DataDomain) -> None:
        """Put aside what an account or a group had that is no more: another one of this name must
        not find it."""
        top = os.path.join(self.root, domain.folder)
        aside = os.path.join(self.root, REMOVED)
        os.makedirs(aside, 0o700, exist_ok=True)
        when = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        name = f"{domain.kind}-{domain.name}-{when}-{secrets.token_hex(2)}"
        with contextlib.suppress(FileNotFoundError):
            os.rename(top, os.path.join(aside, name))


def _marked(root: str) -> tuple[str, str]:
    """The mark of a root, which is made with it and stays."""
    known = [name for name in os.listdir(root) if name.startswith(MARK)]
    name = known[0] if known else MARK + secrets.token_hex(16)
    path = os.path.join(root, name)
    if not known:
        with open(path, "x", opener=lambda at, flags: os.open(at, flags, 0o600)) as file:
            file.write(secrets.token_hex(16))
            file.flush()
            os.fsync(file.fileno())
    with open(path) as file:
        return name, file.read()


class DataFiles:
    """What is done with files of places that somebody was let into; it blocks."""

    def __init__(self) -> None:
        self._use = DataUse()
        self._uploads = Uploads(self._use)

    def view(self, top: DataTop) -> DataDomainView:
        return {
            "domain": str(top.domain),
            "writable": top.access is DataAccess.WRITE,
            "bytes": self._use.used(top.domain, top.folder),
            "quota": top.quota,
        }

    def entries(self, at: DataPlace, after: str) -> DataListing:
        with told(at.path):
            found, more = tree.entries(at.top.folder, at.names, after)
            return {"entries": found, "more": more}

    def stat(self, at: DataPlace, hashed: bool) -> DataStat:
        with told(at.path):
            return tree.described(at.top.folder, at.names, hashed)

    def open(self, at: DataPlace, known: str) -> tree.OpenedData:
        """A file to be read; whoever asks closes it. `known` is the version that they know."""
        with told(at.path):
            return tree.opened(at.top.folder, at.names, known)

    def make_folder(self, at: DataPlace) -> None:
        with told(at.path):
            tree.make_folder(at.top.folder, at.names)

    def move(self, at: DataPlace, to: DataPlace) -> None:
        """Within one domain."""
        with told(at.path):
            self._use.changed(at.top.domain, -tree.move(at.top.folder, at.names, to.names))

    def delete(self, at: DataPlace) -> None:
        with told(at.path):
            self._use.changed(at.top.domain, -tree.delete(at.top.folder, at.names))

    def begin(self, at: DataPlace, coming: ComingData) -> DataArrival:
        """Say how much of a file is here already, and that there is room for the rest."""
        with told(at.path):
            return self._uploads.begin(_wanted(at, coming))

    def take(self, at: DataPlace, coming: ComingData, offset: int, data: bytes) -> DataArrival:
        """Take the next piece of a file."""
        with told(at.path):
            return self._uploads.take(_wanted(at, coming), offset, data)


def _wanted(at: DataPlace, coming: ComingData) -> WantedData:
    return WantedData(at.top.domain, at.top.folder, at.top.quota, at.names, coming)
