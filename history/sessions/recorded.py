"""Timeline of a session from a recorded history, in which results are digests or kept failures."""

from __future__ import annotations

from typing import Any

import duckdb
import orjson

from ...rules.rules import RuleSet
from ..queries import run
from .timeline import TimedDecision, TimelineEntries, millis, timeline

_EVENTS = """
SELECT record FROM recorded_events WHERE session_id = $session AND record IS NOT NULL ORDER BY "partition", "offset"
"""
_DECISIONS = """
SELECT record FROM decisions WHERE record IS NOT NULL AND (session_id = $session OR (
    topic = 'breakers' AND time BETWEEN make_timestamp_ms($began) AND make_timestamp_ms($ended)))
ORDER BY time, topic, "offset"
"""
_CALLS = """
SELECT cause, session_id, coalesce(workspace_id, '') AS workspace_id, agent_id, model, turn_index, call_id, tool_name,
       fine_key, tool_class, service, epoch_ms(time) AS time_ms, epoch_ms(coalesce(started, time)) AS started_ms,
       outcome, verdict, severity, expected, summary, error_type, error_message, signature, result_digest, same_result,
       coalesce(call_digest, cause) AS call_digest, duration_ms, waited_ms, cost_usd, attempts, appended
FROM recorded_outcomes
WHERE session_id = $session AND outcome IS NOT NULL AND call_id IS NOT NULL AND repeated IS NOT TRUE
"""
READS = _EVENTS + _DECISIONS + _CALLS  # Queries of a session's timeline


def recorded_session(
    connection: duckdb.DuckDBPyConnection, session_id: str, rules: RuleSet | None = None
) -> TimelineEntries:
    """Timeline of a session from a history; without items if the session is unknown.

    Calls that have not ended are described by `rules`, by default the default rules.

    Raises:
        HistoryError: the files cannot be read.
    """
    events = _records(connection, _EVENTS, {"session": session_id})
    times = [millis(one["time"]) for one in events] or [0]
    decisions = _records(
        connection, _DECISIONS, {"session": session_id, "began": min(times), "ended": max(times)}
    )  # fmt: skip
    columns, rows = run(connection, _CALLS, {"session": session_id})
    calls = (dict(zip(columns, row, strict=True)) for row in rows)
    records = {one["cause"]: {name: value for name, value in one.items() if value is not None} for one in calls}
    return timeline(session_id, events, map(TimedDecision, decisions), rules=rules, records=records)


def _records(connection: duckdb.DuckDBPyConnection, sql: str, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    return [orjson.loads(row[0]) for row in run(connection, sql, arguments)[1]]
