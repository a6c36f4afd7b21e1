"""The shape of the store, as numbered steps. Never edit a step that was released: add one."""

import sqlite3

from towline.store import older

MIGRATIONS: tuple[str, ...] = (
    # 1: the first store
    """
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE jobs (
        id INTEGER PRIMARY KEY,
        owner TEXT NOT NULL,
        cluster TEXT NOT NULL,
        title TEXT NOT NULL,
        state TEXT NOT NULL,
        submitted REAL NOT NULL,
        started REAL,
        ended REAL,
        exit_code INTEGER,
        reason TEXT NOT NULL DEFAULT '',
        failures INTEGER NOT NULL DEFAULT 0,
        stop_asked INTEGER NOT NULL DEFAULT 0,
        spec BLOB NOT NULL,
        attempt BLOB,
        avoid TEXT NOT NULL DEFAULT '[]'
    );
    CREATE INDEX jobs_active ON jobs (state) WHERE ended IS NULL;
    CREATE TABLE attempts (
        job INTEGER NOT NULL,
        number INTEGER NOT NULL,
        body BLOB NOT NULL,
        PRIMARY KEY (job, number)
    ) WITHOUT ROWID;
    CREATE TABLE events (
        seq INTEGER PRIMARY KEY,
        at REAL NOT NULL,
        job INTEGER NOT NULL,
        text TEXT NOT NULL
    );
    CREATE INDEX events_of_job ON events (job);
    CREATE TABLE submissions (
        key TEXT PRIMARY KEY,
        first INTEGER NOT NULL,
        count INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE environments (hash TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE clusters (name TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE machines (name TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE forwards (
        local INTEGER PRIMARY KEY,
        job INTEGER NOT NULL,
        port INTEGER NOT NULL
    );
    """,
    # 2: results come home
    """
    ALTER TABLE jobs ADD COLUMN results TEXT NOT NULL DEFAULT '';
    CREATE INDEX jobs_with_results_wanted ON jobs (id) WHERE results = 'wanted';
    """,
    # 3: batches; an event says which state it led to
    """
    CREATE TABLE batches (
        name TEXT PRIMARY KEY,
        first INTEGER NOT NULL,
        count INTEGER NOT NULL,
        body BLOB NOT NULL
    ) WITHOUT ROWID;
    ALTER TABLE jobs ADD COLUMN batch TEXT NOT NULL DEFAULT '';
    CREATE INDEX jobs_alone ON jobs (id) WHERE batch = '';
    ALTER TABLE events ADD COLUMN state TEXT NOT NULL DEFAULT '';
    """,
    # 4: each service of a job has a port here
    """
    CREATE TABLE services (
        job INTEGER NOT NULL,
        name TEXT NOT NULL,
        local INTEGER NOT NULL,
        PRIMARY KEY (job, name)
    ) WITHOUT ROWID;
    """,
    # 5: what was brought home of a job, to tell it from what a person made of it
    """
    CREATE TABLE brought (job INTEGER PRIMARY KEY, body BLOB NOT NULL);
    """,
    # 6: attempts that were given up, and whose machines still owe their word
    """
    ALTER TABLE attempts ADD COLUMN given_up INTEGER NOT NULL DEFAULT 0;
    CREATE INDEX attempts_given_up ON attempts (job) WHERE given_up;
    """,
    # 7: the journal: typed events, of which every row can be made again
    """
    CREATE TABLE journal (
        seq INTEGER PRIMARY KEY,
        at REAL NOT NULL,
        kind TEXT NOT NULL,
        owner TEXT NOT NULL,
        job INTEGER NOT NULL,
        batch TEXT NOT NULL,
        attempt INTEGER NOT NULL,
        machine TEXT NOT NULL,
        data BLOB NOT NULL
    );
    INSERT INTO journal
    SELECT e.seq, e.at,
        CASE
            WHEN e.state = 'home' THEN 'home_remark'
            WHEN e.state IN ('done', 'failed', 'stopped', 'lost') THEN 'ended'
            WHEN e.state = 'running' THEN 'running'
            WHEN e.state = 'starting' THEN 'placed'
            WHEN e.state = 'remark' THEN 'remark'
            WHEN e.state = 'queued' AND e.text = 'submitted' THEN 'submitted'
            WHEN e.state = 'queued' THEN 'requeued'
            WHEN e.text LIKE 'cleaned up: %' THEN 'cleaned'
            ELSE 'note'
        END,
        coalesce(j.owner, ''), e.job, coalesce(j.batch, ''), 0, '',
        CAST(json_object('text', e.text) AS BLOB)
    FROM events e LEFT JOIN jobs j ON j.id = e.job;
    INSERT INTO journal
    SELECT (SELECT coalesce(max(seq), 0) FROM events) + row_number() OVER (ORDER BY id),
        coalesce(ended, started, submitted), 'imported', owner, id, batch,
        coalesce(json_extract(CAST(attempt AS TEXT), '$.number'), 0), '',
        CAST(json_object(
            'state', state, 'submitted', submitted, 'started', started, 'ended', ended,
            'exit_code', exit_code, 'reason', reason, 'failures', failures,
            'stop_asked', json(CASE WHEN stop_asked THEN 'true' ELSE 'false' END),
            'results', results, 'avoid', json(avoid), 'attempt', json(CAST(attempt AS TEXT))
        ) AS BLOB)
    FROM jobs;
    DROP TABLE events;
    CREATE INDEX journal_of_job ON journal (job);
    """,
    # 8: where results stand is data, not a sentence; the same in the journal
    """
    DROP INDEX jobs_with_results_wanted;
    ALTER TABLE jobs ADD COLUMN results_path TEXT NOT NULL DEFAULT '';
    ALTER TABLE jobs ADD COLUMN results_why TEXT NOT NULL DEFAULT '';
    UPDATE jobs SET
        results = results_part(results, 'kind'),
        results_path = results_part(results, 'path'),
        results_why = results_part(results, 'why')
    WHERE results != '';
    CREATE INDEX jobs_with_results_pending ON jobs (id) WHERE results = 'pending';
    UPDATE journal SET data = event_as_data(data) WHERE instr(data, '"results":"');
    """,
    # 9: why jobs wait, or ended as they did, is data as well
    """
    UPDATE jobs SET reason = reason_as_data(reason) WHERE reason != '';
    UPDATE journal SET data = event_as_data(data) WHERE instr(data, '"reason":"');
    """,
    # 10: chains: which jobs were skipped is found quickly
    """
    CREATE INDEX jobs_skipped ON jobs (id) WHERE state = 'skipped';
    """,
    # 11: what jobs used over their lives
    """
    CREATE TABLE samples (
        job INTEGER NOT NULL,
        at REAL NOT NULL,
        body BLOB NOT NULL,
        PRIMARY KEY (job, at)
    ) WITHOUT ROWID;
    """,
    # 12: keys of submissions and names of batches belong to their owners
    """
    CREATE TABLE keys (
        owner TEXT NOT NULL,
        key TEXT NOT NULL,
        first INTEGER NOT NULL,
        count INTEGER NOT NULL,
        PRIMARY KEY (owner, key)
    ) WITHOUT ROWID;
    INSERT INTO keys
    SELECT coalesce(
        (SELECT owner FROM jobs WHERE id = s.first),
        (SELECT owner FROM jobs ORDER BY id DESC LIMIT 1),
        ''
    ), s.key, s.first, s.count FROM submissions s;
    DROP TABLE submissions;
    CREATE TABLE owned_batches (
        owner TEXT NOT NULL,
        name TEXT NOT NULL,
        first INTEGER NOT NULL,
        count INTEGER NOT NULL,
        body BLOB NOT NULL,
        PRIMARY KEY (owner, name)
    ) WITHOUT ROWID;
    INSERT INTO owned_batches
    SELECT coalesce(
        (SELECT owner FROM jobs WHERE id = b.first),
        (SELECT owner FROM jobs ORDER BY id DESC LIMIT 1),
        ''
    ), b.name, b.first, b.count, b.body FROM batches b;
    DROP TABLE batches;
    ALTER TABLE owned_batches RENAME TO batches;
    """,
    # 13: a team's server: who there is, who is signed in, and what is shared with whom
    """
    CREATE TABLE accounts (name TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE groups (name TEXT PRIMARY KEY, title TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE memberships (
        account TEXT NOT NULL,
        grp TEXT NOT NULL,
        PRIMARY KEY (account, grp)
    ) WITHOUT ROWID;
    CREATE TABLE tokens (
        hash BLOB PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        account TEXT NOT NULL,
        machine TEXT NOT NULL,
        created REAL NOT NULL,
        expires REAL NOT NULL,
        used REAL NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX tokens_of_account ON tokens (account);
    CREATE TABLE invitations (
        hash BLOB PRIMARY KEY,
        expires REAL NOT NULL,
        account TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE shares (unit INTEGER PRIMARY KEY, groups TEXT NOT NULL);
    CREATE TABLE contents (
        account TEXT NOT NULL,
        hash BLOB NOT NULL,
        PRIMARY KEY (account, hash)
    ) WITHOUT ROWID;
    """,
    # 14: its nodes, names of their GPUs, limits, and what everybody has used
    """
    CREATE TABLE nodes (name TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE aliases (name TEXT PRIMARY KEY, model TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE use_limits (
        is_group INTEGER NOT NULL,
        name TEXT NOT NULL,
        body BLOB NOT NULL,
        PRIMARY KEY (is_group, name)
    ) WITHOUT ROWID;
    CREATE TABLE used_shares (
        owner TEXT PRIMARY KEY,
        used REAL NOT NULL,
        at REAL NOT NULL
    ) WITHOUT ROWID;
    """,
)


def schema_version(db: sqlite3.Connection) -> int:
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    return version


def migrate(db: sqlite3.Connection) -> None:
    """Bring an older store up to date, each step in a transaction of its own."""
    older.register(db)
    for number in range(schema_version(db) + 1, len(MIGRATIONS) + 1):
        db.executescript(f"BEGIN;{MIGRATIONS[number - 1]}PRAGMA user_version = {number};COMMIT;")
