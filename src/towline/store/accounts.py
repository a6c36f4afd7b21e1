"""Who there is on a team's server, as the store remembers it: accounts, groups, invitations."""

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

import msgspec

from towline.errors import Exists, Forbidden, NotFound, UsageError
from towline.model.principal import Account, AccountState

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Account).decode
Transaction = Callable[[], AbstractContextManager[None]]


class AccountRows:
    """The part of the store that knows accounts and their groups."""

    def __init__(
        self, db: sqlite3.Connection, reader: sqlite3.Connection, transaction: Transaction
    ) -> None:
        self._db = db
        self._reader = reader
        self._transaction = transaction

    # --- accounts ----------------------------------------------------------------------------

    def find(self, name: str) -> Account | None:
        return _found(self._reader, name)

    def all(self) -> list[Account]:
        rows = self._reader.execute("SELECT body FROM accounts ORDER BY name")
        return [_decode(body) for (body,) in rows]

    def add(self, account: Account, invitation: bytes = b"", again: bool = False) -> None:
        """Write a new account, and use up the invitation that it came with.

        A name that was taken once stays taken, unless an administrator gives it `again`.
        """
        with self._transaction():
            known = _found(self._db, account.name)
            if known is not None and not (again and known.state is AccountState.DELETED):
                raise Exists(f"there is an account {account.name} already")
            if invitation:
                self._use_up(invitation, account)
            self._write(account)

    def _use_up(self, invitation: bytes, account: Account) -> None:
        used = self._db.execute(
            "DELETE FROM invitations WHERE hash=? AND expires>? AND account IN ('', ?)",
            (invitation, account.created, account.name),
        )
        if not used.rowcount:
            raise Forbidden(
                "this invitation is not valid (any more)", "ask an administrator for another one"
            )

    def change(self, name: str, edit: Callable[[Account], Account]) -> Account:
        """Replace an account by what is made of it; somebody must be left who administers."""
        with self._transaction():
            before = _found(self._db, name)
            if before is None or before.state is AccountState.DELETED:
                raise NotFound(f"there is no account {name}")
            after = edit(before)
            self._write(after)
            if _administers(before) and not any(map(_administers, self._accounts())):
                raise UsageError(
                    f"{name} is the only administrator", "make somebody else one first"
                )
            if after.state is AccountState.DELETED:
                self._db.execute("DELETE FROM tokens WHERE account=?", (name,))
                self._db.execute("DELETE FROM memberships WHERE account=?", (name,))
        return after

    def _accounts(self) -> Iterable[Account]:
        rows = self._db.execute("SELECT body FROM accounts").fetchall()
        return [_decode(body) for (body,) in rows]

    def _write(self, account: Account) -> None:
        row = (account.name, _encode(account))
        self._db.execute("INSERT OR REPLACE INTO accounts VALUES (?,?)", row)

    # --- invitations -------------------------------------------------------------------------

    def add_invitation(self, digest: bytes, expires: float, account: str = "") -> None:
        """Let somebody register once; only as `account`, if that is given."""
        with self._transaction():
            row = (digest, expires, account)
            self._db.execute("INSERT OR REPLACE INTO invitations VALUES (?,?,?)", row)

    # --- groups ------------------------------------------------------------------------------

    def groups_of(self, account: str) -> frozenset[str]:
        rows = self._reader.execute("SELECT grp FROM memberships WHERE account=?", (account,))
        return frozenset(group for (group,) in rows)

    def members_of(self, group: str) -> list[str]:
        query = "SELECT account FROM memberships WHERE grp=? ORDER BY account"
        return [name for (name,) in self._reader.execute(query, (group,))]

    def groups(self) -> dict[str, str]:
        """Their titles, by name."""
        return dict(self._reader.execute("SELECT name, title FROM groups ORDER BY name"))

    def title_of(self, group: str) -> str:
        row = self._reader.execute("SELECT title FROM groups WHERE name=?", (group,)).fetchone()
        if row is None:
            raise no_group(group)
        title: str = row[0]
        return title

    def add_group(self, group: str, title: str) -> None:
        with self._transaction():
            if self._db.execute("SELECT 1 FROM groups WHERE name=?", (group,)).fetchone():
                raise Exists(f"there is a group {group} already")
            self._db.execute("INSERT INTO groups VALUES (?,?)", (group, title))

    def change_group(self, group: str, title: str) -> None:
        with self._transaction():
            changed = self._db.execute("UPDATE groups SET title=? WHERE name=?", (title, group))
            if not changed.rowcount:
                raise no_group(group)

    def forget_group(self, group: str) -> None:
        """Also from accounts and from what is shared: a later group of that name is another."""
        with self._transaction():
            if not self._db.execute("DELETE FROM groups WHERE name=?", (group,)).rowcount:
                raise no_group(group)
            self._db.execute("DELETE FROM memberships WHERE grp=?", (group,))
            for account in self._accounts():
                if group in account.autoshare:
                    left = tuple(one for one in account.autoshare if one != group)
                    self._write(msgspec.structs.replace(account, autoshare=left))

    def add_member(self, group: str, account: str) -> None:
        with self._transaction():
            if not self._db.execute("SELECT 1 FROM groups WHERE name=?", (group,)).fetchone():
                raise no_group(group)
            row = (account, group)
            self._db.execute("INSERT OR IGNORE INTO memberships VALUES (?,?)", row)

    def forget_member(self, group: str, account: str) -> None:
        with self._transaction():
            self._db.execute("DELETE FROM memberships WHERE grp=? AND account=?", (group, account))


def no_group(name: str) -> NotFound:
    return NotFound(f"there is no group {name}")


def _administers(account: Account) -> bool:
    return account.administrator and account.state is AccountState.ACTIVE


def _found(db: sqlite3.Connection, name: str) -> Account | None:
    row = db.execute("SELECT body FROM accounts WHERE name=?", (name,)).fetchone()
    return _decode(row[0]) if row else None
