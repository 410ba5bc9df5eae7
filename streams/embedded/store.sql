-- The file of the embedded engine. One transaction writes a batch whole: what came in, what was decided,
-- the states it touched and the positions; so a kill at any point leaves either all of it or none.

-- What came in, in the order it was folded: events, commands, and what the engine itself appended (calls past their
-- deadline, lost probes), and under the name `rules` what was folded by from there on. Everything else in this file
-- follows from it.
CREATE TABLE log (
    seq        INTEGER PRIMARY KEY,
    topic      TEXT    NOT NULL,
    key        BLOB,
    value      BLOB,
    arrived_ms INTEGER NOT NULL  -- wall clock, milliseconds; -1: unknown (recorded events)
);

-- What was decided, dead letters, state records and records of calls included; other internal messages are not kept.
CREATE TABLE outputs (
    offset      INTEGER PRIMARY KEY,  -- counts over all topics: one cursor follows any choice of them
    topic       TEXT    NOT NULL,
    key         TEXT    NOT NULL,
    value       BLOB,                 -- NULL: a tombstone
    id          TEXT    NOT NULL,
    type        TEXT    NOT NULL,
    time_ms     INTEGER NOT NULL,     -- event time
    traceparent TEXT,
    arrived_ms  INTEGER NOT NULL      -- of the batch behind it
);
CREATE INDEX outputs_by_topic ON outputs (topic);

-- Snapshots of the folds' states, as the processors encode them.
CREATE TABLE states (
    stage    TEXT NOT NULL,
    key      BLOB NOT NULL,
    snapshot BLOB NOT NULL,
    UNIQUE (stage, key)
);

-- Latest record of every key of the `state` topic that is away from its default.
CREATE TABLE public (
    key   TEXT PRIMARY KEY,
    value BLOB NOT NULL
) WITHOUT ROWID;

-- Next offset of every source topic, and of the outputs.
CREATE TABLE positions (
    name TEXT PRIMARY KEY,
    next INTEGER NOT NULL
) WITHOUT ROWID;

-- Requests already answered: a publisher that did not hear the answer sends again, and nothing is doubled.
CREATE TABLE requests (
    seq          INTEGER PRIMARY KEY,
    token        BLOB    NOT NULL UNIQUE,
    accepted     INTEGER NOT NULL,
    dead_letters INTEGER NOT NULL
);

-- Dead letters that were published again.
CREATE TABLE republished (
    offset INTEGER PRIMARY KEY
);

-- What each user and workspace overrides, as of the last record of `settings`.
CREATE TABLE settings (
    scope     TEXT PRIMARY KEY,
    overrides BLOB NOT NULL
) WITHOUT ROWID;

-- Publishers that sessions and workspaces belong to; without a row they are those of all who share the token.
CREATE TABLE owners (
    kind      TEXT,           -- session, workspace
    name      TEXT,
    publisher TEXT NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;

-- Facts about the store, such as the rules it was last folded under.
CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value BLOB NOT NULL
) WITHOUT ROWID;

-- Tells this store from another one at the same path, in which offsets begin anew. JSON, as all facts here.
INSERT INTO meta VALUES ('store_id', '"' || hex(randomblob(16)) || '"');
