-- Indexes by which the log and the outputs are read for one session, one event, one decision. SQLite keeps them itself, so
-- a version that does not know them may write the file in between; those that are missing are made when it is opened.

-- Blocks of 4,096 records before the name: a batch then changes pages of the newest block alone, not one of each session.
CREATE INDEX IF NOT EXISTS log_by_session ON log (
    seq >> 12, CASE WHEN json_valid(CAST(value AS TEXT)) THEN json_extract(CAST(value AS TEXT), '$.session_id') END
);
CREATE INDEX IF NOT EXISTS log_by_id ON log (
    seq >> 12, CASE WHEN json_valid(CAST(value AS TEXT)) THEN json_extract(CAST(value AS TEXT), '$.id') END
);

-- Few outputs are decisions, or events that the engine appended; the records of `state` are left out.
CREATE INDEX IF NOT EXISTS decisions_by_id ON outputs (id)
WHERE topic IN ('nudges', 'escalations', 'breakers', 'suggestions', 'events');
CREATE INDEX IF NOT EXISTS decisions_by_session ON outputs (json_extract(CAST(value AS TEXT), '$.session_id'))
WHERE topic IN ('nudges', 'escalations', 'breakers', 'suggestions', 'events');
CREATE INDEX IF NOT EXISTS circuits_by_time ON outputs (time_ms) WHERE topic = 'breakers';

-- Records of calls: one for each call.
CREATE INDEX IF NOT EXISTS calls_by_session ON outputs (json_extract(CAST(value AS TEXT), '$.session_id'))
WHERE topic = 'outcomes';
