-- What models did that led nowhere, what they were told, and whether it helped.

CREATE OR REPLACE VIEW patterns AS
SELECT d.time, d.session_id, coalesce(d.workspace_id, 'default') AS workspace, d.model, d.pattern, d.severity, d.repetitions,
       d.tool_sequence, d.fingerprint, d.duration_ms, c.time AS cleared_at, c.id AS cleared_by,
       coalesce(d.arrived - d.time <= INTERVAL 1 MINUTE, false) AS delivered, d.caused_by, d.id
FROM (SELECT DISTINCT ON (id) * FROM recorded_nudges WHERE type = 'pattern.detected' ORDER BY "offset") d
ASOF LEFT JOIN (SELECT DISTINCT ON (id) * FROM recorded_nudges WHERE type = 'pattern.cleared' ORDER BY "offset") c
  ON d.session_id = c.session_id AND d.pattern = c.pattern AND d.fingerprint IS NOT DISTINCT FROM c.fingerprint
 AND d."partition" = c."partition" AND d."offset" <= c."offset";
COMMENT ON VIEW patterns IS 'Patterns detected, one row per severity step, and when the model broke out';
COMMENT ON COLUMN patterns.cleared_at IS 'NULL: it never did';
COMMENT ON COLUMN patterns.cleared_by IS 'Id of that decision: with session_id, pattern and fingerprint it names the streak whose steps these are';
COMMENT ON COLUMN patterns.delivered IS 'Decided within a minute of the events behind it, so that the agent could be told; false: computed over a recording';

CREATE OR REPLACE VIEW false_alarms AS
SELECT f.time, f.about AS output_id, f.reason, f.session_id, d.topic, d.type, d.subject, d.severity, d.time AS decided,
       e.tool_name
FROM events f
LEFT JOIN decisions d ON d.id = f.about
LEFT JOIN (SELECT id, any_value(tool_name) AS tool_name FROM events WHERE tool_name IS NOT NULL
           AND id IN (SELECT unnest(caused_by[-1:]) FROM decisions WHERE id IN (SELECT about FROM events WHERE type = 'feedback.false_alarm'))
           GROUP BY id) e ON e.id = d.caused_by[-1]
WHERE f.type = 'feedback.false_alarm';
COMMENT ON VIEW false_alarms IS 'Decisions that a platform or a person judged wrong; subject is the pattern, key or circuit';

CREATE OR REPLACE VIEW nudges AS
SELECT n.time, n.session_id, coalesce(n.workspace_id, 'default') AS workspace, n.pattern, n.severity, n.nudge_type, n.lane, n.message,
       j.effective, j.time AS judged_at, n.id IN (SELECT about FROM events WHERE type = 'feedback.false_alarm' AND about IS NOT NULL) AS false_alarm,
       coalesce(n.arrived - n.time <= INTERVAL 1 MINUTE, false)
       AND n.id NOT IN (SELECT nudge_id FROM recorded_nudges WHERE type = 'nudge.withdrawn') AS delivered, n.pattern_id, n.caused_by, n.id
FROM (SELECT DISTINCT ON (id) * FROM recorded_nudges WHERE type = 'nudge.issued') n
LEFT JOIN (SELECT nudge_id, arg_max(effective, time) AS effective, max(time) AS time FROM recorded_nudges
           WHERE type = 'nudge.judged' GROUP BY nudge_id) j ON j.nudge_id = n.id;
COMMENT ON VIEW nudges IS 'What models were told, and whether it helped';
COMMENT ON COLUMN nudges.effective IS 'The model did not repeat itself, and acted where the pattern asked for it; NULL: not judged yet';

COMMENT ON COLUMN nudges.delivered IS 'Issued within a minute of the events behind it, so that the agent could see it; false: computed over a recording, or withdrawn as no answer had carried it';

CREATE OR REPLACE VIEW nudge_effectiveness AS
SELECT * RENAME (helped AS effective, told AS delivered) FROM (
SELECT pattern, nudge_type, count(*) AS issued, count(*) FILTER (delivered) AS told,
       count(effective) FILTER (delivered) AS judged, count(*) FILTER (delivered AND effective) AS helped,
       helped / nullif(judged, 0) AS rate, wilson_low(helped, judged) AS rate_low, wilson_high(helped, judged) AS rate_high,
       count(*) FILTER (false_alarm) AS false_alarms
FROM nudges GROUP BY ALL
) ORDER BY issued DESC, pattern, nudge_type;
COMMENT ON VIEW nudge_effectiveness IS 'How often each kind of nudge helped; judged, effective and rate are of those delivered';

CREATE OR REPLACE VIEW alarms_judged_false AS
WITH raised AS (
    SELECT 'nudges' AS topic, pattern AS subject, coalesce(pattern_id, id) AS alarm, id FROM recorded_nudges
    WHERE type IN ('pattern.detected', 'nudge.issued')
    UNION ALL SELECT 'escalations', trust_key, id, id FROM recorded_escalations
    WHERE type = 'trust.changed' AND to_state IN ('escalated', 'blocked')
    UNION ALL SELECT 'breakers', breaker_key, id, id FROM recorded_breakers WHERE type = 'breaker.changed' AND to_state = 'open'
)
SELECT topic, subject, count(DISTINCT alarm) AS alarms,
       count(DISTINCT alarm) FILTER (id IN (SELECT about FROM events WHERE type = 'feedback.false_alarm' AND about IS NOT NULL)) AS judged_false,
       judged_false / alarms AS share
FROM raised GROUP BY topic, subject HAVING judged_false > 0 ORDER BY share DESC, judged_false DESC, subject;
COMMENT ON VIEW alarms_judged_false IS 'Alarms that people call wrong, by pattern, key or circuit; a pattern and its nudge are one alarm';

CREATE OR REPLACE VIEW pattern_rates AS
WITH stuck AS (SELECT coalesce(model, 'unknown') AS model, session_id, pattern, fingerprint, cleared_by, severity FROM patterns),
     seen AS (SELECT model, count(DISTINCT session_id) AS sessions
              FROM (SELECT coalesce(model, 'unknown') AS model, session_id FROM (SELECT DISTINCT model, session_id FROM tool_calls)
                    UNION ALL SELECT model, session_id FROM stuck) GROUP BY model)
SELECT p.model, p.pattern, count(DISTINCT (p.session_id, p.fingerprint, p.cleared_by)) AS times, count(DISTINCT p.session_id) AS sessions,
       any_value(s.sessions) AS of_sessions, count(DISTINCT p.session_id) / any_value(s.sessions) AS rate,
       count(DISTINCT (p.session_id, p.fingerprint, p.cleared_by)) FILTER (p.severity = 'severe') AS severe
FROM stuck p JOIN seen s USING (model)
GROUP BY p.model, p.pattern ORDER BY times DESC, p.model, p.pattern;
COMMENT ON VIEW pattern_rates IS 'How often each model falls into each pattern, however severe it becomes; rate is a share of its sessions with calls or patterns';

CREATE OR REPLACE VIEW loops AS
SELECT session_id, arg_min(workspace, (time, "offset")) AS workspace, arg_min(model, (time, "offset")) AS model,
       any_value(tool_name) AS tool_name, call_digest, any_value(result_digest) AS result_digest, max(same_result) AS times, count(*) AS wasted_calls,
       bool_or(verdict = 'failure') AS failing, min(time) AS second_time, max(time) AS last_time,
       sum(duration_ms) AS wasted_ms, sum(cost_usd) AS wasted_usd
FROM tool_calls
WHERE same_result >= 2 AND noted IS NOT FALSE
GROUP BY session_id, call_digest, coalesce(result_digest, signature)
HAVING max(same_result) >= 3;
COMMENT ON VIEW loops IS 'The same call with the same result, three times or more in one session with nothing new done by other calls in between; what came after the first brought nothing';
COMMENT ON COLUMN loops.wasted_ms IS 'Milliseconds of all calls but the first';
COMMENT ON COLUMN loops.model IS 'Of its first repetition';
COMMENT ON COLUMN loops.second_time IS 'When it first repeated itself';

CREATE OR REPLACE VIEW cost_of_loops AS
SELECT tool_name, count(*) AS loops, count(DISTINCT session_id) AS sessions, sum(wasted_calls)::BIGINT AS wasted_calls,
       sum(wasted_ms) / 1000 AS wasted_seconds, sum(wasted_usd) AS wasted_usd, max(times) AS longest
FROM loops GROUP BY ALL ORDER BY wasted_calls DESC, tool_name;
COMMENT ON VIEW cost_of_loops IS 'Calls, seconds and dollars spent on repeating what was known, by tool';

CREATE OR REPLACE VIEW sessions AS
WITH told AS (SELECT session_id, count(*) AS nudges, count(*) FILTER (effective) AS effective_nudges FROM nudges GROUP BY session_id),
     stuck AS (SELECT session_id, count(*) AS patterns, list(DISTINCT pattern ORDER BY pattern) AS kinds,
                      max(CASE severity WHEN 'severe' THEN 3 WHEN 'moderate' THEN 2 ELSE 1 END) AS worst FROM patterns GROUP BY session_id),
     all_sessions AS (
         SELECT session_id, coalesce(arg_max(workspace, time), 'default') AS workspace, arg_max(user_id, time) AS user_id,
                arg_max(model, time) AS model,
                min(time) AS began, coalesce(max(time) FILTER (appended IS NOT TRUE), max(time)) AS ended, max(turn_index) + 1 AS turns,
                arg_max(coalesce(reason, 'ended'), time) FILTER (type = 'session.ended') AS outcome,
                count(*) FILTER (appended IS NOT TRUE) AS events
         FROM events GROUP BY session_id
     ), of_calls AS (
         SELECT session_id, count(call_id) AS calls, count(*) FILTER (verdict = 'failure' AND expected IS NOT TRUE) AS failures,
                count(*) FILTER (verdict <> 'neutral') AS judged,
                sum(cost_usd) AS cost_usd
         FROM call_records GROUP BY session_id
     )
SELECT e.* EXCLUDE (events), coalesce(c.calls, 0) AS calls, coalesce(c.failures, 0) AS failures, coalesce(c.judged, 0) AS judged, c.cost_usd, e.events,
       s.patterns, s.kinds AS pattern_kinds, s.worst, t.nudges, t.effective_nudges
FROM all_sessions e LEFT JOIN of_calls c USING (session_id) LEFT JOIN stuck s USING (session_id) LEFT JOIN told t USING (session_id);
COMMENT ON VIEW sessions IS 'One row per session; what the engine appended is no event and ends no session; model and workspace are its last; patterns counts severity steps; worst is 1 minor, 2 moderate, 3 severe, NULL never stuck';
COMMENT ON COLUMN sessions.outcome IS 'Why it ended, in the words of its publisher, or ended; NULL: nobody has said that it did';
COMMENT ON COLUMN sessions.judged IS 'Calls and reports that succeeded or failed: failures are a share of them';
