-- Calls and what became of them.

CREATE OR REPLACE VIEW tool_calls AS
FROM call_records WHERE call_id IS NOT NULL;
COMMENT ON VIEW tool_calls IS 'Finished calls, one row each, as the folds judged them';
COMMENT ON COLUMN tool_calls.verdict IS 'success, failure, or neutral: cancelled, refused, rejected, denied, served from a cache, lost';
COMMENT ON COLUMN tool_calls.outcome IS 'verdict in finer words: succeeded, failed, answered (it ran and said no), rejected (by the client, before it ran), refused (by a guard: its circuit was open, or it may not be called), denied (by a person), cancelled, cached, lost (never ended, and nobody had said by when)';
COMMENT ON COLUMN tool_calls."offset" IS 'Order of what has one time, within a session';
COMMENT ON COLUMN tool_calls.severity IS 'Of a failure, as the folds classify it';
COMMENT ON COLUMN tool_calls.failure_key IS 'Tool and what of its target matters, e.g. bash|command=git';
COMMENT ON COLUMN tool_calls.summary IS 'Command line up to 200 characters, paths, or the first words of the arguments that tell most of the request, without secrets; NULL in files of older versions';
COMMENT ON COLUMN tool_calls.call_digest IS 'Equal for equal tool and arguments';
COMMENT ON COLUMN tool_calls.result_digest IS 'Equal for equal results, or equal failures; results are not kept';
COMMENT ON COLUMN tool_calls.same_result IS 'How often this call has given this result lately, this time included, since its agent last made progress';
COMMENT ON COLUMN tool_calls.timed_out_unanswered IS 'Closed by the engine at its stated deadline: a failure';
COMMENT ON COLUMN tool_calls.duration_ms IS 'Milliseconds, as the publisher measured';
COMMENT ON COLUMN tool_calls.started IS 'When the call began; its end where no start was seen and nothing was measured';
COMMENT ON COLUMN tool_calls.error_message IS 'Beginning of the error of what was no success, up to 300 characters without secrets; NULL in files of older versions';

CREATE OR REPLACE VIEW failures AS
SELECT time, session_id, workspace, user_id, agent_id, model, tool_name, service,
       failure_key, severity, expected, outcome, status, error_type, error_code, error_message, http_status, signature, summary, duration_ms,
       call_digest, id
FROM call_records
WHERE verdict = 'failure' AND noted IS NOT FALSE;
COMMENT ON VIEW failures IS 'Failed calls and failures that plugins reported; expected ones (a search without a match) are marked';
COMMENT ON COLUMN failures.signature IS 'The error with names, numbers, paths and quotations taken out: the same for all agents';

CREATE OR REPLACE VIEW reclassified_failures AS
SELECT tool_name, coalesce(error_type, error_code, http_status::VARCHAR, status) AS error, reclassified, severity, judged_by,
       count(*) AS failures, count(DISTINCT session_id) AS sessions, min(time) AS first_seen, max(time) AS last_seen, any_value(signature) AS signature
FROM tool_calls
WHERE judged_by IS NOT NULL AND noted IS NOT FALSE
GROUP BY ALL
ORDER BY failures DESC, tool_name, error, severity;
COMMENT ON VIEW reclassified_failures IS 'Failures that the rules of their tool, or their publisher, judge otherwise than their type, code and text';
COMMENT ON COLUMN reclassified_failures.judged_by IS 'publisher, or the entry of `tools.failures` in the rules';

CREATE OR REPLACE MACRO call_arguments(digest) AS TABLE
SELECT e.time, e.session_id, e.tool_name, e.record->'$.args' AS args
FROM events e SEMI JOIN (SELECT session_id, call_id FROM tool_calls WHERE call_digest = digest) c USING (session_id, call_id)
WHERE e.type = 'tool_call.started';
COMMENT ON MACRO TABLE call_arguments IS 'Starts of the calls with this call_digest, with their arguments as the publisher redacted them';

CREATE OR REPLACE MACRO failure_signatures(min_count := 2) AS TABLE
SELECT * FROM (
SELECT signature, mode(severity ORDER BY severity_rank(severity)) AS severity, count(*) AS failures, count(DISTINCT session_id) AS sessions,
       count(DISTINCT coalesce(agent_id, model, '')) AS agents, list(DISTINCT tool_name ORDER BY tool_name)[:5] AS tools,
       min(time) AS first_seen, max(time) AS last_seen
FROM failures WHERE expected IS NOT TRUE AND signature IS NOT NULL
GROUP BY signature
) WHERE failures >= min_count ORDER BY failures DESC, signature;
COMMENT ON MACRO TABLE failure_signatures IS 'The same failure across tools, agents and sessions, most frequent first';

CREATE OR REPLACE MACRO tool_health(min_calls := 20) AS TABLE
SELECT * EXCLUDE (quantiles_ms), quantiles_ms[1] AS p50_ms, quantiles_ms[2] AS p95_ms FROM (
SELECT tool_name, count(*) AS calls, count(*) FILTER (verdict = 'failure' AND expected IS NOT TRUE) AS failures,
       count(*) FILTER (verdict <> 'neutral') AS judged, failures / nullif(judged, 0) AS failure_rate,
       count(*) FILTER (denied) AS denied, count(*) FILTER (timed_out_unanswered) AS never_finished,
       count(*) FILTER (outcome = 'lost') AS lost,
       quantile_cont(duration_ms, [0.5, 0.95]) AS quantiles_ms,
       count(DISTINCT session_id) AS sessions, max(time) AS last_call
FROM tool_calls GROUP BY tool_name
) WHERE calls >= min_calls ORDER BY failure_rate DESC NULLS LAST, calls DESC, tool_name;
COMMENT ON MACRO TABLE tool_health IS 'Tools with at least min_calls calls, worst first; neutral calls are calls, but failure_rate is a share of those that failed or succeeded; lost calls are neutral';

CREATE OR REPLACE MACRO failure_rate(tool, bucket := INTERVAL 1 HOUR) AS TABLE
SELECT time_bucket(bucket, time) AS beginning, count(*) FILTER (verdict <> 'neutral') AS calls,
       count(*) FILTER (verdict = 'failure' AND expected IS NOT TRUE) AS failures,
       failures / nullif(count(*) FILTER (verdict <> 'neutral'), 0) AS failure_rate
FROM tool_calls WHERE tool_name = tool GROUP BY beginning ORDER BY beginning;
COMMENT ON MACRO TABLE failure_rate IS 'Share of failed calls of one tool over time; neutral calls are left out';

CREATE OR REPLACE VIEW failures_by_day AS
SELECT time::DATE AS day, tool_name, severity, count(*) AS failures
FROM failures WHERE expected IS NOT TRUE GROUP BY ALL ORDER BY ALL;
COMMENT ON VIEW failures_by_day IS 'Failures over time by tool and severity';

CREATE OR REPLACE VIEW model_tool_matrix AS
SELECT coalesce(model, 'unknown') AS model, tool_name, count(*) AS calls,
       count(*) FILTER (verdict = 'failure' AND expected IS NOT TRUE) AS failures,
       count(*) FILTER (verdict <> 'neutral') AS judged, failures / nullif(judged, 0) AS failure_rate,
       count(*) FILTER (verdict = 'failure' AND expected IS NOT TRUE AND severity IN ('invalid_input', 'validation')) AS own_making,
       quantile_cont(duration_ms, 0.5) AS p50_ms
FROM tool_calls GROUP BY ALL ORDER BY ALL;
COMMENT ON VIEW model_tool_matrix IS 'How each model does with each tool; own_making are failures the model caused by what it sent';
COMMENT ON COLUMN model_tool_matrix.judged IS 'Calls that failed or succeeded; failure_rate is a share of them';
