"""Timeline of a session from a recorded history, in which results are digests or kept failures."""

from __future__ import annotations

from typing import Any

import duckdb
import orjson

from ...rules.rules import Rules
from ..queries import run
from .timeline import Decided, Timeline, millis, timeline

_EVENTS = """
SELECT record FROM recorded_events WHERE session_id = $session AND record IS NOT NULL ORDER BY "partition", "offset"
"""
_DECISIONS = """
SELECT record FROM decisions WHERE record IS NOT NULL AND (session_id = $session OR (
    topic = 'breakers' AND time BETWEEN make_timestamp_ms($began) AND make_timestamp_ms($ended)))
ORDER BY time, topic, "offset"
"""
READS = _EVENTS + _DECISIONS
"""Queries of a session's timeline."""


def recorded_session(connection: duckdb.DuckDBPyConnection, session_id: str, rules: Rules | None = None) -> Timeline:
    """Timeline of a session from a history; without items if the session is unknown.

    Calls are classified by `rules`, by default the default rules.

    Raises:
        HistoryError: the files cannot be read.
    """
    events = _records(connection, _EVENTS, {"session": session_id})
    times = [millis(one["time"]) for one in events] or [0]
    decisions = _records(
        connection, _DECISIONS, {"session": session_id, "began": min(times), "ended": max(times)}
    )  # fmt: skip
    return timeline(session_id, events, map(Decided, decisions), rules=rules)


def _records(connection: duckdb.DuckDBPyConnection, sql: str, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    return [orjson.loads(row[0]) for row in run(connection, sql, arguments)[1]]
