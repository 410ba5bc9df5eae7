"""Calls of older files, whose recorder judged them itself and kept what it found on the rows of events, as records."""

from __future__ import annotations

_OUTCOME = """CASE WHEN status = 'lost' THEN 'lost' WHEN denied THEN 'denied' WHEN verdict = 'success' THEN 'succeeded'
    WHEN status = 'rejected' THEN 'rejected' WHEN verdict = 'failure' AND expected THEN 'answered'
    WHEN verdict = 'failure' THEN 'failed' WHEN from_cache THEN 'cached'
    WHEN status = 'circuit_open' OR lower(replace(error_type, '_', '')) = 'blockedbyguard' THEN 'refused'
    ELSE 'cancelled' END"""

_MAPPED = (
    f"id AS cause, failure_key AS fine_key, {_OUTCOME} AS outcome, 'call.outcome' AS type, "
    '-1 - "partition"::BIGINT AS "partition", "offset" AS origin'
)
_SAME = (
    "offset arrived time session_id workspace_id user_id call_id tool_name model status started call_digest "
    "result_digest same_result result_size agent_id turn_index attempts cost_usd model_tier tool_class plugin_name "
    "service denied expected http_status error_type error_code signature duration_ms verdict severity "
    "reclassified judged_by appended"
).split()
_COLUMNS = ", ".join(f'"{name}"' for name in _SAME)


def of_events(partition: int) -> int:
    """Partition under which the calls in the rows of events of a partition stand."""
    return -1 - partition


def older_calls(rows: str, late: str) -> str:
    """Query of older rows of events as records of calls; `rows` and `late` query those without and with `appended`.

    Of a call that the engine closed and that finished later, both rows name the start: the engine's is the one that
    counts, as it did in the folds.
    """
    return (
        f"SELECT {_COLUMNS}, {_MAPPED} FROM ({rows}) "  # noqa: S608 - our own words
        "WHERE verdict IS NOT NULL AND appended IS NULL AND fault IS NULL AND repeated IS NOT TRUE "
        f"UNION ALL BY NAME SELECT {_COLUMNS}, {_MAPPED} FROM ({late}) "
        "WHERE verdict IS NOT NULL AND appended IS NOT NULL AND fault IS NULL AND repeated IS NOT TRUE "
        "QUALIFY row_number() OVER (PARTITION BY coalesce(start_id, correlation_id, id) ORDER BY appended DESC) = 1"
    )
