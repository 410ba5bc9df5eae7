-- Transitions of trust and of circuits, and how long things stayed as they were.

CREATE OR REPLACE VIEW trust_timeline AS
SELECT time, lead(time) OVER of_key AS until, until - time AS lasted, workspace_id AS workspace,
       trust_key, scope, from_state, to_state, trigger, reason, count, threshold, expires_at, silent, session_id, user_id, caused_by,
       "offset", id
FROM (SELECT DISTINCT ON (id) * REPLACE (CASE WHEN scope = 'user' THEN workspace_id ELSE coalesce(workspace_id, 'default') END AS workspace_id)
      FROM recorded_escalations WHERE type = 'trust.changed' ORDER BY "offset")
WINDOW of_key AS (PARTITION BY workspace_id, CASE WHEN scope = 'user' THEN user_id END, trust_key ORDER BY time, "offset");
COMMENT ON VIEW trust_timeline IS 'Every change of trust, and when the next one of the same key came';
COMMENT ON COLUMN trust_timeline.workspace IS 'NULL where a user has lost trust everywhere (scope user)';
COMMENT ON COLUMN trust_timeline."offset" IS 'Order of what has one time';
COMMENT ON COLUMN trust_timeline.until IS 'NULL: it is still so';

CREATE OR REPLACE VIEW breaker_timeline AS
SELECT time, lead(time) OVER of_circuit AS until, until - time AS lasted, coalesce(workspace_id, 'default') AS workspace,
       breaker_key, from_state, to_state, trigger, consecutive_failures, failure_rate, measured, open_until, mode, session_id, caused_by, "offset", id
FROM (SELECT DISTINCT ON (id) * FROM recorded_breakers WHERE type = 'breaker.changed' ORDER BY "offset")
WINDOW of_circuit AS (PARTITION BY workspace_id, breaker_key ORDER BY time, "offset");
COMMENT ON VIEW breaker_timeline IS 'Every change of a circuit, and when the next one of the same circuit came';

CREATE OR REPLACE VIEW transitions AS
SELECT DISTINCT ON (id) split_part(type, '.', 1) AS machine, coalesce(breaker_key, trust_key) AS subject,
       CASE WHEN scope = 'user' THEN workspace_id ELSE coalesce(workspace_id, 'default') END AS workspace,
       CASE WHEN scope = 'user' THEN user_id END AS user_id, from_state, to_state, time, coalesce(time < since, false) AS carried, "offset", id
FROM (FROM recorded_breakers UNION ALL BY NAME FROM carried_breakers
      UNION ALL BY NAME FROM recorded_escalations UNION ALL BY NAME FROM carried_escalations), recorded_since
WHERE type IN ('breaker.changed', 'trust.changed') ORDER BY "offset";
COMMENT ON VIEW transitions IS 'Every change of trust and of circuits, also those before the filtered time, which are carried into it';
COMMENT ON COLUMN transitions."offset" IS 'Order of what has one time';
COMMENT ON COLUMN transitions.carried IS 'True: it was before the filtered time';

CREATE OR REPLACE VIEW state_spans AS
WITH present AS (
    SELECT until, greatest(coalesce(since, (SELECT min(time) FROM recorded_events)), first) AS since
    FROM recorded_until, recorded_since, recorded_first
), spans AS (
    SELECT machine, subject, workspace, user_id, to_state AS state, time AS began,
           lead(time) OVER key AS ended FROM transitions
    WINDOW key AS (PARTITION BY machine, subject, workspace, user_id ORDER BY time, "offset")
    UNION ALL
    SELECT machine, subject, workspace, user_id, arg_min(from_state, (time, "offset")), NULL, min(time)
    FROM transitions GROUP BY ALL HAVING NOT bool_or(carried) AND arg_min(from_state, (time, "offset")) NOT IN ('trusted', 'closed')
)
SELECT machine, subject, workspace, user_id, state, coalesce(began, since) AS began, ended,
       min(CASE state WHEN 'blocked' THEN 1 WHEN 'removed' THEN 1 WHEN 'forced_open' THEN 1 WHEN 'escalated' THEN 2 WHEN 'open' THEN 3
                      WHEN 'half_open' THEN 4 WHEN 'recovering' THEN 5 ELSE 6 END) OVER of_key AS worst,
       count(*) OVER of_key AS changes
FROM spans, present WHERE state IS NOT NULL AND coalesce(ended > since, true)
WINDOW of_key AS (PARTITION BY machine, subject, workspace, user_id);
COMMENT ON VIEW state_spans IS 'Every state of trust keys and circuits that have changed, since their first change; those of the filtered time, and that in which it begins';
COMMENT ON COLUMN state_spans.began IS 'When the state began, UTC; where nobody knows, --since or the first event';
COMMENT ON COLUMN state_spans.ended IS 'NULL: it is still so';
COMMENT ON COLUMN state_spans.worst IS 'Rank of the worst state that the key was in: 1 blocked, 2 escalated, 3 open, 4 half open, 5 recovering';
COMMENT ON COLUMN state_spans.changes IS 'How many states the key was in, one after the other';

CREATE OR REPLACE VIEW outages AS
WITH moves AS (
    SELECT *, to_state IN ('open', 'forced_open', 'escalated', 'blocked', 'removed') AS bad, to_state IN ('closed', 'trusted') AS good FROM transitions
), numbered AS (
    SELECT *, count(*) FILTER (good) OVER (PARTITION BY machine, workspace, user_id, subject ORDER BY time, "offset"
                                           ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS episode FROM moves
)
SELECT machine, workspace, user_id, subject, service_of(subject) AS service, tool_of(subject) AS tool, min(time) FILTER (bad) AS began, max(time) FILTER (good) AS recovered,
       recovered - began AS lasted, count(*) FILTER (bad) AS setbacks
FROM numbered, recorded_since GROUP BY machine, workspace, user_id, subject, episode, since HAVING min(time) FILTER (bad) >= coalesce(since, min(time)) ORDER BY began;
COMMENT ON VIEW outages IS 'From the first opening or escalation until the circuit is closed or trust is back; recovered is NULL while it lasts; what began before the filtered time is not in it; user_id is set where a user lost trust in all workspaces';

CREATE OR REPLACE VIEW time_to_recovery AS
SELECT machine, subject, count(*) AS outages, count(recovered) AS recovered, avg(lasted) AS mean, median(lasted) AS median, max(lasted) AS longest
FROM outages GROUP BY ALL ORDER BY outages DESC, machine, subject;
COMMENT ON VIEW time_to_recovery IS 'How often each key or circuit was out, over all workspaces, and how long it took to come back';

CREATE OR REPLACE MACRO mttr(tool) AS TABLE
SELECT machine, count(*) AS outages, count(recovered) AS recovered, avg(lasted) AS mean, median(lasted) AS median
FROM outages WHERE subject IN (tool, 'tool:' || tool, 'service:' || tool) OR starts_with(subject, tool || '|') GROUP BY machine ORDER BY machine;
COMMENT ON MACRO TABLE mttr IS 'Mean time to recovery of one tool or service with all its keys, by machine';

CREATE OR REPLACE MACRO flapping(tool, span := INTERVAL 1 HOUR) AS TABLE
SELECT time_bucket(span, time) AS beginning, breaker_key, count(*) FILTER (to_state = 'open') AS openings,
       count(*) FILTER (to_state = 'closed') AS closings, openings >= 3 AS flaps
FROM breaker_timeline WHERE breaker_key IN (tool, 'tool:' || tool, 'service:' || tool) GROUP BY beginning, breaker_key ORDER BY beginning, breaker_key;
COMMENT ON MACRO TABLE flapping IS 'Openings and closings of a circuit over time; three openings in one span count as flapping';

CREATE OR REPLACE VIEW top_reasons_per_week AS
WITH reasons AS (
    SELECT time, 'trust' AS machine, trigger AS reason, trust_key AS subject FROM trust_timeline WHERE to_state IN ('escalated', 'blocked')
    UNION ALL SELECT time, 'breaker', trigger, breaker_key FROM breaker_timeline WHERE to_state = 'open'
    UNION ALL SELECT time, 'behaviour', pattern, session_id FROM patterns
    UNION ALL SELECT time, 'failure', severity, tool_name FROM failures WHERE expected IS NOT TRUE
), weekly AS (
    SELECT date_trunc('week', time)::DATE AS week, machine, reason, count(*) AS times, count(DISTINCT subject) AS subjects
    FROM reasons GROUP BY 1, 2, 3
)
SELECT *, row_number() OVER (PARTITION BY week, machine ORDER BY times DESC, reason) AS place
FROM weekly QUALIFY place <= 10 ORDER BY week DESC, machine, place;
COMMENT ON VIEW top_reasons_per_week IS 'Why trust was lost, circuits opened, models were stuck and calls failed: the ten most frequent reasons of each week';
