-- Questions people ask first: where to look, what is new, what got worse, what was for nothing.

CREATE OR REPLACE VIEW sessions_to_look_at AS
WITH repeated AS (
    SELECT session_id, sum(wasted_calls)::BIGINT AS wasted_calls, sum(wasted_calls) FILTER (NOT failing) AS unfailing,
           sum(wasted_ms) / 1000 AS wasted_seconds, sum(wasted_usd) AS wasted_usd FROM loops GROUP BY session_id
)
SELECT session_id, workspace, model, began, ended - began AS lasted, calls, failures, coalesce(wasted_calls, 0) AS wasted_calls,
       (failures + coalesce(unfailing, 0))::BIGINT AS led_nowhere, led_nowhere / nullif(calls, 0) AS share,
       wilson_low(least(led_nowhere, calls), calls) AS share_low, worst, pattern_kinds, wasted_seconds, wasted_usd
FROM sessions LEFT JOIN repeated USING (session_id)
WHERE led_nowhere > 0 OR worst IS NOT NULL
ORDER BY share_low DESC NULLS LAST, led_nowhere DESC, worst DESC NULLS LAST, began DESC, session_id;
COMMENT ON VIEW sessions_to_look_at IS 'Sessions with calls that led nowhere, or with patterns; those first whose share of such calls is surely large, so that neither long sessions that fail as all do nor a single failure lead';
COMMENT ON COLUMN sessions_to_look_at.led_nowhere IS 'Calls that failed, and those that repeated a result in a loop; each once';
COMMENT ON COLUMN sessions_to_look_at.share IS 'led_nowhere as a share of the calls';
COMMENT ON COLUMN sessions_to_look_at.share_low IS 'Lower bound of that share, 95 % (Wilson): by it sessions are ranked';

CREATE OR REPLACE VIEW loops_by_model AS
WITH looping AS (
    SELECT coalesce(model, 'unknown') AS model, count(*) AS loops, count(DISTINCT session_id) AS sessions,
           sum(wasted_calls)::BIGINT AS wasted_calls, sum(wasted_ms) / 1000 AS wasted_seconds, sum(wasted_usd) AS wasted_usd
    FROM loops GROUP BY ALL
), all_calls AS (
    SELECT coalesce(model, 'unknown') AS model, count(DISTINCT session_id) AS of_sessions, count(*) AS of_calls,
           sum(duration_ms) / 1000 AS of_seconds, sum(cost_usd) AS of_usd FROM tool_calls GROUP BY ALL
)
SELECT model, loops, wasted_calls, of_calls, wasted_calls / of_calls AS share_of_calls, wasted_seconds, of_seconds, wasted_usd, of_usd, sessions, of_sessions
FROM looping JOIN all_calls USING (model) ORDER BY wasted_calls DESC, model;
COMMENT ON VIEW loops_by_model IS 'What loops cost each model in calls, time and money; times are those of the tools, without what the model thought in between';

CREATE OR REPLACE VIEW asks AS
WITH permissions AS MATERIALIZED (
    SELECT number_of(session_id, call_id) AS call, type, time, session_id, workspace, user_id, agent_id, model, tool_name, call_id,
           granted, method, id
    FROM events WHERE type IN ('permission.requested', 'permission.resolved') AND noted IS NOT FALSE
), asked AS MATERIALIZED (
    SELECT row_number() OVER () AS ask, * FROM (
        SELECT * FROM permissions WHERE type = 'permission.requested'
        UNION ALL
        FROM permissions ANTI JOIN (SELECT call FROM permissions WHERE type = 'permission.requested') q USING (call)
        WHERE type = 'permission.resolved'
    )
), answers AS (
    SELECT ask, min(a.time) AS answered, arg_min({'granted': a.granted, 'method': a.method}, a.time) AS answer
    FROM asked q JOIN permissions a USING (call)
    WHERE a.type = 'permission.resolved' AND q.time <= a.time GROUP BY ask
), outcomes AS (
    SELECT ask, arg_min(c.outcome, c.time) AS outcome
    FROM asked q JOIN (SELECT number_of(session_id, call_id) AS call, outcome, time FROM tool_calls
                      WHERE noted IS NOT FALSE AND outcome <> 'denied') c USING (call)
    WHERE q.time <= c.time GROUP BY ask
)
SELECT time, session_id, coalesce(workspace, 'default') AS workspace, user_id, agent_id, model, tool_name, call_id,
       answered, answered - time AS waited, answer.granted AS granted, answer.method AS method, outcome,
       coalesce(answer.granted AND outcome IN ('succeeded', 'answered'), false) AS for_nothing, id
FROM asked LEFT JOIN answers USING (ask) LEFT JOIN outcomes USING (ask);
COMMENT ON VIEW asks IS 'Requests for permission, their answer, and what became of the call';
COMMENT ON COLUMN asks.for_nothing IS 'A false ask: it was granted, and the call did not fail';
COMMENT ON COLUMN asks.granted IS 'NULL: nobody has answered';
COMMENT ON COLUMN asks.outcome IS 'Of the call; NULL where it was not made or has not ended';

CREATE OR REPLACE VIEW ask_rates AS
SELECT coalesce(user_id, 'unknown') AS user_id, workspace, tool_name, count(*) AS asked, count(*) FILTER (granted) AS granted_times,
       count(*) FILTER (NOT granted) AS denied, count(*) FILTER (granted IS NULL) AS unanswered,
       count(granted) AS answers, count(*) FILTER (for_nothing) AS false_asks, false_asks / nullif(answers, 0) AS share,
       wilson_low(false_asks, answers) AS share_low, wilson_high(false_asks, answers) AS share_high, median(waited) AS median_wait, to_seconds(sum(epoch(waited))) AS all_waits
FROM asks WHERE coalesce(method, '') NOT IN ('policy', 'whitelist')
GROUP BY ALL ORDER BY false_asks DESC, asked DESC, user_id, workspace, tool_name;
COMMENT ON VIEW ask_rates IS 'Who is asked how often and how often for nothing; what a policy or a list answered asked nobody; share is one of the answers';

CREATE OR REPLACE VIEW retries AS
WITH judged AS (
    SELECT number_of(session_id, call_digest) AS call, time, "offset", started, session_id, workspace, model, tool_name, service, outcome, severity, id,
           verdict = 'failure' AND expected IS NOT TRUE AS failing
    FROM tool_calls WHERE call_digest IS NOT NULL AND verdict <> 'neutral' AND noted IS NOT FALSE
), again AS (
    SELECT call FROM judged GROUP BY call HAVING count(*) > 1 AND bool_or(failing)
), retried AS (
    SELECT *, lag(severity) OVER of_call AS severity_before, lag(time) OVER of_call AS failed,
           number_of(session_id, id) AS number, lag(number_of(session_id, id)) OVER of_call AS number_before
    FROM judged SEMI JOIN again USING (call)
    WINDOW of_call AS (PARTITION BY call ORDER BY time, "offset")
    QUALIFY lag(failing) OVER of_call
), spans AS (
    SELECT hash(session_id) AS session, min(failed) AS first, max(time) AS last FROM retried GROUP BY session
), places AS (
    -- Few calls are retries: calls are numbered only from the first failure to the last retry of a session.
    SELECT number, row_number() OVER (PARTITION BY session ORDER BY time, "offset") AS place
    FROM (SELECT hash(session_id) AS session, time, "offset", number_of(session_id, id) AS number FROM tool_calls) JOIN spans USING (session) WHERE time BETWEEN first AND last
)
SELECT time, session_id, workspace, model, tool_name, service,
       CASE own.place - other.place WHEN 1 THEN 'at once' ELSE 'after other calls' END AS kind, severity_before AS severity, failed,
       coalesce(started, time) - failed AS waited, own.place - other.place - 1 AS calls_between, 1 AS tries, outcome, outcome = 'succeeded' AS paid_off, id
FROM retried JOIN places own USING (number) JOIN places other ON other.number = number_before
UNION ALL
SELECT time, session_id, workspace, model, tool_name, service, 'inside the call', severity, NULL, NULL, NULL, attempts - 1, outcome,
       outcome = 'succeeded', id
FROM tool_calls WHERE attempts > 1 AND verdict <> 'neutral';
COMMENT ON VIEW retries IS 'The same call again after it had failed: by the agent, or inside one call by whoever made it';
COMMENT ON COLUMN retries.kind IS 'at once: nothing was called in between; after other calls: something may have been mended; inside the call: attempts beyond the first';
COMMENT ON COLUMN retries.severity IS 'Of the failure before; inside a call only where the last attempt failed, too';
COMMENT ON COLUMN retries.tries IS 'Further attempts';

CREATE OR REPLACE VIEW retry_success AS
SELECT tool_name, kind, count(*) AS retried, count(*) FILTER (paid_off) AS succeeded, succeeded / retried AS rate,
       wilson_low(succeeded, retried) AS rate_low, wilson_high(succeeded, retried) AS rate_high, median(waited) AS median_wait
FROM retries GROUP BY ALL ORDER BY retried DESC, tool_name, kind;
COMMENT ON VIEW retry_success IS 'How often a retry succeeded, by tool and kind of retry';

CREATE OR REPLACE MACRO new_things(span := INTERVAL 1 DAY) AS TABLE
WITH present AS (
    SELECT until, until - span AS beginning FROM recorded_until
), troubles AS (
    SELECT 'failure' AS kind, signature AS name, time, session_id FROM failures WHERE expected IS NOT TRUE
    UNION ALL SELECT 'trust lost', trust_key, time, session_id FROM trust_timeline WHERE to_state IN ('escalated', 'blocked')
    UNION ALL SELECT 'circuit opened', breaker_key, time, session_id FROM breaker_timeline WHERE to_state = 'open'
), known AS (
    SELECT kind, name FROM troubles, present WHERE time < beginning
    UNION ALL SELECT unnest(['tool', 'model']), unnest([tool_name, model])
    FROM (SELECT DISTINCT tool_name, model FROM tool_calls, present WHERE time < beginning)
), seen AS (
    SELECT kind, name, time, session_id FROM troubles, present WHERE time BETWEEN beginning AND until
    UNION ALL SELECT unnest(['tool', 'model']), unnest([tool_name, model]), time, session_id
    FROM tool_calls, present WHERE time BETWEEN beginning AND until
)
SELECT kind, name, min(time) AS first_seen, count(*) AS times, count(DISTINCT session_id) AS sessions
FROM seen ANTI JOIN known USING (kind, name) WHERE name IS NOT NULL GROUP BY kind, name ORDER BY kind, times DESC, name;
COMMENT ON MACRO TABLE new_things IS 'Failures, tools, models, and keys and circuits in trouble, that were first seen within span before the end of what is recorded';

CREATE OR REPLACE MACRO compared_signatures(span := INTERVAL 7 DAY) AS TABLE
WITH placed AS (
    SELECT *, time >= until - span AS recent, time < until - span AND time >= until - 2 * span AS before FROM failures, recorded_until
    WHERE expected IS NOT TRUE AND signature IS NOT NULL AND time <= until
)
SELECT * EXCLUDE (failures_before) FROM (
    SELECT signature, CASE WHEN bool_and(recent) THEN 'new' ELSE 'back' END AS seen, mode(severity ORDER BY severity_rank(severity)) AS severity,
           count(*) FILTER (recent) AS failures, count(*) FILTER (before) AS failures_before,
           count(DISTINCT session_id) FILTER (recent) AS sessions, list(DISTINCT tool_name ORDER BY tool_name)[:5] AS tools,
           min(time) AS first_seen, max(time) AS last_seen
    FROM placed GROUP BY signature
) WHERE failures > 0 AND failures_before = 0 ORDER BY seen DESC, failures DESC, signature;
COMMENT ON MACRO TABLE compared_signatures IS 'Failures of the last span that were not in the one before: new, or back after they had been away';

CREATE OR REPLACE MACRO compared_rates(span := INTERVAL 7 DAY, min_calls := 10) AS TABLE
WITH judged AS (
    SELECT tool_name, coalesce(model, 'unknown') AS model, time >= until - span AS recent, count(*) AS calls,
           count(*) FILTER (verdict = 'failure' AND expected IS NOT TRUE) AS failures
    FROM tool_calls, recorded_until WHERE verdict <> 'neutral' AND time >= until - 2 * span AND time <= until GROUP BY ALL
), subjects AS (
    SELECT unnest(['tool', 'model']) AS kind, unnest([tool_name, model]) AS name, recent, calls, failures FROM judged
), counted AS (
    SELECT kind, name, coalesce(sum(calls) FILTER (recent), 0)::BIGINT AS calls, coalesce(sum(failures) FILTER (recent), 0)::BIGINT AS failures,
           coalesce(sum(calls) FILTER (NOT recent), 0)::BIGINT AS calls_before,
           coalesce(sum(failures) FILTER (NOT recent), 0)::BIGINT AS failures_before
    FROM subjects GROUP BY ALL
), bounded AS (
    SELECT *, failures / nullif(calls, 0) AS rate, wilson_low(failures, calls) AS low, wilson_high(failures, calls) AS high,
           failures_before / nullif(calls_before, 0) AS rate_before, wilson_low(failures_before, calls_before) AS low_before,
           wilson_high(failures_before, calls_before) AS high_before
    FROM counted
), differing AS (
    SELECT *, rate - rate_before AS change, change - sqrt((rate - low) ** 2 + (high_before - rate_before) ** 2) AS change_low,
           change + sqrt((high - rate) ** 2 + (rate_before - low_before) ** 2) AS change_high
    FROM bounded
)
SELECT kind, name, CASE WHEN calls_before = 0 THEN 'new' WHEN calls = 0 THEN 'gone'
                        WHEN least(calls, calls_before) < min_calls THEN 'too few calls'
                        WHEN change_low > 0 THEN 'worse' WHEN change_high < 0 THEN 'better' ELSE 'no change shown' END AS verdict,
       rate, rate_before, change, change_low, change_high, calls, calls_before, failures, failures_before, low, high, low_before, high_before
FROM differing ORDER BY verdict <> 'worse', change_low DESC NULLS LAST, kind, name;
COMMENT ON MACRO TABLE compared_rates IS 'Failure rates of tools and models in the last span and in the one before, with 95 % intervals (Wilson; of the change Newcombe); worse and better only where the interval of the change leaves out 0 and both spans have min_calls';
