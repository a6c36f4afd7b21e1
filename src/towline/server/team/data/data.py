"""The data of a team as people reach it: who asks comes first, and is judged before anything."""

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, ParamSpec, TypeVar

from towline.api.team import DataArrival, DataDomainView, DataListing, DataStat
from towline.errors import ConfigError, Forbidden, NotFound
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
_THREADS = 16
P = ParamSpec("P")
T = TypeVar("T")


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
        # Of its own: long files and slow disks must not keep the Engine from writing.
        self._threads = ThreadPoolExecutor(_THREADS, "data")
        #: Those that are known to have a folder: a slow disk is not asked for every job.
        self._made: set[DataDomain] = set()
        #: The name of a file in the root, and what is in it: whoever finds it sees this very root.
        self.mark = ("", "")

    async def run(self, do: Callable[P, T], *args: P.args, **more: P.kwargs) -> T:
        """Do what blocks, in a thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(do, *args, **more))

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def prepare(self) -> None:
        """Make the root, for nobody else to look into, and what is in it."""
        try:
            self._make()
        except OSError as error:
            raise ConfigError(
                f"the team's data cannot be in {self.root}: {error.strerror}"
            ) from None

    def _make(self) -> None:
        with contextlib.suppress(FileExistsError):
            os.makedirs(self.root, 0o700)
        if os.stat(self.root).st_mode & 0o077:
            # It is not for us to close a folder that may be somebody else's.
            raise ConfigError(
                f"the team's data is to be in {self.root}, which other accounts can look into",
                f"if it is meant for that: chmod 700 {self.root}",
            )
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
        return DataTop(domain, self._path(domain), self._quota(domain), has)

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

    def make(self, domain: DataDomain) -> None:
        """Make the folder of a domain, for a job that will look for it."""
        if domain not in self._made:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._path(domain), 0o755 if domain is SHARED else 0o700)
            self._made.add(domain)

    def _path(self, domain: DataDomain) -> str:
        return os.path.join(self.root, domain.folder)

    def retire(self, domain: DataDomain) -> None:
        """Put aside what an account or a group had that is no more: another one of this name must
        not find it."""
        self._made.discard(domain)
        top = self._path(domain)
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
