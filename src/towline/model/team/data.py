"""The data of a team: which domains there are, and who may do what there."""

import re
from collections.abc import Iterable
from enum import IntEnum, StrEnum

from msgspec import Struct

from towline.errors import NotFound, UsageError
from towline.model.principal import NOBODY, Principal

#: Also of groups; whatever else a name is, it is no path.
_NAME = re.compile(r"[a-z][a-z0-9]{0,31}")


class DomainKind(StrEnum):
    #: For everybody to read; changed by whoever works on the server's own machine.
    SHARED = "shared"
    GROUP = "group"
    USER = "user"


class DataAccess(IntEnum):
    """What somebody may do; more includes less."""

    NONE = 0
    READ = 1
    WRITE = 2


class Relation(StrEnum):
    """What somebody is to a domain, the first that holds."""

    NOBODY = "nobody"
    ADMINISTRATOR = "administrator"
    OWNER = "owner"
    MEMBER = "member"
    STRANGER = "stranger"


_NO, _R, _W = DataAccess.NONE, DataAccess.READ, DataAccess.WRITE
#: Who may do what: every kind, and everybody there can be.
ACCESS: dict[tuple[DomainKind, Relation], DataAccess] = {
    (DomainKind.SHARED, Relation.NOBODY): _NO,
    (DomainKind.SHARED, Relation.ADMINISTRATOR): _R,
    (DomainKind.SHARED, Relation.OWNER): _R,
    (DomainKind.SHARED, Relation.MEMBER): _R,
    (DomainKind.SHARED, Relation.STRANGER): _R,
    (DomainKind.GROUP, Relation.NOBODY): _NO,
    (DomainKind.GROUP, Relation.ADMINISTRATOR): _W,
    (DomainKind.GROUP, Relation.OWNER): _NO,
    (DomainKind.GROUP, Relation.MEMBER): _W,
    (DomainKind.GROUP, Relation.STRANGER): _NO,
    (DomainKind.USER, Relation.NOBODY): _NO,
    (DomainKind.USER, Relation.ADMINISTRATOR): _W,
    (DomainKind.USER, Relation.OWNER): _W,
    (DomainKind.USER, Relation.MEMBER): _NO,
    (DomainKind.USER, Relation.STRANGER): _NO,
}
#: Where each kind is below the root of the data.
_FOLDERS = {DomainKind.SHARED: "shared", DomainKind.GROUP: "groups", DomainKind.USER: "home"}


class DataDomain(Struct, frozen=True):
    """`shared`, the data of a group, or that of a user."""

    kind: DomainKind
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else str(self.kind)

    @property
    def folder(self) -> str:
        """Where it is below the root of the data."""
        top = _FOLDERS[self.kind]
        return f"{top}/{self.name}" if self.name else top


SHARED = DataDomain(DomainKind.SHARED)


def domain_of(typed: str, who: Principal) -> DataDomain:
    """What is meant by `shared`, `home`, `group:staff`, `user:anna` or `user:~`."""
    if typed == "shared":
        return SHARED
    if typed in ("home", "user:~"):
        return DataDomain(DomainKind.USER, who.name)
    kind, _, name = typed.partition(":")
    if kind not in (DomainKind.GROUP, DomainKind.USER):
        raise NotFound(
            f"there is no data called {typed[:100]!r}",
            "there are: shared, home, group:NAME and user:NAME",
        )
    if not _NAME.fullmatch(name):
        raise UsageError(f"{typed[:100]!r} is not written like {kind}:name")
    return DataDomain(DomainKind(kind), name)


def relation(who: Principal, domain: DataDomain) -> Relation:
    """What somebody is to a domain."""
    if who == NOBODY:
        return Relation.NOBODY
    if who.administrator:
        return Relation.ADMINISTRATOR
    if domain.kind is DomainKind.USER and domain.name == who.name:
        return Relation.OWNER
    if domain.kind is DomainKind.GROUP and domain.name in who.groups:
        return Relation.MEMBER
    return Relation.STRANGER


def access(who: Principal, domain: DataDomain) -> DataAccess:
    """What somebody may do there."""
    return ACCESS[domain.kind, relation(who, domain)]


def domains_of(name: str, groups: Iterable[str]) -> list[DataDomain]:
    """What a member has: what is shared, the data of their groups, their own."""
    found = [DataDomain(DomainKind.GROUP, group) for group in sorted(groups)]
    return [SHARED, *found, DataDomain(DomainKind.USER, name)]


def variable(domain: DataDomain) -> str:
    """The variable by which a job knows where it is."""
    if domain.kind is DomainKind.GROUP:
        return f"{domain.name.upper()}_GROUP_DIR"
    return "SHARED_DIR" if domain.kind is DomainKind.SHARED else "USER_DIR"


def data_variables(root: str, name: str, groups: Iterable[str]) -> dict[str, str]:
    """The variables of a member's job where the data is at `root`."""
    top = root.rstrip("/")
    return {variable(one): f"{top}/{one.folder}" for one in domains_of(name, groups)}
