-- What every later view is built on: records of the log without those that stand in it twice, and without the marks of passed
-- time that the engine writes for itself.

CREATE OR REPLACE VIEW events AS
SELECT * RENAME (workspace_id AS workspace) FROM recorded_events
WHERE fault IS NULL AND repeated IS NOT TRUE AND (appended IS NULL OR type = 'tool_call.finished');
COMMENT ON VIEW events IS 'Every input event once: what publishers sent, and the finishes the engine appended for calls that did not end in time';
COMMENT ON COLUMN events.time IS 'When it happened, UTC, as the publisher says';
COMMENT ON COLUMN events.arrived IS 'When the log took it, UTC';
COMMENT ON COLUMN events.record IS 'The event as JSON; results are replaced by digests';
COMMENT ON COLUMN events.model IS 'Of the event, or the last that its session has named; so with workspace and user_id';
COMMENT ON COLUMN events.appended IS 'True: written by the engine itself, which closed the call';

CREATE OR REPLACE VIEW call_records AS
SELECT time, coalesce(started, time) AS started, session_id, coalesce(workspace_id, 'default') AS workspace, user_id, agent_id, model, model_tier, turn_index, step,
       tool_name, plugin_name, service, fine_key AS failure_key, tool_class, call_id, call_digest, summary, status, verdict,
       outcome, severity, reclassified, judged_by, denied, expected, coalesce(appended AND status = 'timeout', false) AS timed_out_unanswered, duration_ms,
       waited_ms, attempts, error_type, error_code, error_message, http_status, signature, result_digest, same_result, result_size,
       cost_usd, origin AS "offset", cause AS id, noted
FROM recorded_outcomes WHERE outcome IS NOT NULL AND repeated IS NOT TRUE;
COMMENT ON VIEW call_records IS 'What the session stage wrote about every finished call and every report of a plugin, under the rules in force';

CREATE OR REPLACE VIEW decisions AS
SELECT DISTINCT ON (id) * RENAME (workspace_id AS workspace) FROM (
    SELECT 'escalations' AS topic, "offset", id, type, time, arrived, session_id, workspace_id, user_id, trust_key AS subject,
           from_state, to_state, trigger, NULL::VARCHAR AS severity, reason, caused_by, record FROM recorded_escalations
    UNION ALL
    SELECT 'breakers', "offset", id, type, time, arrived, session_id, workspace_id, user_id, breaker_key,
           from_state, to_state, trigger, NULL, NULL, caused_by, record FROM recorded_breakers
    UNION ALL
    SELECT 'nudges', "offset", id, type, time, arrived, session_id, workspace_id, user_id, pattern,
           NULL, nudge_type, NULL, severity, message, caused_by, record FROM recorded_nudges
    UNION ALL
    SELECT 'suggestions', "offset", id, type, time, arrived, session_id, workspace_id, user_id, coalesce(failure_key, guarantee),
           NULL, NULL, NULL, NULL, message, caused_by, record FROM recorded_suggestions
) WHERE id IS NOT NULL ORDER BY "offset";
COMMENT ON VIEW decisions IS 'Everything that was decided, once each, all topics together; subject is the key, circuit or pattern';
COMMENT ON COLUMN decisions.arrived IS 'When the events behind it were taken, UTC; NULL where nobody knows';
COMMENT ON COLUMN decisions."offset" IS 'Place in its topic: the order of what has one time';
COMMENT ON COLUMN decisions.caused_by IS 'Ids of the events behind it, newest last: look them up in events';

CREATE OR REPLACE VIEW dead_letters AS
SELECT DISTINCT ON (id) * FROM recorded_dead_letters
WHERE id IS NOT NULL AND type = 'dead_letter';
COMMENT ON VIEW dead_letters IS 'What could not be processed and why; the refused bytes stay in the log';

CREATE OR REPLACE VIEW commands AS
SELECT time, type, workspace_id AS workspace, command_key, tool, issued_by, reason, id, record FROM recorded_commands WHERE fault IS NULL;
COMMENT ON VIEW commands IS 'Orders of operators';

CREATE OR REPLACE VIEW recorded AS
SELECT history, topic, "partition", count(*) AS files, min(first) AS first_offset, max(last) AS last_offset,
       min(day) AS first_day, max(day) AS last_day
FROM files_of('*') WHERE NOT hidden GROUP BY ALL ORDER BY ALL;
COMMENT ON VIEW recorded IS 'What the history holds: files, offsets and days by directory, topic and partition';
