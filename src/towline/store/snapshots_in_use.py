"""Which snapshots the remembered jobs use."""

import sqlite3
from contextlib import closing

_IN_USE = (
    "SELECT DISTINCT json_extract(CAST(spec AS TEXT), '$.snapshot'), "
    "json_extract(CAST(spec AS TEXT), '$.keep') FROM jobs "
    "UNION SELECT json_extract(CAST(body AS TEXT), '$.base.snapshot'), "
    "json_extract(CAST(body AS TEXT), '$.base.keep') FROM batches"
)


def snapshots_in_use(path: str) -> set[str]:
    """The ids of all snapshots in the store at `path`; safe to call from any thread."""
    # A connection of its own: reading every job takes a while, and nobody shall wait for it.
    with closing(sqlite3.connect(path, timeout=30)) as db:
        db.execute("PRAGMA query_only=1")
        return {name for row in db.execute(_IN_USE) for name in row if name}
