"""Who asks: every call of the Engine's API has one. On a team's server it is an account."""

import re
from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from towline.errors import UsageError

#: Also of nodes and of short names of GPUs: any of them may become part of a variable's name.
_NAME = re.compile(r"[a-z][a-z0-9]{0,31}")
_GROUP = re.compile(r"[a-z]{1,32}")


class Principal(Struct, frozen=True):
    """A person, or a program that acts for one."""

    name: str
    groups: frozenset[str] = frozenset()
    #: May do everything, to everybody's jobs: on a laptop, whoever the Engine belongs to.
    administrator: bool = False
    #: Is told what others run: titles, states and the like, nothing that is in it.
    hears_of_others: bool = False

    @property
    def sees(self) -> str:
        """Whose jobs and batches it sees; empty: everybody's."""
        return "" if self.administrator else self.name

    def owns(self, owner: str) -> bool:
        """Whether what belongs to `owner` is this one's to look at and to change."""
        return self.administrator or self.name == owner

    def shares(self, groups: Iterable[str]) -> bool:
        """Whether it is in one of these groups."""
        return not self.groups.isdisjoint(groups)


#: Who has not said who it is; no account has this name.
NOBODY = Principal("")


class AccountState(StrEnum):
    ACTIVE = "active"
    #: Registered, and nobody has said yet that it may be used.
    PENDING = "pending"
    #: Its name stays taken: its jobs are still there.
    DELETED = "deleted"


class Account(Struct, frozen=True):
    """A person of the team."""

    name: str
    fullname: str = ""
    email: str = ""
    #: As argon2 writes it.
    password: str = ""
    administrator: bool = False
    state: AccountState = AccountState.ACTIVE
    #: New jobs are shared with these groups.
    autoshare: tuple[str, ...] = ()
    created: float = 0.0

    def __repr__(self) -> str:
        return f"Account({self.name!r}, {self.state})"


class Token(Struct, frozen=True):
    """What a machine shows in place of a password; only its hash is remembered."""

    id: str
    account: str
    machine: str
    created: float
    expires: float
    used: float


def check_name(name: str, what: str = "user") -> str:
    """A name that an account, a node or an alias can have."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"Wrong {what} id format", "a lower-case letter, then letters and digits")
    return name


def check_group(name: str) -> str:
    if not _GROUP.fullmatch(name):
        raise UsageError("Wrong group id format", "lower-case letters only")
    return name
