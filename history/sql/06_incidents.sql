-- What incidents are made of: the last states of keys, and what is known of sessions that are not over.

CREATE OR REPLACE VIEW last_states AS
SELECT kind, state_key, coalesce(workspace_id, CASE WHEN scope = 'user' THEN NULL ELSE 'default' END) AS workspace, user_id, state, time, record
FROM recorded_state s
ANTI JOIN (SELECT 'trust' AS machine, trust_key AS subject, workspace, time FROM trust_timeline WHERE until IS NULL AND to_state = 'trusted'
           UNION ALL SELECT 'breaker', breaker_key, workspace, time FROM breaker_timeline WHERE until IS NULL AND to_state = 'closed') good
  ON good.machine = s.kind AND good.subject = s.state_key AND good.time >= s.time
 AND good.workspace = coalesce(s.workspace_id, CASE WHEN s.scope = 'user' THEN NULL ELSE 'default' END)
WHERE kind IS DISTINCT FROM 'model'
  AND (NOT (SELECT narrowed FROM recorded_since)
       OR (kind, state_key, coalesce(s.workspace_id, '')) IN (SELECT (machine, subject, coalesce(workspace, '')) FROM transitions)
       OR kind = 'incident'
       OR (kind = 'quality' AND state_key IN (SELECT tool_name FROM tool_calls)))
QUALIFY row_number() OVER (PARTITION BY key ORDER BY "offset" DESC) = 1 AND gone IS NOT TRUE;
COMMENT ON VIEW last_states IS 'The last published state of each key, circuit and score that differs from its default, and that the filters let pass';

CREATE OR REPLACE VIEW session_news AS
WITH open_patterns AS (
    SELECT session_id, record FROM recorded_nudges WHERE type IN ('pattern.detected', 'pattern.cleared')
    QUALIFY row_number() OVER (PARTITION BY session_id, pattern, fingerprint, record->>'agent_id' ORDER BY time DESC, "offset" DESC) = 1
        AND type = 'pattern.detected'
), questions AS (
    SELECT session_id, time, {call_id: call_id, agent: coalesce(agent_id, ''), what: coalesce(tool_name, ''), since_ms: epoch_ms(time)} AS ask
    FROM asks WHERE answered IS NULL AND outcome IS NULL
), lost AS (
    SELECT session_id, time FROM call_records WHERE outcome = 'lost'
), concerned AS (
    SELECT session_id FROM open_patterns UNION SELECT session_id FROM questions UNION SELECT session_id FROM lost
), heard AS (
    SELECT session_id, max(time) FILTER (appended IS NOT TRUE) AS news, max(time) FILTER (type = 'user.message') AS spoke,
           coalesce(arg_max(workspace_id, time) FILTER (workspace_id IS NOT NULL), 'default') AS workspace
    FROM recorded_heard WHERE session_id IN (FROM concerned) GROUP BY session_id HAVING NOT bool_or(type = 'session.ended')
)
SELECT session_id, workspace, news,
       (SELECT list(record) FROM open_patterns p WHERE p.session_id = h.session_id) AS patterns,
       (SELECT list(ask) FROM questions q WHERE q.session_id = h.session_id AND coalesce(q.time > h.spoke, true)) AS asks,
       (SELECT list(epoch_ms(time)) FROM lost l WHERE l.session_id = h.session_id AND l.time >= h.news) AS lost
FROM heard h;
COMMENT ON VIEW session_news IS 'Sessions that are not over, with open patterns, unanswered questions to people, or calls that were lost since their last event';
COMMENT ON COLUMN session_news.news IS 'Their last event, UTC';
COMMENT ON COLUMN session_news.patterns IS 'Reports of patterns that are not over, as JSON';
COMMENT ON COLUMN session_news.lost IS 'When calls were lost, milliseconds since 1970';

CREATE OR REPLACE VIEW incidents AS
SELECT NULL::VARCHAR AS state, NULL::VARCHAR AS severity, NULL::VARCHAR AS kind, NULL::VARCHAR AS subject, NULL::VARCHAR AS workspace,
       NULL::VARCHAR AS cause, NULL::TIMESTAMP AS since, NULL::TIMESTAMP AS last_news, NULL::TIMESTAMP AS changes_at,
       NULL::TIMESTAMP AS acknowledged, NULL::VARCHAR AS acknowledged_by, NULL::VARCHAR AS grown,
       NULL::VARCHAR[] AS sessions, NULL::BIGINT AS sessions_hit, NULL::VARCHAR[] AS agents, NULL::VARCHAR[] AS parts,
       NULL::VARCHAR[] AS waiting, NULL::VARCHAR[] AS orders, NULL::BOOLEAN AS needed
FROM last_states, session_news, recorded_until WHERE error('incidents are ranked outside of SQL: trustfold.history.incidents.rank(connection) first');
COMMENT ON VIEW incidents IS 'What is wrong at the end of what is recorded, one row for each outage or session, most urgent first; trustfold ranks them before the query, in a saved catalogue when it was saved';
COMMENT ON COLUMN incidents.state IS 'waiting (for a person), blocked, escalated, stuck, open, half-open, degraded, recovering, unknown (calls were lost), abandoned';
COMMENT ON COLUMN incidents.kind IS 'A key, tool, service, tier, credential or session';
COMMENT ON COLUMN incidents.subject IS 'Key of it, or id of the session';
COMMENT ON COLUMN incidents.cause IS 'Words of the latest error, and the reason of the state';
COMMENT ON COLUMN incidents.sessions IS 'Sessions that it hit last, by id';
