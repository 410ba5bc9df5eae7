"""Lookup of calls of a history for a comparison: the call of an event, and the outcome of calls."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Literal, NamedTuple

import duckdb

from ...projections.calls.keys import tool_of_key
from .fold_incidents import FoldIncident

# Severities of failures that are not the tool's fault: it ran and returned an error
ANSWERS = ("not_found", "invalid_input", "validation")

WELL, BROKE, NEITHER = "well", "broke", "neither"
# How a call went: `well`: it did its work, or failed as expected; `broke`: it failed in a way that blames the tool, or
# the user refused it; `neither`: it was answered with a no, cancelled, served from a cache, or never ended
Went = Literal["well", "broke", "neither"]

# `Went` of a row of `tool_calls`
WENT = (
    f"CASE WHEN outcome = 'succeeded' OR expected THEN '{WELL}' WHEN outcome = 'denied' "
    f"OR (verdict = 'failure' AND severity NOT IN {ANSWERS}) THEN '{BROKE}' ELSE '{NEITHER}' END"
)

_PLACES = """
SELECT id, session_id, coalesce(call_id, ''), coalesce(tool_name, ''), number FROM (
    SELECT id, session_id, call_id, tool_name,
           greatest(count(*) FILTER (type = 'tool_call.started') OVER sofar,
                    count(*) FILTER (type = 'tool_call.finished') OVER sofar) AS number
    FROM events WHERE session_id IN (SELECT session_id FROM events WHERE id IN (SELECT unnest($ids)))
    WINDOW sofar AS (PARTITION BY session_id ORDER BY time, "offset" ROWS UNBOUNDED PRECEDING)
) WHERE id IN (SELECT unnest($ids))
"""

_WENT = f"""
SELECT s.id, {WENT} FROM (SELECT id, session_id, call_id, time FROM events
    WHERE type = 'tool_call.started' AND id IN (SELECT unnest($ids))) s
ASOF LEFT JOIN tool_calls c ON s.session_id = c.session_id AND s.call_id = c.call_id AND s.time <= c.time
"""  # noqa: S608 - constants of this module

# Column of `tool_calls` by scope
_COLUMNS = {"key": "failure_key", "tool": "tool_name", "service": "service", "tier": "model_tier"}


class CallPlace(NamedTuple):
    """Call that an event belongs to."""

    session: str  # session of the event
    call_id: str  # id of its call; empty if it has none
    tool: str  # tool of its call; empty if it has none
    number: int  # number of its call, or of the last call before it, in the session from 1; 0: before the first


def places(connection: duckdb.DuckDBPyConnection, events: Collection[str]) -> dict[str, CallPlace]:
    """Calls of events, by event id."""
    if not events:
        return {}
    rows = connection.execute(_PLACES, {"ids": list(events)}).fetchall()
    return {made: CallPlace(session, call_id, tool, number) for made, session, call_id, tool, number in rows}


def went(connection: duckdb.DuckDBPyConnection, starts: Collection[str]) -> dict[str, Went]:
    """Outcomes of calls, by the id of their start."""
    return dict(connection.execute(_WENT, {"ids": list(starts)}).fetchall()) if starts else {}


def between(connection: duckdb.DuckDBPyConnection, pairs: Sequence[tuple[FoldIncident, FoldIncident]]) -> list[int]:
    """Number of calls of a key or circuit that ended between the starts of two of its incidents; the earlier first."""
    counts = [0] * len(pairs)
    for scope, column in _COLUMNS.items():
        wanted = [(number, *_bounds(*pair)) for number, pair in enumerate(pairs) if pair[0].scope == scope]
        for number, count in _counted(connection, column, wanted):
            counts[number] = count
    return counts


def _counted(
    connection: duckdb.DuckDBPyConnection, column: str, wanted: list[tuple[int, str, str, int, int]]
) -> Iterable[tuple[int, int]]:
    if not wanted:
        return ()
    numbers, workspaces, names, since, until = zip(*wanted, strict=True)
    return connection.execute(
        "SELECT number, count(*) FROM (SELECT unnest($numbers) AS number, unnest($workspaces) AS place, "  # noqa: S608
        "unnest($names) AS name, unnest($since) AS since, unnest($until) AS until) w "
        f"JOIN tool_calls c ON c.workspace = w.place AND c.{column} = w.name "
        "AND epoch_ms(c.time) > w.since AND epoch_ms(c.time) <= w.until GROUP BY number",
        {"numbers": numbers, "workspaces": workspaces, "names": names, "since": since, "until": until},
    ).fetchall()


def _bounds(first: FoldIncident, second: FoldIncident) -> tuple[str, str, int, int]:
    named = first.subject.partition(":")[2]
    name = {"key": first.subject, "tool": named or tool_of_key(first.subject)}.get(first.scope, named)
    return first.workspace, name, first.time_ms, second.time_ms
