"""The nodes of a team's server, names of their GPUs, limits, and what everybody has used."""

import sqlite3
from collections.abc import Callable, Iterable

import msgspec

from towline.errors import Exists, NotFound
from towline.model.team.node import TeamNode
from towline.model.team.rules import Share, UseLimits
from towline.store.accounts import Transaction

_encode = msgspec.json.Encoder().encode
_node = msgspec.json.Decoder(TeamNode).decode
_limits = msgspec.json.Decoder(UseLimits).decode

REMEMBER_USED = "INSERT OR REPLACE INTO used_shares VALUES (?,?,?)"


def used_row(share: Share) -> tuple[str, float, float]:
    return share.owner, share.used, share.at


class NodeRows:
    """The part of the store that knows nodes, and who may use how much."""

    def __init__(
        self, db: sqlite3.Connection, reader: sqlite3.Connection, transaction: Transaction
    ) -> None:
        self._db = db
        self._reader = reader
        self._transaction = transaction

    def all(self) -> dict[str, TeamNode]:
        rows = self._reader.execute("SELECT name, body FROM nodes ORDER BY name")
        return {name: _node(body) for name, body in rows}

    def add(self, node: TeamNode) -> None:
        with self._transaction():
            row = (node.name, _encode(node))
            if self._db.execute("SELECT 1 FROM nodes WHERE name=?", row[:1]).fetchone():
                raise already(node.name)
            self._db.execute("INSERT INTO nodes VALUES (?,?)", row)

    def change(self, name: str, edit: Callable[[TeamNode], TeamNode]) -> TeamNode:
        """Replace a node by what is made of it."""
        with self._transaction():
            row = self._db.execute("SELECT body FROM nodes WHERE name=?", (name,)).fetchone()
            if row is None:
                raise no_node(name)
            after = edit(_node(row[0]))
            self._db.execute("UPDATE nodes SET body=? WHERE name=?", (_encode(after), name))
        return after

    def forget(self, name: str) -> None:
        with self._transaction():
            if not self._db.execute("DELETE FROM nodes WHERE name=?", (name,)).rowcount:
                raise no_node(name)

    # --- names of GPUs -----------------------------------------------------------------------

    def aliases(self) -> dict[str, str]:
        return dict(self._reader.execute("SELECT name, model FROM aliases ORDER BY name"))

    def set_alias(self, name: str, model: str, new: bool) -> None:
        with self._transaction():
            known = self._db.execute("SELECT 1 FROM aliases WHERE name=?", (name,)).fetchone()
            if known and new:
                raise Exists(f"Alias already existing: {name}")
            if not known and not new:
                raise no_alias(name)
            self._db.execute("INSERT OR REPLACE INTO aliases VALUES (?,?)", (name, model))

    def forget_alias(self, name: str) -> None:
        with self._transaction():
            if not self._db.execute("DELETE FROM aliases WHERE name=?", (name,)).rowcount:
                raise no_alias(name)

    # --- limits, and what was used -----------------------------------------------------------

    def limits(self, of_groups: bool) -> dict[str, UseLimits]:
        query = "SELECT name, body FROM use_limits WHERE is_group=? ORDER BY name"
        return {name: _limits(body) for name, body in self._reader.execute(query, (of_groups,))}

    def set_limits(self, name: str, is_group: bool, limits: UseLimits) -> None:
        """What somebody may use at once; where it is without end, nothing is remembered."""
        with self._transaction():
            where = (is_group, name)
            self._db.execute("DELETE FROM use_limits WHERE is_group=? AND name=?", where)
            if limits:
                row = (*where, _encode(limits))
                self._db.execute("INSERT INTO use_limits VALUES (?,?,?)", row)

    def used(self) -> list[Share]:
        rows: Iterable[tuple[str, float, float]] = self._reader.execute("SELECT * FROM used_shares")
        return [Share(*row) for row in rows]


def already(name: str) -> Exists:
    return Exists(f"Node with same id already registered: {name}")


def no_node(name: str) -> NotFound:
    return NotFound(f"there is no node {name}")


def no_alias(name: str) -> NotFound:
    return NotFound(f"there is no alias {name}")
