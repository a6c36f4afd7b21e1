"""The tokens of a team's server, and which contents each account has sent: hashes, both."""

import sqlite3
from collections.abc import Iterable

from towline.errors import NotFound
from towline.model.principal import Token
from towline.store.accounts import Transaction

_FIELDS = "id, account, machine, created, expires, used"
#: Values in one statement.
_MOST = 500


class TokenRows:
    """The part of the store that knows who is signed in."""

    def __init__(
        self, db: sqlite3.Connection, reader: sqlite3.Connection, transaction: Transaction
    ) -> None:
        self._db = db
        self._reader = reader
        self._transaction = transaction

    def find(self, digest: bytes) -> Token | None:
        query = f"SELECT {_FIELDS} FROM tokens WHERE hash=?"
        row = self._reader.execute(query, (digest,)).fetchone()
        return Token(*row) if row else None

    def of(self, account: str) -> list[Token]:
        query = f"SELECT {_FIELDS} FROM tokens WHERE account=? ORDER BY created"
        return [Token(*row) for row in self._reader.execute(query, (account,))]

    def add(self, digest: bytes, token: Token) -> None:
        """Write a new one; those that expired go."""
        with self._transaction():
            self._db.execute("DELETE FROM tokens WHERE expires<?", (token.created,))
            row = (digest, *(getattr(token, name) for name in _FIELDS.split(", ")))
            self._db.execute("INSERT INTO tokens VALUES (?,?,?,?,?,?,?)", row)

    def note_use(self, digest: bytes, at: float) -> None:
        with self._transaction():
            self._db.execute("UPDATE tokens SET used=? WHERE hash=?", (at, digest))

    def forget(self, token_id: str, account: str = "") -> None:
        """End one of an account's, or anybody's where none is named."""
        with self._transaction():
            ended = self._db.execute(
                "DELETE FROM tokens WHERE id=? AND ? IN ('', account)", (token_id, account)
            )
            if not ended.rowcount:
                raise NotFound(f"there is no token {token_id}")

    def forget_all(self, account: str, but: str = "") -> None:
        with self._transaction():
            self._db.execute("DELETE FROM tokens WHERE account=? AND id!=?", (account, but))


class ContentRows:
    """Who has sent which contents: nobody is given others' for merely knowing their hashes."""

    def __init__(
        self, db: sqlite3.Connection, reader: sqlite3.Connection, transaction: Transaction
    ) -> None:
        self._db = db
        self._reader = reader
        self._transaction = transaction

    def add(self, account: str, hashes: Iterable[str]) -> None:
        rows = [(account, bytes.fromhex(one)) for one in hashes]
        with self._transaction():
            self._db.executemany("INSERT OR IGNORE INTO contents VALUES (?,?)", rows)

    def sent(self, account: str, hashes: Iterable[str]) -> set[str]:
        """Which of these it has sent at some time; whether they are still here is another thing."""
        wanted, found = [bytes.fromhex(one) for one in hashes], set()
        for start in range(0, len(wanted), _MOST):
            some = wanted[start : start + _MOST]
            marks = ",".join("?" * len(some))
            query = f"SELECT hash FROM contents WHERE account=? AND hash IN ({marks})"
            found |= {row[0].hex() for row in self._reader.execute(query, (account, *some))}
        return found
